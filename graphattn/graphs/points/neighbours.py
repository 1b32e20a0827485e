"""Points in space: a point reads the points near it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.images import Images
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ..arguments import call, number, one_of, whole
from .clouds import Cloud, clouds, coordinates, device_of, parts
from .search.balls import within
from .search.nearest import nearest, self_first
from .search.periodic import Cells, Crowd, Near, checked_cells, nearest_images, within_images
from .search.reach import warn_of_degrees, warn_of_reach, warn_of_rounding, warn_of_unread
from .search.small_cells import ImageEdges, together


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
    self_loops: bool = False,
    clamp: bool = False,
    cell: Tensor | np.ndarray | None = None,
    pbc: bool | Sequence[bool] | Tensor | None = None,
) -> AttentionGraph:
    r"""Every point reads its ``k`` nearest points, or every ``dilation``-th of more.

    .. math:: \mathcal{N}(t) = \{ s_0, s_d, \dots, s_{(k - 1) d} \}, \quad
        s_0, s_1, \dots \text{ the sources } s \ne t \text{ by } (\|p_s - p_t\|^2, s)

    Distances are compared in float64 for any dtype; of equally far points the lowest index wins.
    The edges are the same on the CPU and on the GPU. Coordinates whose dtype rounds them so much
    that it decides who is near, such as those of a map in float32, are warned of.

    Args:
        pos: (N, d) floating point coordinates of the sources, a tensor or a numpy array; any d.
        k: Sources of every target, exactly.
        dilation: d, the nearest, then every d-th further one.
        queries: (M, d) coordinates of the targets, where these are other points; ``pos`` itself by
            default.
        batch: (N,) cloud of every point, sorted; a point reads its own cloud only. A missing number
            is an empty cloud.
        queries_batch: (M,) the same for ``queries``.
        self_loops: Count the target itself as one of the ``k``; its self-loop comes first, then
            ``k - 1`` others. By default a point does not read itself; other points at the same
            place are ordinary neighbours.
        clamp: Let targets in a cloud of too few points read all of them, instead of an error.
        cell: (d, d), the lattice vectors of a cell that repeats as rows, in the units of ``pos``,
            or (B, d, d), one for each cloud: images of points are sources, too, as in
            :func:`radius`. Points may lie outside the cell.
        pbc: (d,) or (B, d), the axes along which it repeats; all by default.
    Returns:
        Listed edges on the device of ``pos``, by target, then by distance (of equal ones, by
        index); with ``cell`` by target, source and offset.
    Raises:
        GraphError: If a cloud has too few points, a coordinate is not finite (the row is named),
            ``batch`` is not sorted, the vectors of a cell depend on each other, or ``pbc`` comes
            without ``cell``.
    Source:
        *What differs* from PyG's ``knn_graph``: ties go to the lowest index, copies of points never
        lose an edge, and too few points are an error. Its ``loop=True`` lets the target compete;
        ``self_loops`` always keeps it. ``dilation`` is Li et al. 2019 (DeepGCNs), whose
        neighbours include the point itself (``self_loops=True``).
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
    step = whole(dilation, "dilation", 1)
    points, targets, query_points, size = checked_points(pos, queries, self_loops)
    warn_of_degrees(points)
    searched = list(clouds(points, targets, batch, queries_batch))
    lattices = checked_cells(cell, pbc, points, searched, batch)
    needed = (k - 1) * step + 1
    skipped = 0  # the target itself, which is nearest to itself
    if queries is None and not self_loops:
        skipped = 1
        needed += 1
    name = call("knn", k=k, dilation=step, self_loops=self_loops, clamp=clamp)

    def refuse_few(cloud: Cloud, num_points: int) -> None:
        if num_points >= needed or clamp:
            return
        where = ""
        if batch is not None:
            where = f" in cloud {cloud.number}"
        hint = "use a smaller k, or clamp=True to read all of them"
        if points.shape[1] > len(points):
            hint = f"the rows of pos are points, got {tuple(points.shape)}: pass pos.T"
        arguments = f"k={k}"
        if step > 1:
            arguments = f"k={k} with dilation={step}"
        raise GraphError(
            f"{arguments} needs at least {needed} points, got {num_points}{where}; {hint}"
        )

    def noticed(graph: AttentionGraph) -> AttentionGraph:
        warn_of_rounding(graph, points, query_points, pos, queries)
        return graph

    if lattices is not None:
        reads_self = None
        if queries is None:
            reads_self = self_loops
        by_cloud = []
        for cloud, crowd in crowds(lattices, points, query_points, searched):
            count = needed
            if not crowd.lattice.periodic:
                refuse_few(cloud, len(crowd.points))
                count = min(needed, len(crowd.points))
            by_cloud.append(
                (cloud, crowd, nearest_images(crowd, count - skipped, reads_self, step))
            )
        return noticed(graph_of_images(by_cloud, lattices, size, device_of(pos), name))
    edges = []
    for cloud in searched:
        num_points = cloud.last_point - cloud.point
        if cloud.query == cloud.last_query:
            continue
        refuse_few(cloud, num_points)
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
    return noticed(graph_of(edges, size, device_of(pos), name))


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
    self_loops: bool = False,
    cell: Tensor | np.ndarray | None = None,
    pbc: bool | Sequence[bool] | Tensor | None = None,
) -> AttentionGraph:
    r"""Every point reads the points within a distance.

    .. math:: \mathcal{N}(t) = \{ s \ne t : \|p_s - p_t\|^2 \le r^2 \}

    In a cell that repeats (crystals, molecular dynamics, boxes of turbulence) every point reads the
    images of points, its own images too, where an edge carries the lattice vectors
    :math:`o_{ts}` to the image, the graph's ``offsets``:

    .. math:: \mathcal{N}(t) = \{ (s, o) \ne (t, 0) : \|p_s + o L - p_t\|^2 \le r^2 \}

    Distances are compared in float64 for any dtype, with the border included; note that the float32
    number nearest to 0.3 is larger than 0.3. The edges are the same on the CPU and on the GPU.
    A radius that joins none of 8 points or more, all of more than 64, or a point to more than 2,000
    images is warned of: it may be in other units than ``pos``. So are sources that none of 64
    ``queries`` or more reads, and coordinates that are too coarse, as in :func:`knn`.

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
        self_loops: True lets a point read itself.
        cell: L, (d, d), the lattice vectors of a cell that repeats as rows, in the units of
            ``pos``, or (B, d, d), one for each cloud. ``r`` may be larger than the cell, whose
            pairs then have several edges; points may lie outside the cell.
        pbc: (d,) or (B, d), the axes along which it repeats; all by default.
    Returns:
        Listed edges on the device of ``pos``, by target, then by distance, then by index; with
        ``cell`` by target, source and offset, and :func:`graphattn.nn.relative_positions` reads the
        offsets. Targets may have no sources.
    Raises:
        GraphError: If a target has more than ``max_neighbours`` sources (and ``overflow="error"``),
            the edges would take more than 4 GiB, a coordinate is not finite (the row is named),
            ``batch`` is not sorted, the vectors of a cell depend on each other, or ``pbc`` comes
            without ``cell``.
    Source:
        *What differs* from PyG's ``radius_graph``: there is no silent limit (``max_num_neighbors``
        is 32 there), and cells repeat. Edges and offsets are ``i``, ``j`` and ``S`` of ASE's
        neighbour list, with i the target and the border included.
    Example:
        >>> line = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
        >>> print(radius(line, 2.0))
        AttentionGraph(radius(r=2.0): 4 nodes, 4 edges, density 0.25, listed)
        · █ · ·
        █ · █ ·
        · █ · ·
        · · · ·
        >>> ring = radius(line, 2.0, cell=torch.tensor([[8.0]]))
        >>> ring.edge_index.tolist(), ring.offsets.flatten().tolist()
        ([[1, 3, 0, 2, 3, 1, 0, 1], [0, 0, 1, 1, 1, 2, 3, 3]], [0, -1, 0, 0, -1, 0, 1, 1])
    """
    reach = distance(r)
    one_of(overflow, "overflow", ("error", "nearest"))
    most = max_neighbours
    if most is not None:
        most = whole(most, "max_neighbours", 1)
    elif overflow == "nearest":
        raise GraphError('overflow="nearest" needs max_neighbours, got none')
    points, targets, query_points, size = checked_points(pos, queries, self_loops)
    warn_of_degrees(points)
    searched = list(clouds(points, targets, batch, queries_batch))
    lattices = checked_cells(cell, pbc, points, searched, batch)
    name = call("radius", r=r, max_neighbours=most, overflow=overflow, self_loops=self_loops)
    num_edges = 0

    def refuse_more(count: int) -> int:
        total = num_edges + count
        refuse_over(
            16 * total,
            f"the first {total:,} edges of radius",
            "use a smaller r, in the units of pos, or max_neighbours with overflow",
        )
        return total

    def refuse_overflow(counts: Tensor, first: int) -> None:
        if most is None or overflow == "nearest" or not bool((counts > most).any()):
            return
        raise GraphError(
            f"max_neighbours={most} is too few: target {first + int(counts.argmax())} has "
            f"{int(counts.max())} sources within r={r}; raise max_neighbours, lower r, or pass "
            'overflow="nearest" to keep the nearest ones'
        )

    def noticed(graph: AttentionGraph) -> AttentionGraph:
        loops = len(points) * self_loops
        warn_of_reach(graph, reach, points, query_points, searched, loops)
        warn_of_unread(graph, reach, points, query_points)
        warn_of_rounding(graph, points, query_points, pos, queries)
        return graph

    if lattices is not None:
        by_cloud = []
        if queries is None and most is None and points.device.type == "cpu":
            small = together(lattices, searched, points, reach, loops=self_loops)
            if small is not None:
                refuse_more(small.target.numel())
                return noticed(with_images(small, lattices, size, device_of(pos), name))
        for cloud, crowd in crowds(lattices, points, query_points, searched):
            for near in within_images(crowd, reach, loops=self_loops):
                if most is not None:
                    counts = torch.bincount(near.query, minlength=1)
                    refuse_overflow(counts, cloud.query)
                    near = near.at(crowd.nearest_of(near, counts, most))
                num_edges = refuse_more(near.query.numel())
                by_cloud.append((cloud, crowd, near))
        return noticed(graph_of_images(by_cloud, lattices, size, device_of(pos), name))
    edges = []
    limit = torch.full((size[0],), reach * reach, dtype=torch.float64, device=points.device)
    for pairs in within(points, query_points, limit, clouds=searched):
        if queries is None and not self_loops:
            pairs = pairs.keep(pairs.query != pairs.point)
        if most is not None:
            row = pairs.query - pairs.first
            counts = torch.bincount(row, minlength=pairs.last - pairs.first)
            refuse_overflow(counts, pairs.first)
            start = torch.cumsum(counts, 0) - counts
            rank = torch.arange(row.numel(), device=row.device) - start[row]
            pairs = pairs.keep(rank < most)
        num_edges = refuse_more(pairs.query.numel())
        edges.append((pairs.query, pairs.point))
    return noticed(graph_of(edges, size, device_of(pos), name))


