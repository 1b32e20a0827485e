"""The nearest points, exactly: by float64 squared distance, ties by the lowest index.

A search proposes a few candidates for each query and a bound that all other points exceed.
Candidates of a k-d tree are final if their distances differ clearly; others are compared once more.
If candidates do not decide (mostly ties), all points within reach of the last candidate are
compared.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ....graph.sort import sorted_keys
from ..curve_keys import curve_key
from .balls import first_of_each, squared_distance, within

# queries, count -> candidates (m, count), squared bound (m,), and the rows that may not be in order
Proposal = Callable[[Tensor, int], tuple[Tensor, Tensor, Tensor | slice]]

_ROWS = 1 << 16
_FEW = 1 << 8
_SCATTERED = 1 << 14  # number of queries from which sorting pays
_CURVE_BITS = 7
_ROUNDING = 1 + 1e-9  # far above the rounding of any distance
_SAMPLES = 64
_PRODUCTS = {"cpu": 1 << 23, "cuda": 1 << 28}  # elements of a table of dot products
_TREE_AXES = 12  # beyond these a tree prunes little
_GRID_AXES = 3  # and a grid


def nearest(
    points: Tensor,
    queries: Tensor,
    count: int,
    method: Literal["tree", "products", "balls"] | None = None,
) -> Tensor:
    """The ``count`` points nearest to each query, by (squared distance, index): int64 (m, count).

    Args:
        points: (n, d) float64, n >= count >= 1.
        queries: (m, d) float64, on the same device.
        method: The search to use; all give the same result. By default a k-d tree on the CPU,
            growing balls on the GPU, and dot products for many axes.
    """
    if method is None:
        method = _usual(points)
    place, where = _distinct(queries)
    if method == "balls":
        return _balls(points, place, count)[where]
    if method == "tree":
        if place.shape[0] > _SCATTERED:
            order = _along_a_curve(place)
            place = place[order]
            where = torch.argsort(order)[where]
        propose = _tree(points)
        rows = _ROWS
    else:
        propose = _products(points)
        rows = max(1, _PRODUCTS[points.device.type] // points.shape[0])
    parts = []
    for chunk in place.split(rows):
        candidates, bound, rest = propose(chunk, min(count + 1, points.shape[0]))
        result = candidates[:, :count]
        if isinstance(rest, slice) or rest.numel():
            result[rest] = _compared(points, chunk[rest], candidates[rest], bound[rest], count)
        parts.append(result)
    if len(parts) == 1:
        return parts[0][where]
    return torch.cat(parts)[where]


def self_first(neighbours: Tensor, targets: Tensor) -> Tensor:
    """Move ``targets`` (n,) to the front, or replace the farthest; int64 (n, K), inplace."""
    # another point at the same position may come first
    rows = torch.nonzero(neighbours[:, 0] != targets).flatten()
    if rows.numel():
        others = neighbours[rows] != targets[rows, None]
        others[others.all(1), -1] = False  # drop the farthest
        rest = neighbours[rows][others].view(rows.numel(), neighbours.shape[1] - 1)
        neighbours[rows] = torch.cat((targets[rows, None], rest), 1)
    return neighbours


def _usual(points: Tensor) -> Literal["tree", "products", "balls"]:
    """The search for points on their device."""
    if points.is_cuda:
        if points.shape[1] <= _GRID_AXES:
            return "balls"
    elif points.shape[1] <= _TREE_AXES:
        return "tree"
    return "products"


def _compared(
    points: Tensor,
    queries: Tensor,
    candidates: Tensor,
    bound: Tensor,
    count: int,
) -> Tensor:
    """The nearest of the candidates, or of all points where the candidates do not decide."""
    candidates = torch.sort(candidates, dim=1).values
    row = torch.arange(queries.shape[0], device=points.device)[:, None]
    squared, order = torch.sort(
        squared_distance(points, candidates, queries, row), dim=1, stable=True
    )
    result = torch.gather(candidates, 1, order)[:, :count]
    reach = squared[:, count - 1]
    rest = torch.nonzero(reach >= bound).flatten()
    if rest.numel():
        result[rest] = _reached(points, queries[rest], reach[rest], count)
    return result


def _distinct(queries: Tensor) -> tuple[Tensor, Tensor | slice]:
    """The distinct rows, and the index of each row among them, so that equal queries share work.

    A tree cannot split equal points, so that each search would read them all.
    """
    if queries.shape[0] <= _FEW:
        return queries, slice(None)
    factors = (torch.arange(queries.shape[1], device=queries.device) + 0.618).sqrt()
    mixed = sorted_keys((queries * factors).sum(1))
    if int(torch.count_nonzero(mixed[1:] == mixed[:-1])) <= mixed.numel() // 64:
        return queries, slice(None)
    return torch.unique(queries, dim=0, return_inverse=True)


def _along_a_curve(place: Tensor) -> Tensor:
    """An order in which consecutive points are near, so that a tree reads from the caches."""
    near = place[:, :3]
    low = near.amin(0)
    high = near.amax(0)
    span = float((high - low).amax())
    if span == 0:
        span = 1.0
    cells = (near - low) / span * (2**_CURVE_BITS - 1)
    return torch.argsort(curve_key(cells.to(torch.int64), "z", _CURVE_BITS))


def _tree(points: Tensor) -> Proposal:
    from scipy.spatial import cKDTree  # slow to import

    tree = cKDTree(points.numpy())

    def propose(queries: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        if queries.shape[0] > 2048:
            workers = -1
        else:
            workers = 1
        distance, index = tree.query(queries.numpy(), range(1, count + 1), workers=workers)
        # the tree rounds differently
        close = (distance[:, 1:] <= distance[:, :-1] * _ROUNDING).any(1)
        bound = torch.from_numpy(distance[:, -1] ** 2 / _ROUNDING)
        if count == points.shape[0]:
            bound.fill_(torch.inf)
        return torch.from_numpy(index), bound, torch.from_numpy(close.nonzero()[0])

    return propose


def _products(points: Tensor) -> Proposal:
    centre = points.mean(0)
    moved = points - centre
    norm = (moved**2).sum(1)
    # Error of |p|^2 + |q|^2 - 2 p.q against the difference formula, in units of (|p| + |q|)^2;
    # generous.
    error = (4 * points.shape[1] + 64) * 2.0**-53

    def propose(queries: Tensor, count: int) -> tuple[Tensor, Tensor, slice]:
        centred = queries - centre
        centred_norm = (centred**2).sum(1)
        estimate, index = (norm - 2 * (centred @ moved.T)).topk(count, dim=1, largest=False)
        bound = (
            estimate[:, -1] + centred_norm - error * (norm.amax().sqrt() + centred_norm.sqrt()) ** 2
        )
        if count == points.shape[0]:
            bound.fill_(torch.inf)
        return index, bound, slice(None)

    return propose


def _reached(points: Tensor, queries: Tensor, reach: Tensor, count: int) -> Tensor:
    """The result for queries with at least ``count`` points within the squared ``reach``."""
    result = torch.empty(queries.shape[0], count, dtype=torch.int64, device=points.device)
    octave = torch.frexp(reach).exponent  # a grid of cells fits one order of magnitude of reach
    for exponent in torch.unique(octave).tolist():
        rows = torch.nonzero(octave == exponent).flatten()
        for pairs in within(points, queries[rows], reach[rows]):
            result[rows[pairs.first : pairs.last]] = first_of_each(pairs, count)[1]
    return result


def _balls(points: Tensor, queries: Tensor, count: int) -> Tensor:
    """Balls that grow until they hold enough points, nearer than all points outside."""
    result = torch.empty(queries.shape[0], count, dtype=torch.int64, device=points.device)
    radius = _first_radius(points, queries, count)
    left = torch.arange(queries.shape[0], device=points.device)
    while left.numel():
        waiting = []
        limit = torch.full(left.shape, radius**2, dtype=torch.float64, device=points.device)
        for pairs in within(points, queries[left], limit, "cells"):
            rows = left[pairs.first : pairs.last]
            enough, ids = first_of_each(pairs, count)
            result[rows[enough]] = ids
            waiting.append(rows[~enough])
        before = left.numel()
        left = torch.cat(waiting)
        radius *= 1.5
        if left.numel() == before:  # no point was near: leap the gap
            radius = max(radius, _first_radius(points, queries[left], count))
    return result


def _first_radius(points: Tensor, queries: Tensor, count: int) -> float:
    """A radius that is somewhat small for most queries, from the exact result for a few of them."""
    sample = torch.linspace(0, queries.shape[0] - 1, _SAMPLES).long().unique().tolist()
    rows = (squared_distance(points, slice(None), queries, row) for row in sample)
    reach = torch.cat([squared.topk(count, largest=False).values[-1:] for squared in rows])
    positive = reach[reach > 0]
    if positive.numel():
        return float(positive.amin().sqrt()) * 1.001
    return 1.0
