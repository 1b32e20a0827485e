"""Edges grouped by target and by source, for the edge kernels, and the best order of the rows.

Neighbours that are far apart in memory leave the caches between two rows that read them.
Consecutive rows in Cuthill-McKee order share sources; the nodes stay in place, and every sum keeps
its order, so that the results are equal bit for bit.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.listed import Listed
from ..graph.sort import Sorted, offsets, transposed
from .cache import CPU, moved, on_devices, planned

# mean distance of neighbours from which an order is computed: about a megabyte of rows
FAR = 1 << 11
# least factor by which the distance must fall: measured, kNN in Morton order loses a tenth by a new
# order
GAIN = 4
MOST = 1 << 23  # edges of the largest graph for which an order is computed
IN_CACHE = 1 << 18  # sources of a rule that are written at once


class EdgeLayout(NamedTuple):
    """Edges grouped by one end: ``ptr`` int64 (N + 1,), the other ``node`` (E,), the ``edge`` (E,).

    ``edge`` is an index in the caller's order if edges are grouped by target, in the order by
    target if by source.

    Row ``r`` holds the edges of node ``order[r]``.
    """

    ptr: Tensor
    node: Tensor
    edge: Tensor
    order: Tensor


def effective_edges(num_edges: float, num_targets: int) -> float:
    """The cost of edges one by one, in edges; as measured, a target costs as much as 12."""
    return num_edges + 12 * num_targets


@planned
def ends(graph: AttentionGraph, device: torch.device) -> tuple[Tensor, Tensor]:
    """The target and the source of every edge, int64 (E,), in the caller's order."""
    edges = graph._listed()
    return edges.target.to(device), edges.source.to(device)


@planned
def by_target(graph: AttentionGraph, device: torch.device) -> EdgeLayout:
    """The edges by target, then by source; int32 if that fits. Lists are sorted on the device."""
    if isinstance(graph.edges, Listed):
        ptr, source, edge = (x.to(device) for x in graph.edges.sorted)
    elif device != CPU:
        return moved(by_target(graph), device)
    else:
        ptr = offsets(graph.in_degree.cpu())
        source = _sources(graph)
        edge = torch.arange(source.numel(), dtype=source.dtype)
    small = _index_dtype(graph)
    order = torch.arange(graph.num_targets, dtype=small, device=device)
    return EdgeLayout(ptr, source.to(small), edge.to(small), order)


def _sources(graph: AttentionGraph) -> Tensor:
    """The sources of a rule's edges by target, written interval by interval; no pairs are listed."""
    source = torch.empty(graph.num_edges, dtype=_index_dtype(graph))
    start = 0
    for lo, hi in _intervals(graph):
        count = hi - lo
        first = lo - (torch.cumsum(count, 0) - count)  # less the place of each in this part
        size = int(count.sum())
        part = source[start : start + size]
        torch.arange(size, out=part)
        part += torch.repeat_interleave(first.to(source.dtype), count, output_size=size)
        start += size
    return source


def _intervals(graph: AttentionGraph) -> Iterator[tuple[Tensor, Tensor]]:
    """The intervals of sources, target by target, in parts whose sources fit into a cache."""
    for _, _, runs in graph.edges.chunks():
        part = torch.cumsum(runs.hi - runs.lo, 0) // IN_CACHE
        sizes = torch.unique_consecutive(part, return_counts=True)[1].tolist()
        yield from zip(runs.lo.split(sizes), runs.hi.split(sizes), strict=True)


@planned
def by_source(graph: AttentionGraph, device: torch.device) -> EdgeLayout:
    """The edges by source, then by target; made only for gradients."""
    if device != CPU and not graph.edges.is_listed:
        return moved(by_source(graph), device)
    ptr, source = by_target(graph, device)[:2]
    ptr, target, place = transposed(Sorted(ptr, source, source), graph.num_sources)
    small = _index_dtype(graph)
    order = torch.arange(graph.num_sources, dtype=small, device=device)
    return EdgeLayout(ptr, target.to(small), place.to(small), order)


def _index_dtype(graph: AttentionGraph) -> torch.dtype:
    """One for nodes and edges: the kernels are compiled for one."""
    largest = max(graph.num_targets, graph.num_sources, graph.num_edges)
    if largest <= 2**31 - 1:
        return torch.int32
    return torch.int64


def rows_by_target(graph: AttentionGraph) -> EdgeLayout:
    """:func:`by_target`, its rows in the best order."""
    if order(graph) is None:
        return by_target(graph)
    return _scheduled(graph)[0]


def rows_by_source(graph: AttentionGraph) -> EdgeLayout:
    """:func:`by_source`, likewise; ``edge`` is the one in :func:`rows_by_target`."""
    if order(graph) is None:
        return by_source(graph)
    return _scheduled(graph)[1]


def distance(graph: AttentionGraph, position: Tensor | None = None) -> float:
    """The mean number of nodes between the ends of an edge, with node ``i`` at ``position[i]``."""
    if graph.num_edges == 0:
        return 0.0
    if position is None and not graph.edges.is_listed:
        return _distance_of_rule(graph)
    target, source = ends(graph)
    if position is not None:
        target = position[target]
        source = position[source]
    return (target - source).abs().double().mean().item()


def _distance_of_rule(graph: AttentionGraph) -> float:
    """:func:`distance` in a graph whose edges are not listed: sums over intervals of sources."""
    total = 0
    for first, _, (row, lo, hi) in graph.edges.chunks():
        target = row + first
        before = _sum_to(target - lo) - _sum_to(target - hi)
        after = _sum_to(hi - 1 - target) - _sum_to(lo - 1 - target)
        total += int((before + after).sum())
    return total / graph.num_edges


def _sum_to(last: Tensor) -> Tensor:
    """1 + 2 + ... + ``last``; 0 where it is negative."""
    last = last.clamp(min=0)
    return last * (last + 1) // 2


@on_devices
def order(graph: AttentionGraph) -> Tensor | None:
    """The best order of the nodes, int64 (N,); None if the given order is good enough."""
    if not graph.is_square or graph.num_targets <= FAR:
        return None
    if graph.num_edges > MOST:
        return None
    before = distance(graph)
    if before < FAR:
        return None
    nodes = graph._near_order()
    if GAIN * distance(graph, torch.argsort(nodes)) < before:
        return nodes
    return None


@on_devices
def _scheduled(graph: AttentionGraph) -> tuple[EdgeLayout, EdgeLayout]:
    """Both layouts with their rows in the new order; the edges within a row keep theirs."""
    nodes = order(graph)
    targets = by_target(graph)
    sources = by_source(graph)
    assert nodes is not None
    ptr, old = rows_in_order(targets.ptr, nodes)
    place = torch.empty_like(targets.edge)
    place[old] = torch.arange(old.numel(), dtype=place.dtype)
    row = nodes.to(targets.order.dtype)
    by_row = EdgeLayout(ptr, targets.node[old], targets.edge[old], row)
    ptr, old = rows_in_order(sources.ptr, nodes)
    return by_row, EdgeLayout(ptr, sources.node[old], place[sources.edge[old].long()], row)


def rows_in_order(ptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The starts of the rows in another order, and the former index of each of their entries."""
    count = ptr.diff()[rows]
    new = offsets(count)
    return new, torch.repeat_interleave(ptr[rows] - new[:-1], count) + torch.arange(int(new[-1]))
