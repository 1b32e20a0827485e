"""Checked point clouds: coordinates as float64, and the bounds of each cloud of a batch."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...arguments import check_shape
from ...errors import GraphError
from ...graph.advice import no_positions
from ...graph.deferred.places import counts
from ..arguments import number

_LARGEST = 1e150  # squares of larger coordinates overflow float64
_SMALLEST = 1e-130  # squares of the differences of smaller ones lose bits, or are 0


class Cloud(NamedTuple):
    """One cloud of a batch: its number, and its half-open ranges of points and of queries."""

    number: int
    point: int
    last_point: int
    query: int
    last_query: int


def coordinates(pos: object, argument: str) -> Tensor:
    """(N, d) coordinates in float64, detached, on the CPU or a CUDA device.

    NaN and infinity are refused, with their row.

    Coordinates that are all tiny are refused too, unless all are 0: distances are compared by their
    squares.

    A tensor, a numpy array or nested numbers.
    """
    if not isinstance(pos, Tensor):
        if hasattr(pos, "pos"):
            raise GraphError(no_positions(pos, argument))
        pos = torch.from_numpy(np.array(pos, order="C"))
    check_axes(pos, argument)
    if pos.device.type not in ("cpu", "cuda"):
        pos = pos.cpu()
    place = pos.detach().to(torch.float64)
    refuse_extreme([place], argument)
    return place


def check_axes(pos: Tensor, argument: str) -> None:
    """Refuse a tensor that is not (N, d) with d >= 1."""
    check_shape(pos, argument, ("N", "d"), "one coordinate per point is pos[:, None]", GraphError)
    if pos.shape[1] == 0:
        raise GraphError(f"{argument} must have at least one axis, got {tuple(pos.shape)}")


def refuse_extreme(slices: Iterable[Tensor], argument: str) -> None:
    """Refuse coordinates whose squared distances float64 cannot hold.

    The slices are float64 (n, d), all rows in order.
    """
    rows = 0
    refused = 0
    extent = 0.0
    first = ""
    for place in slices:
        size = place.abs()
        bad = torch.nonzero(~(size <= _LARGEST).all(1)).flatten()
        if bad.numel() and not refused:
            first = f"{tuple(place[bad[0]].tolist())} in row {rows + int(bad[0])}"
        rows = rows + place.shape[0]
        refused = refused + bad.numel()
        if size.numel():
            extent = max(extent, float(size.amax()))
    if refused:
        raise GraphError(
            f"{argument} must be finite (and at most {_LARGEST:g} in size), got {first}; "
            f"{refused} of {rows} rows are not: drop them first"
        )
    if 0 < extent < _SMALLEST:
        raise GraphError(
            f"{argument} must reach {_SMALLEST:g} in size, got {extent:g} at most: squares of "
            "such distances are 0 in float64; use smaller units of length"
        )


def device_of(pos: object) -> torch.device:
    """The device of a tensor; the CPU for arrays and lists."""
    if isinstance(pos, Tensor):
        return pos.device
    return torch.device("cpu")


def _bounds(
    batch: object,
    rows: int,
    argument: str,
) -> dict[int, tuple[int, int]]:
    """The range of rows of every cloud that is not empty; one cloud without a batch."""
    sizes = counts(batch, rows, argument)
    ends = accumulate(sizes.values())
    return {
        cloud: (end - size, end) for (cloud, size), end in zip(sizes.items(), ends, strict=True)
    }


def clouds(
    points: Tensor,
    queries: Tensor | None,
    batch: Tensor | None,
    queries_batch: Tensor | None,
) -> Iterator[Cloud]:
    """The clouds that have queries, in order; a missing number is an empty cloud."""
    if queries is None:
        if queries_batch is not None:
            raise GraphError(
                "queries_batch needs queries, got none; the clouds of the points are batch"
            )
    elif (batch is None) != (queries_batch is None):
        raise GraphError(
            "with queries, give both batch and queries_batch, or neither: a query reads its own "
            "cloud"
        )
    points_of = _bounds(batch, len(points), "batch")
    queries_of = points_of
    if queries is not None:
        queries_of = _bounds(queries_batch, len(queries), "queries_batch")
    return (
        Cloud(number, *points_of.get(number, (0, 0)), *bounds)
        for number, bounds in queries_of.items()
    )


def parts(points: Tensor, queries: Tensor, cloud: Cloud) -> tuple[Tensor, Tensor]:
    """The points and the queries of a cloud; one tensor if they are the same."""
    near = points[cloud.point : cloud.last_point]
    if queries is points:
        return near, near
    return near, queries[cloud.query : cloud.last_query]


def lengths(points: Tensor, batch: Tensor | None) -> Tensor:
    """Number of points of each cloud that is not empty, int64 (C,), on the points' device."""
    sizes = [size for size in counts(batch, len(points)).values() if size]
    return torch.tensor(sizes, dtype=torch.int64, device=points.device)


def length(value: object, argument: str) -> float:
    """``value`` as a length above 0 in the units of ``pos``, else an error."""
    return number(
        value, argument, "one length > 0 in the units of pos", lambda side: 0 < side < _LARGEST
    )
