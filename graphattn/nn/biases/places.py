"""Biases of where points stand from each other, and Fourier features of it."""

import math

import torch
from torch import Tensor, nn

from ...arguments import floats, kinds_checked, positive, width
from ...errors import ShapeError
from ...graph import AttentionGraph, PerHead
from ..geometry import relative_positions

Graph = AttentionGraph | PerHead


class OffsetBias(nn.Module):
    r"""A perceptron of the offset as a bias: :math:`b_{ts} = W_2 \, \mathrm{relu}(W_1 (p_t - p_s) + b_1)`.

    Args:
        num_heads: H.
        axes: Of the positions.
        hidden: Width of the hidden layer.

    Source: the relative position bias of Swin V2 (:class:`SwinV2Bias`), without a grid.

    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.rand(30, 3)
        >>> OffsetBias(num_heads=2)(ga.graphs.knn(pos, 4), pos).shape
        torch.Size([120, 2])
    """

    @kinds_checked()
    def __init__(self, num_heads: int, axes: int = 3, *, hidden: int = 32) -> None:
        super().__init__()
        heads, hidden = width(num_heads, "num_heads"), width(hidden, "hidden")
        self.axes = width(axes, "axes")
        self.mlp = nn.Sequential(nn.Linear(self.axes, hidden), nn.ReLU(), nn.Linear(hidden, heads, bias=False))

    def forward(self, graph: Graph, pos: Tensor, queries: Tensor | None = None) -> Tensor:
        """Biases (..., E, H) of positions as in :func:`graphattn.nn.relative_positions`."""
        like = next(self.mlp.parameters())
        return self.mlp(_offsets(graph, pos, queries, self.axes).to(like.dtype))


class OffsetTable(nn.Module):
    r"""A learned number for each step along each axis, added up: quantised relative positions.

    .. math:: b_{ts} = \sum_a \mathrm{weight}[a, \, \mathrm{clamp}(\lfloor (p_t - p_s)_a / \ell \rceil, -R, R) + R]

    Args:
        num_heads: H.
        reach: R, steps to either side; farther ones are the farthest.
        step: :math:`\ell`, in the units of the positions; 1 for cells of a grid.
        axes: Of the positions.

    Attributes:
        weight: (axes, 2 R + 1, H), from a normal of deviation 0.02 cut at two.

    Source: Wu et al. 2024 (Point Transformer V3), the code's ``RPE``, which this is on grid coordinates; Swin3D (Yang
    et al. 2023) and Stratified Transformer (Lai et al. 2022) have such tables, theirs multiplied by query and key.
    """

    @kinds_checked()
    def __init__(self, num_heads: int, reach: int, *, step: float = 1.0, axes: int = 3) -> None:
        super().__init__()
        self.reach, self.step = width(reach, "reach"), positive(step, "step")
        self.weight = nn.Parameter(torch.empty(width(axes, "axes"), 2 * self.reach + 1, width(num_heads, "num_heads")))
        nn.init.trunc_normal_(self.weight, std=0.02, a=-0.04, b=0.04)

    def forward(self, graph: Graph, pos: Tensor, queries: Tensor | None = None) -> Tensor:
        """Biases (..., E, H) of positions as in :func:`graphattn.nn.relative_positions`; they get no gradient."""
        axes, wide, heads = self.weight.shape
        away = _offsets(graph, pos.detach() if isinstance(pos, Tensor) else pos, queries, axes)
        index = (away / self.step).round().clamp(-self.reach, self.reach).long() + self.reach
        rows = index + wide * torch.arange(axes, device=index.device)
        return nn.functional.embedding(rows, self.weight.reshape(axes * wide, heads)).sum(-2)

    def extra_repr(self) -> str:
        return f"num_heads={self.weight.shape[2]}, reach={self.reach}, step={self.step}, axes={self.weight.shape[0]}"


class FourierFeatures(nn.Module):
    r"""Sines and cosines of positions or offsets at random frequencies: :math:`[\sin 2 \pi B x, \cos 2 \pi B x]`.

    Args:
        axes: Of what it reads.
        num_frequencies: Half the width of what it gives.
        sigma: Standard deviation of the frequencies B, in cycles for each unit of length.

    Attributes:
        frequencies: B (num_frequencies, axes), drawn once; saved, and not trained.

    Source: Tancik et al. 2020.

    Example:
        >>> import torch
        >>> FourierFeatures(3, 8)(torch.rand(5, 3)).shape
        torch.Size([5, 16])
    """

    frequencies: Tensor

    @kinds_checked()
    def __init__(self, axes: int, num_frequencies: int, *, sigma: float = 1.0) -> None:
        super().__init__()
        size = width(num_frequencies, "num_frequencies"), width(axes, "axes")
        self.register_buffer("frequencies", torch.randn(size) * positive(sigma, "sigma"))

    def forward(self, x: Tensor) -> Tensor:
        """(..., 2 * num_frequencies) of (..., axes)."""
        if floats(x, "x", "(..., axes)", 1).shape[-1] != self.frequencies.shape[1]:
            raise ShapeError(f"x must have {self.frequencies.shape[1]} axes, got {tuple(x.shape)}")
        angle = x @ (2 * math.pi * self.frequencies.to(x)).t()
        return torch.cat((angle.sin(), angle.cos()), -1)

    def extra_repr(self) -> str:
        return f"axes={self.frequencies.shape[1]}, num_frequencies={self.frequencies.shape[0]}"


def _offsets(graph: Graph, pos: Tensor, queries: Tensor | None, axes: int) -> Tensor:
    offsets = relative_positions(graph, pos, queries)
    if offsets.shape[-1] != axes:
        raise ShapeError(f"the bias was built for positions on {axes} axes, got {offsets.shape[-1]}")
    return offsets
