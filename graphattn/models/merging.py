"""Grids that become coarser: four nodes merged into one, and the zeros that fill a grid up."""

import torch
from torch import Tensor, nn

from ..errors import ShapeError
from ..graph import AttentionGraph
from ..graphs import cell_pooling

Grid = tuple[int, int]


class PatchMerging(nn.Module):
    r"""Four nodes of a grid become one of a grid half as high and wide: concatenated, normed, projected.

    The node reads its four along :meth:`graph`. Attention does the same with four heads: each reads the one source at
    its offset, so its weight is 1 and its value the source itself, and the heads' outputs side by side are the
    concatenation; the projection of that is :math:`\sum_o W_o x_o`, a matrix for each offset.

    Args:
        embed_dim: C; the new nodes have twice that.

    Source: Liu et al. 2021, section 3.1. Offsets are in the order of their code, (0, 0), (1, 0), (0, 1), (1, 1). A grid
    of odd sides is padded by zeros.

    Example:
        >>> PatchMerging(8)(torch.randn(2, 15, 8), (3, 5)).shape, PatchMerging.graph((3, 5)).name
        (torch.Size([2, 6, 16]), 'cell_pooling((3, 5), (2, 2), pad=True)')
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * embed_dim)
        self.reduction = nn.Linear(4 * embed_dim, 2 * embed_dim, bias=False)

    @staticmethod
    def graph(grid: Grid) -> AttentionGraph:
        """What a merged node reads, from the nodes of a grid."""
        return cell_pooling(grid, 2, pad=True)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """(..., height * width, C) to (..., ceil(height / 2) * ceil(width / 2), 2 C)."""
        x = padded(x, grid, 2).unflatten(-2, whole_cells(grid, 2))
        corners = [x[..., row::2, column::2, :] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(corners, -1).flatten(-3, -2)))


def padded(x: Tensor, grid: Grid, side: int) -> Tensor:
    """Nodes (..., height * width, C) of the grid with zeros at its ends, up to a multiple of ``side``.

    Raises:
        ShapeError: If they are not as many as the grid has.
    """
    if x.shape[-2] != grid[0] * grid[1]:
        raise ShapeError(f"x has {x.shape[-2]} nodes, and a grid of {grid} has {grid[0] * grid[1]}")
    whole = whole_cells(grid, side)
    if whole == grid:
        return x
    more = (0, 0, 0, whole[1] - grid[1], 0, whole[0] - grid[0])
    return nn.functional.pad(x.unflatten(-2, grid), more).flatten(-3, -2)


def whole_cells(grid: Grid, side: int) -> Grid:
    """The grid filled up to a multiple of ``side``."""
    height, width = (-(-n // side) * side for n in grid)
    return height, width
