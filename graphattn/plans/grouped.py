"""Edges grouped by target and by source, for the edge kernels."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.sort import Sorted, offsets, transposed
from .cache import CPU, cached, moved


class ByTarget(NamedTuple):
    """``ptr`` int64 (T + 1,); the ``source`` of each edge (E,) and its index ``edge`` in the caller's order (E,).

    Row ``r`` holds the edges of target ``order[r]``.
    """

    ptr: Tensor
    source: Tensor
    edge: Tensor
    order: Tensor


class BySource(NamedTuple):
    """``ptr`` int64 (S + 1,); the ``target`` of each edge (E,) and its index by target ``place`` (E,).

    Row ``r`` holds the edges out of source ``order[r]``.
    """

    ptr: Tensor
    target: Tensor
    place: Tensor
    order: Tensor


def by_target(graph: AttentionGraph, device: torch.device = CPU) -> ByTarget:
    """The edges by target, then by source; int32 where that is enough. Listed edges are sorted on the device."""
    return cached(graph, ("by_target", device), lambda: _by_target(graph, device))


def by_source(graph: AttentionGraph, device: torch.device = CPU) -> BySource:
    """The edges by source, then by target; made only for gradients."""
    return cached(graph, ("by_source", device), lambda: _by_source(graph, device))


def effective_edges(num_edges: float, num_targets: int) -> float:
    """The cost of edges one by one, in edges; as measured, a target costs as much as 25."""
    return num_edges + 25 * num_targets


def _by_target(graph: AttentionGraph, device: torch.device) -> ByTarget:
    if graph.edges.is_listed:
        ptr, source, edge = (x.to(device) for x in graph.edges.sorted)
    elif device != CPU:
        return moved(by_target(graph), device)
    else:
        source = graph.source.cpu()
        ptr, edge = offsets(graph.in_degree.cpu()), torch.arange(source.numel())
    small = _index_dtype(graph)
    order = torch.arange(graph.num_targets, dtype=small, device=device)
    return ByTarget(ptr, source.to(small), edge.to(small), order)


def _by_source(graph: AttentionGraph, device: torch.device) -> BySource:
    if device != CPU and not graph.edges.is_listed:
        return moved(by_source(graph), device)
    ptr, source = by_target(graph, device)[:2]
    ptr, target, place = transposed(Sorted(ptr, source, source), graph.num_sources)
    small = _index_dtype(graph)
    order = torch.arange(graph.num_sources, dtype=small, device=device)
    return BySource(ptr, target.to(small), place.to(small), order)


def _index_dtype(graph: AttentionGraph) -> torch.dtype:
    """One for nodes and edges: the kernels are compiled for one."""
    largest = max(graph.num_targets, graph.num_sources, graph.num_edges)
    return torch.int32 if largest <= 2**31 - 1 else torch.int64