def distance(r: object) -> float:
    return number(r, "r", "a finite distance >= 0", lambda reach: 0 <= reach < 1e150)


def checked_points(
    pos: Tensor | np.ndarray,
    queries: Tensor | np.ndarray | None,
    self_loops: bool,
) -> tuple[Tensor, Tensor | None, Tensor, tuple[int, int]]:
    """Points, queries if given, the targets, and the sizes (targets, sources); float64."""
    if queries is not None and self_loops:
        raise GraphError("self_loops needs targets that are the points, got queries; leave it out")
    points = coordinates(pos, "pos")
    targets = None
    query_points = points
    if queries is not None:
        targets = coordinates(queries, "queries")
        query_points = targets
    return points, targets, query_points, (query_points.shape[0], points.shape[0])


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


def crowds(
    lattices: Cells,
    points: Tensor,
    queries: Tensor,
    searched: Iterable[Cloud],
) -> Iterator[tuple[Cloud, Crowd]]:
    """The clouds that have points and targets, in cells that repeat."""
    for cloud in searched:
        if cloud.query < cloud.last_query and cloud.point < cloud.last_point:
            yield cloud, Crowd(lattices.of(cloud.number), *parts(points, queries, cloud))


def graph_of_images(
    by_cloud: list[tuple[Cloud, Crowd, Near]],
    lattices: Cells,
    size: tuple[int, int],
    device: torch.device,
    name: str,
) -> AttentionGraph:
    """The graph of edges with offsets, cloud by cloud."""
    none = torch.empty(0, dtype=torch.int64)
    offsets = [torch.empty(0, lattices.cells.shape[-1], dtype=torch.int64, device=device)]
    edges = [(none.to(device), none.to(device))]
    numbers = [none.to(device)]
    for cloud, crowd, near in by_cloud:
        edges.append((near.query + cloud.query, near.point + cloud.point))
        offsets.append(crowd.offsets(near))
        numbers.append(torch.full_like(near.query, cloud.number))
    target, source = (torch.cat(parts) for parts in zip(*edges, strict=True))
    of_edges = ImageEdges(target, source, torch.cat(offsets), torch.cat(numbers))
    return with_images(of_edges, lattices, size, device, name)


def with_images(
    edges: ImageEdges,
    lattices: Cells,
    size: tuple[int, int],
    device: torch.device,
    name: str,
) -> AttentionGraph:
    """The graph of edges with offsets."""
    target = edges.target.to(device)
    source = edges.source.to(device)
    cell_of_edge = None
    if len(lattices.cells) > 1:
        cell_of_edge = edges.cloud.to(device)
    images = Images(edges.offsets.to(device), lattices.cells.to(device), cell_of_edge)
    same = (target[1:] == target[:-1]) & (source[1:] == source[:-1])
    repeats = bool(same.any())
    return AttentionGraph(
        listed(target, source, *size, has_repeats=repeats, images=images), name, device
    )
