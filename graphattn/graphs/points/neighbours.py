"""Points in space: a point reads the points near it."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.expression import builder
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ...graph.pattern import sizable
from ..arguments import call, flag, number, one_of, whole
from .balls import within
from .clouds import clouds, coordinates, device_of, parts
from .nearest import nearest


@sizable
@builder
def knn(
    pos: Tensor | np.ndarray,
    k: int,
    *,
    dilation: int = 1,
    queries: Tensor | np.ndarray | None = None,
    batch: Tensor | None = None,
    queries_batch: Tensor | None = None,
    include_self: bool = False,
    clamp: bool = False,
) -> AttentionGraph:
    r"""Every point reads its ``k`` nearest points, or every ``dilation``-th of more.

    .. math:: \mathcal{N}(t) = \{ s_0, s_d, \dots, s_{(k - 1) d} \}, \quad
        s_0, s_1, \dots \text{ the sources } s \ne t \text{ by } (\|p_s - p_t\|^2, s)

    Distances are compared in float64 for any dtype; of equally far points the lowest index wins.
    The edges are the same on the CPU and on the GPU.

    Args:
        pos: (N, d) floating point coordinates of the sources, a tensor or a numpy array; any d.
        k: Sources of every target, exactly.
        dilation: d, the nearest, then every d-th further one.
        queries: (M, d) coordinates of the targets, where these are other points; ``pos`` itself by
            default.
        batch: (N,) cloud of every point, sorted; a point reads its own cloud only. A missing number
            is an empty cloud.
        queries_batch: (M,) the same for ``queries``.
        include_self: Count the target itself as one of the ``k``; its self-loop comes first, then
            ``k - 1`` others. By default a point does not read itself; other points at the same
            place are ordinary neighbours.
        clamp: Let targets in a cloud of too few points read all of them, instead of an error.
    Returns:
        Listed edges on the device of ``pos``, by target, then by distance (of equal ones, by
        index).
    Raises:
        GraphError: If a cloud has too few points, a coordinate is not finite (the row is named), or
            ``batch`` is not sorted.
    Source:
        *What differs* from PyG's ``knn_graph``: ties go to the lowest index, copies of points never
        lose an edge, and too few points are an error. Its ``loop=True`` lets the target compete;
        ``include_self`` always keeps it. ``dilation`` is Li et al. 2019 (DeepGCNs), whose
        neighbours include the point itself (``include_self=True``).
    Example:
        >>> line = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
        >>> print(knn(line, 2))
        AttentionGraph(knn(k=2): 4 nodes, 8 edges, density 0.5, listed)
        · █ █ ·
        █ · █ ·
        █ █ · ·
        · █ █ ·
    """
    k = whole(k, "k", 1)
    include_self = flag(include_self, "include_self")
    clamp = flag(clamp, "clamp")
    step = whole(dilation, "dilation", 1)
    points, targets, query_points, size = given(pos, queries, include_self)
    needed = (k - 1) * step + 1
    skipped = 0  # the target itself, which is nearest to itself
    if queries is None and not include_self:
        skipped = 1
        needed += 1
    edges = []
    for cloud in clouds(points, targets, batch, queries_batch):
        num_points = cloud.last_point - cloud.point
        if cloud.query == cloud.last_query:
            continue
        if num_points < needed and not clamp:
            where = ""
            if batch is not None:
                where = f" in cloud {cloud.number}"
            hint = "use a smaller k, or clamp=True to read all of them"
            if points.shape[1] > len(points):
                hint = f"the rows of pos are points, got {tuple(points.shape)}: pass pos.T"
            asked = f"k={k}"
            if step > 1:
                asked = f"k={k} with dilation={step}"
            raise GraphError(
                f"{asked} needs at least {needed} points, got {num_points}{where}; {hint}"
            )
        if num_points == 0:
            continue
        neighbours = nearest(*parts(points, query_points, cloud), min(needed, num_points))
        if queries is None:
            node = torch.arange(neighbours.shape[0], device=neighbours.device)
            neighbours = self_first(neighbours, node)[:, skipped:]
        neighbours = neighbours[:, ::step]
        target = torch.arange(cloud.query, cloud.last_query, device=neighbours.device)
        target = target.repeat_interleave(neighbours.shape[1])
        edges.append((target, neighbours.flatten() + cloud.point))
    name = call("knn", k=k, dilation=step, include_self=include_self, clamp=clamp)
    return graph_of(edges, size, device_of(pos), name)


@sizable
@builder
def radius(
    pos: Tensor | np.ndarray,
    r: float,
    *,
    max_neighbours: int | None = None,
    overflow: Literal["error", "nearest"] = "error",
    queries: Tensor | np.ndarray | None = None,
    batch: Tensor | None = None,
    queries_batch: Tensor | None = None,
    include_self: bool = False,
) -> AttentionGraph:
    r"""Every point reads the points within a distance.

    .. math:: \mathcal{N}(t) = \{ s \ne t : \|p_s - p_t\|^2 \le r^2 \}

    Distances are compared in float64 for any dtype, with the border included; note that the float32
    number nearest to 0.3 is larger than 0.3. The edges are the same on the CPU and on the GPU.

    Args:
        pos: (N, d) floating point coordinates of the sources, a tensor or a numpy array; any d.
        r: The distance, in the units of ``pos``.
        max_neighbours: The most sources a target may have; no limit by default.
        overflow: Treatment of a target that has more: ``"error"``, or keep the ``"nearest"`` ones.
        queries: (M, d) coordinates of the targets, where these are other points; ``pos`` itself by
            default.
        batch: (N,) cloud of every point, sorted; a point reads its own cloud only. A missing number
            is an empty cloud.
        queries_batch: (M,) the same for ``queries``.
        include_self: True lets a point read itself.
    Returns:
        Listed edges on the device of ``pos``, by target, then by distance, then by index. Targets
        may have no sources.
    Raises:
        GraphError: If a target has more than ``max_neighbours`` sources (and ``overflow="error"``),
            the edges would take more than 4 GiB, a coordinate is not finite (the row is named), or
            ``batch`` is not sorted.
    Source:
        *What differs* from PyG's ``radius_graph``: there is no silent limit (``max_num_neighbors``
        is 32 there).
    Example:
        >>> line = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
        >>> print(radius(line, 2.0))
        AttentionGraph(radius(r=2.0): 4 nodes, 4 edges, density 0.25, listed)
        · █ · ·
        █ · █ ·
        · █ · ·
        · · · ·
    """
    reach = distance(r)
    include_self = flag(include_self, "include_self")
    one_of(overflow, "overflow", ("error", "nearest"))
    most = max_neighbours
    if most is not None:
        most = whole(most, "max_neighbours", 1)
    elif overflow == "nearest":
        raise GraphError('overflow="nearest" needs max_neighbours, got none')
    points, targets, query_points, size = given(pos, queries, include_self)
    edges = []
    num_edges = 0
    limit = torch.full((size[0],), reach * reach, dtype=torch.float64, device=points.device)
    searched = clouds(points, targets, batch, queries_batch)
    for pairs in within(points, query_points, limit, clouds=searched):
        if queries is None and not include_self:
            pairs = pairs.keep(pairs.query != pairs.point)
        if most is not None:
            row = pairs.query - pairs.first
            counts = torch.bincount(row, minlength=pairs.last - pairs.first)
            if overflow == "error" and bool((counts > most).any()):
                raise GraphError(
                    f"max_neighbours={most} is too few: target "
                    f"{pairs.first + int(counts.argmax())} has {int(counts.max())} sources within "
                    f"r={r}; raise max_neighbours, lower r, or pass "
                    'overflow="nearest" to keep the nearest ones'
                )
            start = torch.cumsum(counts, 0) - counts
            rank = torch.arange(row.numel(), device=row.device) - start[row]
            pairs = pairs.keep(rank < most)
        num_edges += pairs.query.numel()
        refuse_over(
            16 * num_edges,
            f"the first {num_edges:,} edges of radius",
            "use a smaller r, or max_neighbours with overflow",
        )
        edges.append((pairs.query, pairs.point))
    name = call("radius", r=r, max_neighbours=most, overflow=overflow, include_self=include_self)
    return graph_of(edges, size, device_of(pos), name)


def distance(r: object) -> float:
    return number(r, "r", "a finite distance >= 0", lambda reach: 0 <= reach < 1e150)


def given(
    pos: Tensor | np.ndarray, queries: Tensor | np.ndarray | None, include_self: bool
) -> tuple[Tensor, Tensor | None, Tensor, tuple[int, int]]:
    """Points, queries if given, the targets, and the sizes (targets, sources); float64."""
    if queries is not None and include_self:
        raise GraphError(
            "include_self needs targets that are the points, got queries; leave it out"
        )
    points = coordinates(pos, "pos")
    targets = None
    query_points = points
    if queries is not None:
        targets = coordinates(queries, "queries")
        query_points = targets
    return points, targets, query_points, (query_points.shape[0], points.shape[0])


def self_first(neighbours: Tensor, own: Tensor) -> Tensor:
    """Move the target ``own`` (n,) to the front, or replace the farthest; int64 (n, K), inplace."""
    # another point at the same position may come first
    rows = torch.nonzero(neighbours[:, 0] != own).flatten()
    if rows.numel():
        others = neighbours[rows] != own[rows, None]
        others[others.all(1), -1] = False  # drop the farthest
        rest = neighbours[rows][others].view(rows.numel(), neighbours.shape[1] - 1)
        neighbours[rows] = torch.cat((own[rows, None], rest), 1)
    return neighbours


def graph_of(
    edges: list[tuple[Tensor, Tensor]],
    size: tuple[int, int],
    device: torch.device,
    name: str,
    repeats: bool = False,
) -> AttentionGraph:
    if not edges:
        none = torch.empty(0, dtype=torch.int64)
        edges = [(none, none)]
    target, source = (torch.cat(parts).to(device) for parts in zip(*edges, strict=True))
    return AttentionGraph(listed(target, source, *size, has_repeats=repeats), name, device)
