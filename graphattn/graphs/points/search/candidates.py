"""Candidate pairs of points within reach; they are checked later, so rounding does not matter.

Each function yields ``(first, last, query, point)``: for the queries ``first .. last - 1`` all
points within ``reach``, and some others, as two int64 tensors (P,).
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....graph.runs import spread

Candidates = Iterator[tuple[int, int, Tensor, Tensor]]

_MOST_CELLS = 1 << 20  # on one axis, so that three axes fit an int64 key
# cells are a little wider than the reach: rounding never moves a neighbour two cells away
_CELL_SLACK = 1 + 1e-6
TREE_SLACK = 1 + 1e-9
_TREE_ROWS = 1 << 16
_TREE_PAIRS = 1 << 23
ALL_PAIRS = 1 << 27
_CELL_PAIRS = {"cpu": 1 << 20, "cuda": 1 << 25}


def from_tree(points: Tensor, queries: Tensor, reach: float) -> Candidates:
    """Pairs from a k-d tree of the points and one of the queries, on the CPU."""
    from scipy.spatial import cKDTree  # slow to import

    tree = cKDTree(points.numpy())
    reach = reach * TREE_SLACK
    size = len(queries)
    if queries is points and surely_few(tree, queries, reach, ALL_PAIRS):
        low, high = tree.query_pairs(reach, output_type="ndarray").T
        same = np.arange(size)
        query = np.concatenate((same, low, high))
        point = np.concatenate((same, high, low))
        yield 0, size, torch.from_numpy(query), torch.from_numpy(point)
        return
    todo = [(first, min(first + _TREE_ROWS, size)) for first in range(0, size, _TREE_ROWS)][::-1]
    while todo:
        first, last = todo.pop()
        part = queries[first:last]
        query_tree = cKDTree(part.numpy())
        if last - first > 1 and _has_many(tree, query_tree, part, reach):
            middle = (first + last) // 2
            todo += [(middle, last), (first, middle)]
            continue
        pairs = query_tree.sparse_distance_matrix(tree, reach, output_type="ndarray")
        yield first, last, torch.from_numpy(pairs["i"] + first), torch.from_numpy(pairs["j"].copy())


def _has_many(tree: Any, query_tree: Any, queries: Tensor, reach: float) -> bool:
    """True for more pairs than are held at once."""
    if surely_few(tree, queries, reach, _TREE_PAIRS):
        return False
    return query_tree.count_neighbors(tree, reach) > _TREE_PAIRS


def surely_few(tree: Any, queries: Tensor, reach: float, most: int) -> bool:
    """True if a sample suggests far fewer pairs than ``most``; counting is slow."""
    size = queries.shape[0]
    if 4 * size * tree.n <= most:
        return True
    sample = queries[:: max(1, size // 64)].numpy()
    pairs = int(tree.query_ball_point(sample, reach, return_length=True).sum())
    return 4 * pairs * size <= most * len(sample)


def from_cells(points: Tensor, queries: Tensor, reach: float) -> Candidates:
    """Pairs from points sorted by their cell of a grid, on any device."""
    grid = _Grid(points, reach)
    most = _CELL_PAIRS[points.device.type]
    rows = max(1, most // 9)
    for begin in range(0, queries.shape[0], rows):
        lo, hi = grid.ranges(queries[begin : begin + rows])
        total = torch.cumsum((hi - lo).sum(1), 0)
        start = 0
        while start < total.numel():
            if start:
                done = int(total[start - 1])
            else:
                done = 0
            stop = max(start + 1, int(torch.searchsorted(total, done + most, right=True)))
            block, within = spread((hi - lo)[start:stop].flatten())
            point = grid.order[lo[start:stop].flatten()[block] + within]
            yield begin + start, begin + stop, block // lo.shape[1] + (begin + start), point
            start = stop


class _Grid:
    """Cubes over the first three axes of the points, as wide as the reach."""

    def __init__(self, points: Tensor, reach: float) -> None:
        self.axes = min(3, points.shape[1])
        place = points[:, : self.axes]
        self.origin = place.amin(0)
        span = float((place.amax(0) - self.origin).amax())
        self.edge = max(reach * _CELL_SLACK, span / _MOST_CELLS)
        if self.edge == 0:
            self.edge = 1.0
        cell = ((place - self.origin) / self.edge).floor().to(torch.int64)
        self.last = cell.amax(0)
        self.stride = [1]
        for last in reversed(self.last.tolist()[1:]):
            # two empty cells of margin on both sides
            self.stride.insert(0, self.stride[0] * (last + 5))
        self.key, self.order = torch.sort(self._key(cell), stable=True)

    def _key(self, cell: Tensor) -> Tensor:
        key = torch.zeros_like(cell[:, 0])
        for axis, stride in enumerate(self.stride):
            key += (cell[:, axis] + 2) * stride
        return key

    def ranges(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """``lo, hi`` (m, 3 ** (axes - 1)): ranges in ``order`` of the cells around each query."""
        cell = ((queries[:, : self.axes] - self.origin) / self.edge).floor()
        beyond = (self.last + 2).to(cell.dtype)
        key = self._key(torch.minimum(cell.clamp(min=-2), beyond).to(torch.int64))
        around = itertools.product((-1, 0, 1), repeat=self.axes - 1)
        step = [sum(a * b for a, b in zip(offset, self.stride, strict=False)) for offset in around]
        middle = key[:, None] + torch.tensor(step, device=key.device)
        # Along the last axis three cells are neighbours in memory, so they are one range.
        return torch.searchsorted(self.key, middle - 1), torch.searchsorted(
            self.key, middle + 1, right=True
        )
