"""All pairs of points within a distance, exactly, on any device: a grid of cells proposes, float64 decides.

There is one formula for the squared distance, :func:`squared_distance`. Everything that searches for neighbours uses it
to compare, so the CPU and the GPU find the same edges bit for bit.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph.runs import spread

_MOST_CELLS = 1 << 20  # on one axis, so that three axes fit an int64 key
_SLACK = 1 + 1e-6  # cells are a little wider than the reach: rounding never moves a neighbour two cells away
_CANDIDATES = {"cpu": 1 << 20, "cuda": 1 << 25}  # pairs looked at at once


class Pairs(NamedTuple):
    """The points (P,) of queries ``first .. last - 1``, by query, then squared distance, then point."""

    first: int
    last: int
    query: Tensor
    point: Tensor
    squared: Tensor


def squared_distance(points: Tensor, point: Tensor | slice, queries: Tensor, query: Tensor | int) -> Tensor:
    """Of ``points[point]`` and ``queries[query]``, indices that broadcast; axis by axis, so that devices round alike."""
    total = torch.zeros((), dtype=points.dtype, device=points.device)
    for p, q in zip(points.unbind(1), queries.unbind(1), strict=True):
        difference = p[point] - q[query]
        total = total + difference * difference
    return total


class _Grid:
    """Points sorted by the cell they lie in; cells are cubes over the first three axes of the points."""

    def __init__(self, points: Tensor, reach: float) -> None:
        self.axes = min(3, points.shape[1])
        place = points[:, : self.axes]
        self.origin = place.amin(0)
        span = float((place.amax(0) - self.origin).amax())
        self.edge = max(reach * _SLACK, span / _MOST_CELLS) or 1.0
        cell = ((place - self.origin) / self.edge).floor().to(torch.int64)
        self.cells = cell.amax(0)
        self.stride = [1]
        for count in reversed(self.cells.tolist()[1:]):
            self.stride.insert(0, self.stride[0] * (count + 5))  # two cells of margin on both sides
        self.key, self.order = torch.sort(self._key(cell), stable=True)

    def _key(self, cell: Tensor) -> Tensor:
        return sum((cell[:, axis] + 2) * stride for axis, stride in enumerate(self.stride))  # type: ignore[return-value]

    def candidates(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Ranges ``lo, hi`` (m, 3 ** (axes - 1)) of ``order`` that hold all points within reach of each query."""
        cell = ((queries[:, : self.axes] - self.origin) / self.edge).floor()
        far = (self.cells + 2).to(cell.dtype)
        key = self._key(torch.minimum(cell.clamp(min=-2), far).to(torch.int64))
        around = itertools.product((-1, 0, 1), repeat=self.axes - 1)
        step = [sum(a * b for a, b in zip(offset, self.stride, strict=False)) for offset in around]
        middle = key[:, None] + torch.tensor(step, device=key.device)
        # Along the last axis three cells are neighbours in memory, so they are one range.
        return torch.searchsorted(self.key, middle - 1), torch.searchsorted(self.key, middle + 1, right=True)


def within(points: Tensor, queries: Tensor, limit: Tensor) -> Iterator[Pairs]:
    """The points whose squared distance to a query is at most the query's ``limit``, some queries at a time.

    Args:
        points: (n, d) float64, n >= 1.
        queries: (m, d) float64.
        limit: (m,) float64, squared distances.
    """
    if queries.shape[0] == 0:
        return
    grid = _Grid(points, float(limit.amax().sqrt()))
    most = _CANDIDATES[points.device.type]
    rows = max(1, most // 9)
    for first in range(0, queries.shape[0], rows):
        lo, hi = grid.candidates(queries[first : first + rows])
        total = torch.cumsum((hi - lo).sum(1), 0)
        start = 0
        while start < total.numel():
            done = int(total[start - 1]) if start else 0
            stop = max(start + 1, int(torch.searchsorted(total, done + most, right=True)))
            yield _measure(points, queries, limit, grid, first + start, lo[start:stop], hi[start:stop])
            start = stop


def _measure(points: Tensor, queries: Tensor, limit: Tensor, grid: _Grid, first: int, lo: Tensor, hi: Tensor) -> Pairs:
    block, within_block = spread((hi - lo).flatten())
    point = grid.order[lo.flatten()[block] + within_block]
    query = block // lo.shape[1] + first
    squared = squared_distance(points, point, queries, query)
    keep = squared <= limit[query]
    query, point, squared = query[keep], point[keep], squared[keep]
    order = torch.argsort(point)
    for by in (squared, query):  # the last sort is the outermost
        order = order[torch.argsort(by[order], stable=True)]
    return Pairs(first, first + lo.shape[0], query[order], point[order], squared[order])


def first_of_each(pairs: Pairs, count: int) -> tuple[Tensor, Tensor]:
    """Which of the queries have at least ``count`` points, bool (q,), and their first ones, int64 (True, count)."""
    found = torch.bincount(pairs.query - pairs.first, minlength=pairs.last - pairs.first)
    start = torch.cumsum(found, 0) - found
    enough = found >= count
    return enough, pairs.point[start[enough][:, None] + torch.arange(count, device=start.device)]
