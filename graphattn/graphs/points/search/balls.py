"""All pairs of points within a distance, exactly, on any device.

All searches for neighbours compare by one formula, :func:`squared_distance`, so that they find the
same edges on the CPU and on the GPU, bit for bit.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ....graph.sort import sorted_keys
from ..clouds import Cloud, parts
from .candidates import Candidates, from_cells, from_tree

_TOGETHER = 1 << 16  # pairs of small clouds searched together


class NearPairs(NamedTuple):
    """The points (P,) of queries ``first .. last - 1``, by query, squared distance, and point.

    Without an order by distance they come by query, then by point.
    """

    first: int
    last: int
    query: Tensor
    point: Tensor

    def keep(self, mask: Tensor) -> "NearPairs":
        """The pairs where ``mask`` (P,) is True."""
        return NearPairs(self.first, self.last, self.query[mask], self.point[mask])


def squared_distance(
    points: Tensor,
    point: Tensor | slice,
    queries: Tensor,
    query: Tensor | int,
) -> Tensor:
    """The squared distance of ``points[point]`` and ``queries[query]``, equal on all devices.

    It is summed axis by axis.
    """
    total = torch.zeros((), dtype=points.dtype, device=points.device)
    # gathers from short rows miss fewer caches
    axes = (x.t().contiguous() for x in (points, queries))
    for p, q in zip(*axes, strict=True):
        difference = p[point] - q[query]
        total = total + difference * difference
    return total


def within(
    points: Tensor,
    queries: Tensor,
    limit: Tensor,
    method: Literal["tree", "cells"] | None = None,
    *,
    by_index: bool = False,
    clouds: Iterable[Cloud] | None = None,
) -> Iterator[NearPairs]:
    """The points whose squared distance to a query is at most its ``limit``, in chunks of queries.

    Args:
        points: (n, d) float64.
        queries: (m, d) float64, on the same device.
        limit: (m,) float64, squared distances.
        method: A tree (on the CPU only) or a grid of cells (on any device); the results are equal.
        by_index: Order the points of a query by index alone.
        clouds: Clouds that are searched separately, in order; one cloud by default.
    """
    if clouds is None:
        clouds = [Cloud(0, 0, points.shape[0], 0, queries.shape[0])]
    if method is None and points.device.type == "cpu":
        method = "tree"
    candidates = from_cells
    if method == "tree":
        candidates = from_tree
    reach = 0.0
    if limit.numel():
        reach = float(limit.amax().sqrt())
    for first, last, query, point in _together(points, queries, reach, candidates, clouds):
        squared = squared_distance(points, point, queries, query)
        near = squared <= limit[query]
        pairs = NearPairs(first, last, query[near], point[near])
        distances = None
        if not by_index:
            distances = squared[near]
        yield _ordered(pairs, points.shape[0], distances, points, queries)


def _together(
    points: Tensor,
    queries: Tensor,
    reach: float,
    candidates: Callable[[Tensor, Tensor, float], Candidates],
    clouds: Iterable[Cloud],
) -> Candidates:
    """The candidates of all clouds that have points and queries; small clouds are grouped."""
    waiting: list[tuple[int, int, Tensor, Tensor]] = []
    pairs = 0

    def joined() -> tuple[int, int, Tensor, Tensor]:
        first, last, query, point = zip(*waiting, strict=True)
        return first[0], last[-1], torch.cat(query), torch.cat(point)

    for cloud in clouds:
        if cloud.query == cloud.last_query:
            continue
        if cloud.point == cloud.last_point:
            continue
        for first, last, query, point in candidates(*parts(points, queries, cloud), reach):
            ends = first + cloud.query, last + cloud.query
            waiting.append((*ends, query + cloud.query, point + cloud.point))
            pairs += query.numel()
            if pairs > _TOGETHER:
                yield joined()
                waiting = []
                pairs = 0
    if waiting:
        yield joined()


def _ordered(
    pairs: NearPairs,
    size: int,
    squared: Tensor | None,
    points: Tensor,
    queries: Tensor,
) -> NearPairs:
    """The pairs in order, by one sort of integers that combine query, distance and point.

    The distance gets the remaining bits; pairs of a query that are equal in these are compared once
    more.
    """
    row_bits = (pairs.last - pairs.first).bit_length()
    point_bits = size.bit_length()
    bits = 0
    if squared is not None:
        bits = min(52, 63 - row_bits - point_bits)
    key = (pairs.query - pairs.first) << bits
    if squared is not None and squared.numel():
        share = squared / squared.amax().clamp(min=torch.finfo(torch.float64).tiny)
        key |= (share * (2**bits - 1)).to(torch.int64)
    key = (key << point_bits) | pairs.point
    key = sorted_keys(key)
    point = key & ((1 << point_bits) - 1)
    key = key >> point_bits
    query = (key >> bits) + pairs.first
    if squared is None:
        return NearPairs(pairs.first, pairs.last, query, point)
    same = key[1:] == key[:-1]
    if bool(same.any()):
        follows = torch.nn.functional.pad(same, (1, 0))
        precedes = torch.nn.functional.pad(same, (0, 1))
        place = torch.nonzero(follows | precedes).flatten()
        alike = key[place]
        exact = squared_distance(points, point[place], queries, query[place])
        if bool(((alike[1:] == alike[:-1]) & (exact[1:] < exact[:-1])).any()):
            order = torch.argsort(exact, stable=True)
            order = order[torch.argsort(alike[order], stable=True)]
            point[place] = point[place[order]]
    return NearPairs(pairs.first, pairs.last, query, point)


def first_of_each(pairs: NearPairs, count: int) -> tuple[Tensor, Tensor]:
    """True for queries with at least ``count`` points, bool (q,), and their first ``count``."""
    counts = torch.bincount(pairs.query - pairs.first, minlength=pairs.last - pairs.first)
    start = torch.cumsum(counts, 0) - counts
    enough = counts >= count
    return enough, pairs.point[start[enough][:, None] + torch.arange(count, device=start.device)]
