"""Cells of a grid: adjacent targets, so that blocks of rows read few columns."""

import math

import torch
from torch import Tensor

from ..graph.edges import Edges


def grid_cells(edges: Edges, most: int) -> Tensor | None:
    """The cell of every node of a grid, int64 (T,), or None if the targets are not on a grid of two or more axes.

    Cells are boxes of at most ``most`` nodes whose sides are as equal as the grid allows, numbered row by row.
    """
    grid = edges.grid
    if len(grid) < 2:
        return None
    place = torch.arange(math.prod(grid))
    cell, stride = torch.zeros_like(place), 1
    for axis in reversed(range(len(grid))):
        side = max(1, min(grid[axis], math.floor(most ** (1 / (axis + 1)) + 1e-9)))
        cell += place % grid[axis] // side * stride
        place, most, stride = place // grid[axis], most // side, stride * -(-grid[axis] // side)
    return cell
