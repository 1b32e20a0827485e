"""Orders of the targets in which neighbours stand together, so that blocks of rows read few columns."""

import math

import numpy as np
import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.edge_set import EdgeSet
from ..graph.rules import Product
from ..graph.rules_grid import Ball
from .grouped import by_source, by_target

HUB = 8  # a node with over eight times the mean degree leads everywhere, and says nothing about places


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


def cuthill_mckee(graph: AttentionGraph) -> Tensor:
    """The targets in the reverse order of Cuthill and McKee (1969): breadth first, from a node of least degree.

    Two targets are neighbours where they read a common source, or on a square graph where one reads the other; sources
    and targets of over eight times the mean degree are passed over. Int64 (T,).
    """
    into, out_of = by_target(graph), by_source(graph)
    to_source = _Steps(into.ptr.numpy(), into.source.numpy(), graph.num_sources)
    to_target = _Steps(out_of.ptr.numpy(), out_of.target.numpy(), graph.num_targets)
    degree = np.diff(into.ptr.numpy())
    result = []
    starts = np.argsort(degree, kind="stable")
    at = 0
    while True:
        while at < len(starts) and to_target.seen[starts[at]]:
            at += 1
        if at == len(starts):
            break
        level = starts[at : at + 1]
        to_target.seen[level] = True
        while level.size:
            result.append(level)
            level = to_target.next(to_source.next(level))
            level = level[np.argsort(degree[level], kind="stable")] if level.size < 64 else level
    order = np.concatenate(result)[::-1] if result else np.empty(0, dtype=np.int64)
    return torch.from_numpy(np.ascontiguousarray(order).astype(np.int64))


class _Steps:
    """From a level of nodes on one side to those on the other side that were not yet seen."""

    def __init__(self, ptr: np.ndarray, other: np.ndarray, size: int) -> None:
        self.ptr, self.other = ptr, other
        self.most = HUB * max(1.0, len(other) / max(1, len(ptr) - 1))
        self.seen = np.zeros(size, dtype=bool)

    def next(self, level: np.ndarray) -> np.ndarray:
        first, count = self.ptr[level], self.ptr[level + 1] - self.ptr[level]
        count = np.where(count > self.most, 0, count)
        owner = np.repeat(np.arange(len(level)), count)
        place = first[owner] + np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
        reached = self.other[place]
        reached = reached[~self.seen[reached]]
        _, where = np.unique(reached, return_index=True)
        reached = reached[np.sort(where)].astype(np.int64)  # in the order in which they were reached
        self.seen[reached] = True
        return reached
