"""A length that joins nothing or everything: it may be in other units than the positions are."""

import warnings

import torch
from torch import Tensor

from ...graph import AttentionGraph
from .clouds import Cloud

_FEW = 8  # points of which none may have a neighbour
_ALL = 64  # points that may all be neighbours
_MOST_IMAGES = 2_000  # neighbours of a point in a cell that repeats: a ball of 8 spacings


def warn_of_reach(
    graph: AttentionGraph,
    r: float,
    points: Tensor,
    queries: Tensor,
    clouds: list[Cloud],
    loops: int,
) -> None:
    """Warn in one line if a radius seems to be in other units than the positions.

    Args:
        graph: What the radius joined.
        r: The radius.
        points: (N, d), of the sources.
        queries: (M, d), of the targets; the same tensor where these are the sources.
        clouds: That are searched.
        loops: Number of edges from a point to itself that were asked for.
    """
    joined = graph.num_edges - loops
    pairs = sum((c.last_query - c.query) * (c.last_point - c.point) for c in clouds)
    if queries is points:
        pairs -= len(points)
    if joined == 0 and pairs and r > 0 and len(points) >= _FEW:
        _warn(f"r={r:g} joins no two of {_counted(points)}", "r", 8)
    elif graph.images is not None and joined > _MOST_IMAGES * len(queries):
        mean = joined / len(queries)
        _warn(f"r={r:g} joins a point to {mean:,.0f} images of points on average", "r", 8)
    elif graph.images is None and joined == pairs > 0 and len(points) > _ALL * len(clouds):
        _warn(f"r={r:g} joins all of {_counted(points)}", "r", 8)


def warn_of_balls(graph: AttentionGraph, r: float, points: Tensor, queries: Tensor) -> None:
    """Warn in one line if no ball has another point than its centre."""
    joined = graph.num_edges
    if queries is points:
        joined = int((graph.source != graph.target).sum())
    if joined == 0 and r > 0 and len(points) >= _FEW and len(queries):
        _warn(f"r={r:g} joins no two of {_counted(points)}", "r", 7)


def warn_of_windows(ids: Tensor, window: object, points: Tensor) -> None:
    """Warn in one line if no two points share a window; ``ids`` are the windows, without gaps."""
    if len(ids) >= _FEW and int(ids.amax()) + 1 == len(ids):
        _warn(f"window={window} joins no two of {_counted(points)}", "window", 7)


def _counted(points: Tensor) -> str:
    low, high = torch.aminmax(points, dim=0)
    sides = " x ".join(f"{side:.3g}" for side in (high - low).tolist())
    return f"{len(points):,} points, which lie in a box of {sides}"


def _warn(words: str, argument: str, level: int) -> None:
    warnings.warn(f"{words}: is {argument} in the units of pos?", stacklevel=level)
