"""All pairs of points within a distance, exactly, on any device.

There is one formula for the squared distance, :func:`squared_distance`. Everything that searches for neighbours
compares by it, so all searches, on the CPU and on the GPU, find the same edges bit for bit.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .candidates import from_cells, from_tree


class Pairs(NamedTuple):
    """The points (P,) of queries ``first .. last - 1``, by query, then squared distance, then point."""

    first: int
    last: int
    query: Tensor
    point: Tensor

    def keep(self, mask: Tensor) -> "Pairs":
        """The pairs where ``mask`` (P,) is True."""
        return Pairs(self.first, self.last, self.query[mask], self.point[mask])


def squared_distance(points: Tensor, point: Tensor | slice, queries: Tensor, query: Tensor | int) -> Tensor:
    """Of ``points[point]`` and ``queries[query]``, which broadcast; axis by axis, so that all devices round alike."""
    total = torch.zeros((), dtype=points.dtype, device=points.device)
    for p, q in zip(points.unbind(1), queries.unbind(1), strict=True):
        difference = p[point] - q[query]
        total = total + difference * difference
    return total


def within(
    points: Tensor, queries: Tensor, limit: Tensor, how: Literal["tree", "cells"] | None = None
) -> Iterator[Pairs]:
    """The points whose squared distance to a query is at most the query's ``limit``, some queries at a time.

    Args:
        points: (n, d) float64, n >= 1.
        queries: (m, d) float64, on the same device.
        limit: (m,) float64, squared distances.
        how: A tree (the CPU's own) or a grid of cells (any device); the answer is the same.
    """
    if queries.shape[0] == 0:
        return
    candidates = from_tree if how == "tree" or (how is None and points.device.type == "cpu") else from_cells
    for first, last, query, point in candidates(points, queries, float(limit.amax().sqrt())):
        squared = squared_distance(points, point, queries, query)
        near = squared <= limit[query]
        query, point, squared = query[near], point[near], squared[near]
        order = torch.argsort(point)
        for by in (squared, query):  # the last sort is the outermost
            order = order[torch.argsort(by[order], stable=True)]
        yield Pairs(first, last, query[order], point[order])


def first_of_each(pairs: Pairs, count: int) -> tuple[Tensor, Tensor]:
    """Which of the queries have at least ``count`` points, bool (q,), and their first ones, int64 (True, count)."""
    counts = torch.bincount(pairs.query - pairs.first, minlength=pairs.last - pairs.first)
    start = torch.cumsum(counts, 0) - counts
    enough = counts >= count
    return enough, pairs.point[start[enough][:, None] + torch.arange(count, device=start.device)]
