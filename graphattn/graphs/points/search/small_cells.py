"""Many small clouds in cells that repeat: all images of all clouds in one computation.

A cloud on its own takes a hundred calls of torch, a millisecond, however few its points are. Here
each target is measured against each image within reach of its cloud, for all clouds at once. The
distances are those of ``periodic``, bit for bit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ....graph.images import moved
from ..clouds import Cloud
from .periodic import SINGULAR, SLACK, Cells, in_units

_FEW_POINTS = 64  # of the largest cloud, above which a tree finds neighbours sooner
_MOST_PAIRS = 1 << 25  # that are measured
_AT_ONCE = 1 << 21  # pairs of a chunk


class ImageEdges(NamedTuple):
    """Edges by target, source and offset: numbers (E,) of their nodes, offsets (E, d), and numbers
    (E,) of their clouds.
    """

    target: Tensor
    source: Tensor
    offsets: Tensor
    cloud: Tensor


class _Crowds(NamedTuple):
    """Clouds side by side: numbers of their cells (B,), ranges of points, and axes that repeat."""

    cells: Tensor  # (B, d, d)
    inverse: Tensor  # (B, d, P)
    periodic: list[int]
    counts: Tensor  # (B,), points
    rounding: Tensor  # (B,)


def together(
    lattices: Cells,
    clouds: Sequence[Cloud],
    points: Tensor,
    reach: float,
    *,
    loops: bool,
) -> ImageEdges | None:
    """All images within ``reach`` of the points of small clouds; None where clouds are searched
    sooner one by one.

    Args:
        lattices: The cells of the clouds.
        clouds: The clouds, whose points are their targets, side by side in ``points``.
        points: (N, d) float64, on the CPU.
        reach: A distance.
        loops: True if points read themselves, too.
    """
    crowds = _crowds(lattices, clouds, points)
    if crowds is None:
        return None
    cloud = torch.repeat_interleave(crowds.counts)
    fraction = in_units(points, crowds.inverse.index_select(0, cloud))
    home = fraction.floor()
    fraction = fraction - home
    home_steps = torch.zeros(points.shape, dtype=torch.int64)
    home_steps[:, crowds.periodic] = home.to(torch.int64)
    place = points - moved(home_steps, crowds.cells, cloud)
    margin = crowds.inverse.norm(dim=1)
    margin = margin * ((reach + crowds.rounding) * SLACK)[:, None]
    low = _bounds(fraction, cloud, crowds, "amin") - margin
    high = _bounds(fraction, cloud, crowds, "amax") + margin
    first = (low - _bounds(fraction, cloud, crowds, "amax")).ceil()
    numbers = (high - _bounds(fraction, cloud, crowds, "amin")).floor() - first + 1
    images = numbers.clamp(min=0).prod(1) * crowds.counts
    if float((images * crowds.counts).sum()) > _MOST_PAIRS:
        return None
    point = torch.arange(len(points))
    steps = torch.zeros(len(points), points.shape[1], dtype=torch.int64)
    for column, axis in enumerate(crowds.periodic):
        number = numbers[cloud[point], column].long().clamp(min=0)
        row = torch.repeat_interleave(number)
        start = torch.cumsum(number, 0) - number
        point = point[row]
        step = torch.arange(len(row)) - start[row] + first[cloud[point], column].long()
        steps = steps[row]
        steps[:, axis] = step
        there = fraction[point, column] + step
        near = (there >= low[cloud[point], column]) & (there <= high[cloud[point], column])
        point = point[near]
        steps = steps[near]
    shift = moved(steps, crowds.cells, cloud[point])
    target, copy = _near(place, point, shift, cloud, crowds, reach)
    source = point[copy]
    steps = steps[copy]
    if not loops:
        other = (target != source) | (steps != 0).any(1)
        target = target[other]
        source = source[other]
        steps = steps[other]
    offsets = steps + home_steps[target] - home_steps[source]
    number = torch.tensor([one.number for one in clouds])
    return ImageEdges(target, source, offsets, number[cloud[target]])


def _crowds(lattices: Cells, clouds: Sequence[Cloud], points: Tensor) -> _Crowds | None:
    """The clouds as one; None for few or large ones, or cells that repeat along other axes."""
    if len(clouds) < 2:
        return None
    numbers = [cloud.last_point - cloud.point for cloud in clouds]
    if max(numbers) > _FEW_POINTS or sum(numbers) != len(points):
        return None
    flags = lattices.periodic
    if len(flags) > 1:
        flags = flags[[cloud.number for cloud in clouds]]
    if bool((flags != flags[0]).any()):
        return None
    periodic = torch.nonzero(flags[0]).flatten().tolist()
    cells = lattices.cells
    if len(cells) > 1:
        cells = cells[[cloud.number for cloud in clouds]]
    else:
        cells = cells.expand(len(clouds), -1, -1)
    vectors = cells[:, periodic]
    lengths = vectors.norm(dim=2, keepdim=True)
    if not periodic or not bool((lengths > 0).all()):
        return None
    values = torch.linalg.svdvals(vectors / lengths)
    if float(values[:, -1].amin()) < SINGULAR:
        return None  # one by one they are refused by name
    counts = torch.tensor(numbers)
    largest = cells.flatten(1).abs().amax(1)
    cloud = torch.repeat_interleave(counts)
    largest = largest.scatter_reduce(0, cloud, points.abs().amax(1), "amax")
    rounding = 2.0**-46 * largest
    return _Crowds(cells, torch.linalg.pinv(vectors), periodic, counts, rounding)


def _bounds(fraction: Tensor, cloud: Tensor, crowds: _Crowds, reduction: str) -> Tensor:
    """(B, P): the least or largest coordinate of each cloud in units of its vectors."""
    index = cloud[:, None].expand_as(fraction)
    result = fraction.new_zeros(len(crowds.counts), fraction.shape[1])
    return result.scatter_reduce(0, index, fraction, reduction, include_self=False)


def _near(
    place: Tensor,
    point: Tensor,
    shift: Tensor,
    cloud: Tensor,
    crowds: _Crowds,
    reach: float,
) -> tuple[Tensor, Tensor]:
    """Targets and images (n,) within reach of each other, by target, then by image."""
    copies = torch.bincount(cloud[point], minlength=len(crowds.counts))
    first = torch.cumsum(copies, 0) - copies
    per_target = copies[cloud]
    ends = torch.cumsum(per_target, 0)
    targets = []
    images = []
    begin = 0
    axes = list(zip(place.t().contiguous(), shift.t().contiguous(), strict=True))
    while begin < len(place):
        before = 0
        if begin:
            before = int(ends[begin - 1])
        last = int(torch.searchsorted(ends, before + _AT_ONCE, right=True))
        end = max(begin + 1, last)
        number = per_target[begin:end]
        target = torch.repeat_interleave(number)
        start = torch.cumsum(number, 0) - number
        copy = torch.arange(len(target)) - start[target]
        target += begin
        copy += first[cloud[target]]
        source = point[copy]
        total = torch.zeros((), dtype=torch.float64)
        for coordinate, step in axes:
            difference = coordinate[source] - coordinate[target]
            difference = difference + step[copy]
            total = total + difference * difference
        near = total <= reach * reach
        targets.append(target[near])
        images.append(copy[near])
        begin = end
    return torch.cat(targets), torch.cat(images)
