"""Rotary positions: queries and keys rotated by their positions."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import check_shape, floats, positive, real, whole, width
from ..errors import OptionError, ShapeError
from ..graphs.arguments import axes
from .positions import (
    angles,
    check_positions,
    checked_positions,
    even,
    frequencies,
    frequency_base,
    pairing,
)


class RotaryScaling:
    """A change of the frequencies of :class:`~graphattn.nn.Rotary`: a function of them and of
    theta.
    """

    def __call__(self, frequency: Tensor, base: float) -> Tensor:
        """Scaled frequencies (d / 2,), from theta to the power ``-2 i / d``."""
        raise NotImplementedError


@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """All frequencies divided by ``factor``: positions are interpolated.

    Source: Chen et al. 2023, "Extending Context Window of Large Language Models via Positional
    Interpolation".
    """

    factor: float

    def __post_init__(self) -> None:
        positive(self.factor, "factor")

    def __call__(self, frequency: Tensor, base: float) -> Tensor:
        return frequency / self.factor


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    r"""Slow frequencies divided by ``factor``, fast ones kept, those in between mixed.

    With r the periods of a frequency in ``length`` tokens: those with :math:`r < low` are divided,
    those with :math:`r > high` kept, and between them the share :math:`(r - low) / (high - low)` is
    kept.

    Args:
        factor: Ratio of the lengths of the new texts and those of training.
        length: Tokens of a text in training.
        low: Periods up to which a frequency is divided.
        high: Periods from which it is kept, above ``low``.

    Source: Llama 3.1's published code, ``apply_scaling``.

    Example:
        >>> from graphattn.nn import Rotary
        >>> Rotary(head_dim=128, base=500000.0, scaling=Llama3Scaling(factor=8.0, length=8192)).rotary_dim
        128
    """

    factor: float
    length: int
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        positive(self.factor, "factor")
        positive(self.length, "length")
        positive(real(self.high, "high") - real(self.low, "low"), "high - low")

    def __call__(self, frequency: Tensor, base: float) -> Tensor:
        turns = self.length * frequency / (2 * math.pi)
        smooth = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - smooth) * frequency / self.factor + smooth * frequency


class Rotary(nn.Module):
    r"""Queries and keys rotated by their positions, so that their product depends only on relative
    positions.

    A pair of channels (a, b) of a node at position n is a point of the plane, rotated by an angle:

    .. math:: (a \cos \phi - b \sin \phi, \; a \sin \phi + b \cos \phi), \qquad \phi = n \, \theta^{-2i / d}

    with d the number of rotated channels and i = 0, 1, ..., d / 2 - 1 the index of the pair. With
    several axes the pairs are divided evenly: the first d / (2 A) pairs rotate by the first axis,
    and so on, each axis with the frequencies of ``d / A`` channels.

    Args:
        head_dim: D, width of a head.
        base: Theta.
        rotary_dim: d, the first channels of each head, which are rotated; the others stay. All by
            default.
        layout: The pairs of channels. "half": i and i + d / 2 (Llama, GPT-NeoX); "interleaved": 2 i
            and 2 i + 1 (the paper, GPT-J). Weights trained with one do not fit the other.
        num_axes: A, number of coordinates of a position; 2 for images.
        scaling: Scaled frequencies for longer texts: :class:`LinearScaling` or
            :class:`Llama3Scaling`.

    Source: Su et al. 2021 (RoFormer), section 3.4.2. Several axes as in Qwen2-VL's vision encoder,
    with halves.

    Example:
        >>> import graphattn as ga
        >>> rotary = Rotary(head_dim=8)
        >>> query, key, value = torch.randn(3, 5, 2, 8)  # (N, H, D)
        >>> ga.attention(rotary(query), rotary(key), value, ga.graphs.causal(5)).shape
        torch.Size([5, 2, 8])
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        layout: str = "half",
        num_axes: int = 1,
        scaling: RotaryScaling | None = None,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.head_dim = width(head_dim, "head_dim")
        self.num_axes = width(num_axes, "num_axes")
        self.rotary_dim = even("rotary_dim", self.head_dim if rotary_dim is None else rotary_dim)
        self.base = frequency_base(base)
        self.layout = pairing(layout)
        more = self.head_dim + 1
        whole(self.rotary_dim, "rotary_dim", 1, below=more, of=", one more than head_dim")
        if self.rotary_dim % (2 * self.num_axes):
            raise OptionError(
                f"rotary_dim must be a multiple of 2 * num_axes = {2 * self.num_axes}, got "
                f"{self.rotary_dim}: each "
                "axis rotates as many pairs as the others"
            )
        self.scaling = scaling

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Rotated queries or keys.

        Args:
            x: (..., N, H, D), node-first.
            positions: Numbers (N,) or (..., N), or (..., N, A) if there are several axes
                (:func:`grid_positions` of a grid, coordinates of points). 0, 1, ..., N - 1 by
                default, for one axis.

        Raises:
            ShapeError: If a tensor has another shape or device, or several axes have no positions;
                or if positions are not real numbers (on the CPU: if one is NaN or infinite).
        """
        expected = f"(..., nodes, heads, {self.head_dim})"
        check_shape(floats(x, "x", expected, 3), "x", (..., self.head_dim))
        turn = self._turn(x, positions).unsqueeze(-2)
        dtype = torch.promote_types(x.dtype, torch.float32)
        # (..., N, 1, d / 2)
        cos = turn.cos().to(dtype)
        sin = turn.sin().to(dtype)
        rotary_part = x[..., : self.rotary_dim].to(dtype)
        rest = x[..., self.rotary_dim :]
        half = self.layout == "half"
        if half:
            a, b = rotary_part.chunk(2, -1)
        else:
            a, b = rotary_part.unflatten(-1, (-1, 2)).unbind(-1)
        pair = (a * cos - b * sin, a * sin + b * cos)
        rotated = (torch.cat(pair, -1) if half else torch.stack(pair, -1).flatten(-2)).to(x.dtype)
        if rest.shape[-1]:
            return torch.cat((rotated, rest), -1)
        return rotated

    def _turn(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Angles (..., N, d / 2)."""
        frequency = frequencies(self.rotary_dim // self.num_axes, self.base, x)
        if self.scaling is not None:
            frequency = self.scaling(frequency, self.base)
        if self.num_axes == 1:
            return angles(checked_positions(positions, x, x.shape[-3]), frequency)
        if positions is None:
            raise ShapeError(
                f"positions (..., N, {self.num_axes}) are needed; for a grid pass "
                "grid_positions((H, W))"
            )
        check_positions(positions, x, x.shape[-3], self.num_axes)
        return angles(positions, frequency).flatten(-2)

    def extra_repr(self) -> str:
        return (
            f"{self.head_dim}, base={self.base}, rotary_dim={self.rotary_dim}, "
            f"layout={self.layout!r}, "
            f"num_axes={self.num_axes}"
            + (f", scaling={self.scaling}" if self.scaling is not None else "")
        )


def check_rotary(rotary: Any, head_dim: int) -> None:
    """Refuse anything but a rotation of heads of this width."""
    if rotary is not None and rotary.head_dim != head_dim:
        raise OptionError(
            f"rotary has head_dim={rotary.head_dim}, and the layer head_dim={head_dim}"
        )


def grid_positions(size: tuple[int, ...]) -> Tensor:
    """Coordinates of the nodes of a grid, int64 (N, A), row by row.

    Args:
        size: Length of every axis, (height, width) for an image.

    Example:
        >>> grid_positions((2, 2))
        tensor([[0, 0],
                [0, 1],
                [1, 0],
                [1, 1]])
    """
    lengths = [torch.arange(length) for length in axes(size)]
    return torch.stack(torch.meshgrid(*lengths, indexing="ij"), -1).flatten(0, -2)
