"""Coarser grids: four nodes merged into one, and padding by zeros."""

import math
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ...graph import AttentionGraph
from ...graphs import cell_pooling

Grid = tuple[int, ...]


class PatchMerging(nn.Module):
    r"""Four nodes of a grid merged into one of half the size: concatenated, normed, projected.

    The node reads its four along :meth:`graph`. Attention does the same with four heads: each reads
    the one source at its offset, so that its weight is 1 and its value the source itself, and the
    heads' outputs side by side are the concatenation; the projection of that is
    :math:`\sum_o W_o x_o`, a matrix for each offset. The number of frames of a video stays.

    Args:
        embed_dim: C; the new nodes have width 2 C.
        norm_last: True if the norm follows the projection, as in Swin V2.
        num_axes: Number of axes of the grid; on one axis, two nodes become one.

    Source: Liu et al. 2021, section 3.1. Offsets are in the order of their code, (0, 0), (1, 0),
    (0, 1), (1, 1). A grid of odd sides is padded by zeros. Norms as in the code of Swin V2; no
    frames merged as in that of Video Swin.

    Example:
        >>> PatchMerging(8)(torch.randn(2, 15, 8), (3, 5)).shape, PatchMerging.graph((3, 5)).name
        (torch.Size([2, 6, 16]), 'cell_pooling((3, 5), (2, 2), pad=True)')
    """

    def __init__(self, embed_dim: int, *, norm_last: bool = False, num_axes: int = 2) -> None:
        super().__init__()
        inner = embed_dim * math.prod(merged_sides(num_axes))
        normed = inner
        if norm_last:
            normed = 2 * embed_dim
        self.norm = nn.LayerNorm(normed)
        self.reduction = nn.Linear(inner, 2 * embed_dim, bias=False)
        self.norm_last = norm_last

    @staticmethod
    def graph(grid: Grid) -> AttentionGraph:
        """The graph from the nodes of a grid to the merged nodes."""
        return cell_pooling(grid, merged_sides(len(grid)), pad=True)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """(..., height * width, C) to (..., ceil(height / 2) * ceil(width / 2), 2 C), per frame."""
        halved = merged_sides(len(grid))
        x = padded(x, grid, halved).unflatten(-2, whole_cells(grid, halved))
        corners = []
        # the last axis is the slowest
        for offset in product((0, 1), repeat=sum(side == 2 for side in halved)):
            every_second: list[Any] = [slice(start, None, 2) for start in reversed(offset)]
            corners.append(x[(..., *every_second, slice(None))])
        x = torch.cat(corners, -1).flatten(-1 - len(grid), -2)
        if self.norm_last:
            return self.norm(self.reduction(x))
        return self.reduction(self.norm(x))


def merged_sides(num_axes: int) -> Grid:
    """Numbers of nodes merged on every axis: two by two, of one frame."""
    return (1,) * (num_axes - 2) + (2,) * min(num_axes, 2)


def padded(x: Tensor, grid: Grid, sides: Grid) -> Tensor:
    """Nodes (..., N, C) of the grid with zeros at its ends, up to a multiple of ``sides``.

    Raises:
        ShapeError: If their number differs from the grid's.
    """
    padded_grid = whole_cells(grid, sides)
    if padded_grid == grid:
        return x
    more = [0, 0]
    for length, full in zip(reversed(grid), reversed(padded_grid), strict=True):
        more += [0, full - length]
    return nn.functional.pad(x.unflatten(-2, grid), more).flatten(-1 - len(grid), -2)


def whole_cells(grid: Grid, sides: Grid) -> Grid:
    """The grid padded to a multiple of ``sides``."""
    return tuple(-(-n // side) * side for n, side in zip(grid, sides, strict=True))
