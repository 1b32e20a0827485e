"""Cells of a grid: targets that stand together, so that blocks of rows read few columns."""

import math

import torch
from torch import Tensor

from ..graph.edge_set import EdgeSet
from ..graph.rules import Product
from ..graph.rules_grid import Ball


def grid_cells(edges: EdgeSet, most: int) -> Tensor | None:
    """The cell of every node of a grid, int64 (T,), or None where no rule is of a grid of two or more axes.

    Cells are boxes of at most ``most`` nodes whose sides are as equal as the grid allows, numbered row by row.
    """
    grid = _grid(edges)
    if grid is None or len(grid) < 2:
        return None
    place = torch.arange(math.prod(grid))
    cell, stride = torch.zeros_like(place), 1
    for axis in reversed(range(len(grid))):
        side = max(1, min(grid[axis], math.floor(most ** (1 / (axis + 1)) + 1e-9)))
        cell += place % grid[axis] // side * stride
        place, most, stride = place // grid[axis], most // side, stride * -(-grid[axis] // side)
    return cell


def _grid(edges: EdgeSet) -> tuple[int, ...] | None:
    """The sizes of the axes along which a rule is written, or one of the rules it is made of."""
    if isinstance(edges, Product):
        return tuple(axis.num_targets for axis in edges.axes)
    if isinstance(edges, Ball):
        return edges.grid
    parts = (getattr(edges, name, None) for name in ("a", "b", "base"))
    grids = (_grid(part) for part in parts if isinstance(part, EdgeSet) and part.num_targets == edges.num_targets)
    return next((grid for grid in grids if grid is not None), None)
