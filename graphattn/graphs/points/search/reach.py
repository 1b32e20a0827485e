"""Warnings about a search for neighbours: a length that joins nothing or everything, sources
that no target reads, and positions that are too coarse for their neighbours.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import warn
from ....graph import AttentionGraph
from ..clouds import Cloud

_FEW = 8  # points of which none may have a neighbour
_ALL = 64  # points that may all be neighbours
_MOST_IMAGES = 2_000  # neighbours of a point in a cell that repeats: a ball of 8 spacings
_PROBES = 64  # targets that need not read all sources, if there are fewer
_COARSE = 1 / 32  # rounding to the length of an edge, where one edge in a hundred is another one
_SOME = 1_024  # edges that are measured
_EPSILON = {
    name: torch.finfo(getattr(torch, name)).eps for name in ("float32", "float16", "bfloat16")
}


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
        _warn_of_units(f"r={r:g} joins no two of {_counted(points)}", "r")
    elif graph.images is not None and joined > _MOST_IMAGES * len(queries):
        mean = joined / len(queries)
        _warn_of_units(f"r={r:g} joins a point to {mean:,.0f} images of points on average", "r")
    elif graph.images is None and joined == pairs > 0 and len(points) > _ALL * len(clouds):
        _warn_of_units(f"r={r:g} joins all of {_counted(points)}", "r")


def warn_of_unread(graph: AttentionGraph, r: float, points: Tensor, queries: Tensor) -> None:
    """Warn in one line of sources that no target reads; a few targets may be probes."""
    if queries is points or len(queries) < _PROBES or not graph.num_edges:
        return
    if bool((torch.bincount(graph.source, minlength=len(points)) == 0).any()):
        warn(
            f"r={r:g} leaves sources that no target reads (graph.out_degree is 0 there): a wider r "
            "reads more, and knn(queries, k, queries=pos).reverse() all"
        )


def warn_of_degrees(points: Tensor) -> None:
    """Warn in one line if positions (N, 2) look like latitudes and longitudes of the whole globe."""
    if points.shape[1] != 2 or len(points) < _FEW:
        return
    low, high = torch.aminmax(points, dim=0)
    for lat, lon in ((0, 1), (1, 0)):
        is_lat = -90 <= low[lat] < -60 and 60 < high[lat] <= 90
        is_lon = low[lon] >= -180 and high[lon] <= 360 and high[lon] - low[lon] > 300
        if is_lat and is_lon:
            warn(
                "pos looks like degrees of latitude and longitude, whose distances are not those of "
                "the sphere; pass ga.graphs.on_sphere(lat, lon)"
            )
            return


def warn_of_rounding(
    graph: AttentionGraph,
    points: Tensor,
    queries: Tensor,
    *given: Tensor | np.ndarray | None,
) -> None:
    """Warn in one line if rounding of positions far from the origin decides which are neighbours.

    Args:
        graph: Edges to near points.
        points: (N, d) float64, of the sources.
        queries: (M, d) float64, of the targets.
        *given: The positions in the dtypes that they were given in.
    """
    coarse = _coarsest(given)
    if not coarse or not graph.num_edges:
        return
    step = graph.num_edges // _SOME | 1
    source = points[graph.source[::step].to(points.device)]
    target = queries[graph.target[::step].to(points.device)]
    length = (source - target).norm(dim=1)
    apart = length > 0
    are_whole = bool((source == source.round()).all())  # numbers of cells are exact
    if are_whole or not bool(apart.any()):
        return
    size = torch.maximum(source.abs(), target.abs()).amax(1)
    shares = _rounding(size, coarse) / length
    if float(shares[apart].median()) > _COARSE:
        _warn_of_coarse(size.amax(), coarse, "have other neighbours")


def warn_of_coarse_cells(points: Tensor, side: float, *given: Tensor | np.ndarray) -> None:
    """Warn in one line if rounding of positions decides in which cell of a grid they are.

    Args:
        points: (N, d) float64.
        side: Of a cell.
        *given: The positions in the dtype that they were given in.
    """
    coarse = _coarsest(given)
    if not coarse or not len(points):
        return
    size = points.abs().amax()
    if float(_rounding(size, coarse)) > side * _COARSE and bool((points != points.round()).any()):
        _warn_of_coarse(size, coarse, "lie in other cells")


def _coarsest(given: Iterable[Any]) -> str:
    """The dtype of some positions that rounds most; "" if all are float64."""
    names = {str(pos.dtype).removeprefix("torch.") for pos in given if hasattr(pos, "dtype")}
    return max(names & set(_EPSILON), key=_EPSILON.__getitem__, default="")


def _rounding(size: Tensor, dtype: str) -> Tensor:
    """The distance of neighbouring numbers of these sizes."""
    return _EPSILON[dtype] * torch.exp2(torch.log2(size).floor())


def _warn_of_coarse(size: Tensor, dtype: str, what: str) -> None:
    rounding = float(_rounding(size, dtype))
    warn(
        f"pos lies {float(size):.1g} from the origin, where numbers of {dtype} are {rounding:.2g} "
        f"apart: points {what} than before they were rounded. Pass pos in float64, or subtract "
        "pos.mean(0) before .float()"
    )


def warn_of_balls(graph: AttentionGraph, r: float, points: Tensor, queries: Tensor) -> None:
    """Warn in one line if no ball has another point than its centre."""
    joined = graph.num_edges
    if queries is points:
        joined = int((graph.source != graph.target).sum())
    if joined == 0 and r > 0 and len(points) >= _FEW and len(queries):
        _warn_of_units(f"r={r:g} joins no two of {_counted(points)}", "r")


def warn_of_windows(ids: Tensor, window: object, points: Tensor) -> None:
    """Warn in one line if no two points share a window; ``ids`` are the windows, without gaps."""
    if len(ids) >= _FEW and int(ids.amax()) + 1 == len(ids):
        _warn_of_units(f"window={window} joins no two of {_counted(points)}", "window")


def _counted(points: Tensor) -> str:
    low, high = torch.aminmax(points, dim=0)
    sides = " x ".join(f"{side:.3g}" for side in (high - low).tolist())
    return f"{len(points):,} points, which lie in a box of {sides}"


def _warn_of_units(words: str, argument: str) -> None:
    warn(f"{words}: is {argument} in the units of pos?")
