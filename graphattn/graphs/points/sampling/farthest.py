"""Farthest point sampling: a few points spread over a cloud, exactly, on any device."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....errors import GraphError
from ....graph.modes import outside_modes
from ...arguments import number, one_of, whole
from ..clouds import clouds, coordinates, device_of
from ..curves import curve_order
from ..search.balls import squared_distance

_BLOCK = 128  # points whose bounding box is tested together


@outside_modes
def farthest_points(
    pos: Tensor | np.ndarray,
    count: int | None = None,
    *,
    ratio: float | None = None,
    start: int | Literal["outermost"] = 0,
    batch: Tensor | None = None,
) -> Tensor:
    r"""Farthest point sampling: each point is the farthest from all chosen before it.

    .. math:: s_{i + 1} = \operatorname{argmax}_{s} \min_{j \le i} \|p_s - p_{s_j}\|^2

    Distances are compared in float64; of equally far points the lowest index wins, and no point is
    chosen twice. The points are the same on the CPU and on the GPU.

    Args:
        pos: (N, d) floating point coordinates, a tensor or a numpy array; any d.
        count: Points to choose from every cloud; this or ``ratio``.
        ratio: The fraction to choose, in (0, 1]: ``ceil(ratio * n)`` of a cloud of n points.
        start: The first point of every cloud, counted within the cloud; or "outermost", the one
            farthest from the cloud's mean, so that the choice does not depend on the order of the
            points.
        batch: (N,) cloud of every point, sorted; every cloud is sampled separately.
    Returns:
        int64 (M,) indices into ``pos`` on its device, in the order of their choice, cloud after
        cloud. To pool, use ``knn(pos, k, queries=pos[chosen], batch=batch, queries_batch=batch[chosen])``; to unpool,
        ``knn(pos[chosen], 3, queries=pos, ...)`` with
        :func:`~graphattn.nn.inverse_distance_bias`.
    Raises:
        GraphError: If a cloud has fewer than ``count`` points or no point ``start``, a coordinate
            is not finite, or ``batch`` is not sorted.
    Source:
        Gonzalez 1985; Qi et al. 2017 (PointNet++), section 3.2. *What differs* from PyG's ``fps``:
        the first point is not random, and if only copies of chosen points are left, those not yet
        chosen follow.
    Example:
        >>> farthest_points(torch.tensor([[0.0], [1.0], [4.0], [9.0]]), 3).tolist()
        [0, 3, 2]
    """
    if (count is None) == (ratio is None):
        raise GraphError(
            "farthest_points needs either count (points of each cloud) or ratio (fraction of each)"
        )
    first = 0
    outermost = isinstance(start, str)
    if isinstance(start, str):
        one_of(start, "start", ("outermost",))
    else:
        first = whole(start, "start")
    points = coordinates(pos, "pos")
    if count is not None:
        count = whole(count, "count")
    parts: list[_Part] = []
    for cloud in clouds(points, None, batch, None):
        here = points[cloud.point : cloud.last_point]
        n = here.shape[0]
        where = ""
        if batch is not None:
            where = f" in cloud {cloud.number}"
        if count is None:
            part = number(ratio, "ratio", "above 0 and at most 1", lambda part: 0 < part <= 1)
            wanted = math.ceil(part * n * (1 - 1e-12))  # 0.1 * 30 is above 3
        else:
            wanted = count
        if wanted > n:
            raise GraphError(
                f"count={wanted} needs as many points, got {n}{where}; use ratio for a part of "
                "each cloud"
            )
        if first >= n and wanted:
            raise GraphError(f"start must be below the number of points, got {first} of {n}{where}")
        parts.append(_Part(here, wanted, cloud.point))
    return _chosen(points, parts, first, outermost).to(device_of(pos))


class _Part(NamedTuple):
    """A cloud, the number of points to choose in it, and its first point."""

    points: Tensor
    number: int
    first: int


def _chosen(
    points: Tensor,
    parts: list[_Part],
    first: int,
    outermost: bool,
) -> Tensor:
    """The choices in all clouds, one after the other; ``first`` is the start if not outermost."""
    nonempty = [part for part in parts if part.number]
    if not nonempty:
        return torch.empty(0, dtype=torch.int64, device=points.device)
    choose = _on_device(points)
    if choose is not None:
        starts = [torch.tensor(first, device=points.device)] * len(parts)
        if outermost:
            starts = [_outermost(part.points) for part in parts]
        sizes = [len(part.points) for part in parts]
        numbers = [part.number for part in parts]
        result: Tensor = choose(points, sizes, numbers, torch.stack(starts))
        return result
    greedy = _by_blocks
    if points.is_cuda:
        greedy = _one_by_one
    chosen = []
    for part in nonempty:
        start = first
        if outermost:
            start = int(_outermost(part.points))
        chosen.append(greedy(part.points, part.number, start) + part.first)
    return torch.cat(chosen)


def _outermost(points: Tensor) -> Tensor:
    """The point farthest from the mean, int64 (); 0 of none."""
    if not len(points):
        return torch.zeros((), dtype=torch.int64, device=points.device)
    return squared_distance(points, slice(None), points.mean(0)[None], 0).argmax()


def _on_device(points: Tensor) -> Callable[..., Tensor] | None:
    """The function that chooses in one launch, where Triton runs."""
    if not points.is_cuda or torch.cuda.get_device_capability(points.device) < (8, 0):
        return None
    try:
        from .triton import choose  # triton takes a second
    except ModuleNotFoundError:
        return None
    return choose


def _one_by_one(points: Tensor, count: int, start: int) -> Tensor:
    """All distances for every choice: O(N) operations each, without synchronising with the host."""
    chosen = torch.empty(count, dtype=torch.int64, device=points.device)
    current = torch.full((1,), start, dtype=torch.int64, device=points.device)
    least = torch.full(points.shape[:1], torch.inf, dtype=torch.float64, device=points.device)
    for i in range(count):
        chosen[i : i + 1] = current
        least = torch.minimum(least, squared_distance(points, slice(None), points, current))
        least[current] = -1.0  # for good
        current = least.argmax(0, keepdim=True)  # the first of equal ones
    return chosen


def _by_blocks(points: Tensor, count: int, start: int) -> Tensor:
    """Choices of :func:`_one_by_one`; blocks of points that are all nearer to an earlier choice are skipped."""
    try:
        from .blocks import choose  # numba takes half a second
    except ModuleNotFoundError:
        return _one_by_one(points, count, start)
    n = points.shape[0]
    order = np.pad(curve_order(points[:, :16]).numpy(), (0, -n % _BLOCK), mode="edge")
    place = np.ascontiguousarray(points.double().numpy()[order].T)
    place = place.reshape(points.shape[1], -1, _BLOCK)
    row = np.empty(n, np.int64)
    row[order[:n]] = np.arange(n)
    return torch.from_numpy(choose(place, order.reshape(-1, _BLOCK), row, count, start))
