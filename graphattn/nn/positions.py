"""Positions of nodes, added to their features."""

from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import (
    check_finite,
    check_range,
    check_shape,
    floats,
    one_of,
    positive,
    width,
)
from ..errors import OptionError, PositionIndexError, ShapeError
from ..kernels.modes import can_read_values


class LearnedPosition(nn.Module):
    """A learned vector for each position, added to the features: ``x_n + weight[n]``.

    Args:
        max_len: Number of positions, 0 to ``max_len - 1``.
        dim: C, width of the features.
        padding_idx: A position whose vector is not trained; none by default.

    Source: Gehring et al. 2017; BERT, GPT-2 and ViT do the same. It starts normal with deviation
    0.02, like theirs.

    Example:
        >>> LearnedPosition(max_len=512, dim=8)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, max_len: int, dim: int, *, padding_idx: int | None = None) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.padding_idx = padding_idx
        self.weight = nn.Parameter(torch.empty(width(max_len, "max_len"), width(dim, "dim")))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Features (..., N, C) with their positions, int64 (N,) or (..., N): 0, 1, ..., N - 1 by
        default.

        Raises:
            PositionIndexError: If a position is negative, or not below ``max_len``.
            ShapeError: If a tensor has another shape, or another dtype or device than the
                parameters.
        """
        _check_features(x, self.weight.shape[1])
        last = self.weight.shape[0]
        if positions is None:
            if x.shape[-2] > last:
                raise PositionIndexError(
                    f"x must have at most max_len = {last} nodes, got {x.shape[-2]}"
                )
            return x + self.weight[: x.shape[-2]]
        check_positions(positions, x, x.shape[-2])
        if positions.is_floating_point():
            raise ShapeError(f"positions must be integers, got {positions.dtype}")
        positions = positions.to(torch.int64)
        if can_read_values(positions):
            check_range(positions, "positions", last, ", below max_len", PositionIndexError)
        return x + nn.functional.embedding(positions, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        return f"max_len={self.weight.shape[0]}, dim={self.weight.shape[1]}"


class SinusoidalPosition(nn.Module):
    r"""Sines and cosines of the position, added to the features; no parameters, any length.

    .. math:: p_{n, 2i} = \sin(n \, \theta^{-2i / C}), \qquad p_{n, 2i + 1} = \cos(n \, \theta^{-2i / C})

    Args:
        dim: C, width of the features; even.
        base: Theta.
        layout: "interleaved" as above, or "half": all sines, then all cosines.

    Source: Vaswani et al. 2017, section 3.5 (interleaved). Their own code, tensor2tensor, has
    halves, with another spacing of the frequencies; GPT-J has halves with this one.

    Example:
        >>> SinusoidalPosition(4)(torch.zeros(2, 4))
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    def __init__(self, dim: int, *, base: float = 10000.0, layout: str = "interleaved") -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.dim = even("dim", dim)
        self.base = frequency_base(base)
        self.layout = pairing(layout)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Features (..., N, C) with their positions, numbers (N,) or (..., N): 0, 1, ..., N - 1 by
        default.

        Raises:
            ShapeError: If a tensor has another shape or device, or positions are not real (on the
                CPU: if one is NaN or infinite).
        """
        _check_features(x, self.dim)
        at = checked_positions(positions, x, x.shape[-2])
        angle = angles(at, frequencies(self.dim, self.base, x))  # (..., N, C / 2)
        waves = (angle.sin(), angle.cos())
        if self.layout == "half":
            encoding = torch.cat(waves, -1)
        else:
            encoding = torch.stack(waves, -1).flatten(-2)
        return x + encoding.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base}, layout={self.layout!r}"


def frequencies(dim: int, base: float, x: Tensor) -> Tensor:
    """Theta to the power ``-2 i / dim`` (dim / 2,), on the device of ``x``.

    In float64: in float32 the angle of position 1,000,000 would be wrong by 0.03. Apple's GPUs have
    float32 only.
    """
    if x.device.type == "mps":
        dtype = torch.float32
    else:
        dtype = torch.float64
    exponent = torch.arange(0, dim, 2, device=x.device, dtype=dtype) / dim
    return 1.0 / base**exponent


def angles(positions: Tensor, frequency: Tensor) -> Tensor:
    """Positions (...) times frequencies (n,), (..., n), in their dtype."""
    return positions.to(frequency.dtype).unsqueeze(-1) * frequency


def checked_positions(positions: Tensor | None, x: Tensor, num_nodes: int) -> Tensor:
    """The positions, checked; 0, 1, ..., N - 1 by default."""
    if positions is None:
        return torch.arange(num_nodes, device=x.device)
    check_positions(positions, x, num_nodes)
    return positions


def pair_of_positions(positions: Any) -> tuple[Any, Any]:
    """Positions of targets and of sources, from a pair, or one tensor or ``None`` for both."""
    if not isinstance(positions, tuple | list):
        return positions, positions
    if len(positions) != 2 or not all(isinstance(side, Tensor) for side in positions):
        raise ShapeError("positions must be a tensor or a pair of tensors (of targets, of sources)")
    return positions[0], positions[1]


def check_positions(
    positions: Tensor, x: Tensor, num_nodes: int, num_axes: int | None = None
) -> None:
    """Refuse positions of another shape than (..., N) or (..., N, A).

    NaN and infinity are refused on the CPU only, since the check would synchronise another device.
    """
    sizes = (num_nodes,) if num_axes is None else (num_nodes, num_axes)
    check_shape(positions, "positions", (..., *sizes))
    if not positions.is_floating_point():
        return
    if positions.device.type != "cpu" or not can_read_values(positions):
        return
    check_finite(positions, "positions")


def _check_features(x: Tensor, dim: int) -> None:
    check_shape(floats(x, "x", f"(..., nodes, {dim})", 2), "x", (..., "nodes", dim))


def even(name: str, value: Any) -> int:
    """An even width, for pairs of channels."""
    number = width(value, name)
    if number % 2:
        raise OptionError(f"{name} must be even, since channels form pairs; got {number}")
    return number


def frequency_base(base: Any) -> float:
    """Theta, a number above 0 whose angles do not overflow float64."""
    number = positive(base, "base")
    return number


def pairing(layout: Any) -> str:
    """The layout of pairs of channels."""
    one_of(layout, "layout", ("half", "interleaved"))
    return layout
