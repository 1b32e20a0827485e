"""The order in which the edge kernels process the rows of a badly ordered graph.

Neighbours that are far apart in memory leave the caches between two rows that read them. Consecutive rows in
Cuthill-McKee order share sources; the nodes stay in place, and every sum keeps its order, so that the results are
equal bit for bit.
"""

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.near import near_order
from ..graph.sort import offsets
from .cache import cached
from .grouped import BySource, ByTarget, by_source, by_target

FAR = 1 << 11  # mean distance of neighbours from which an order is computed: about a megabyte of rows
GAIN = 4  # least factor by which the distance must fall: measured, kNN in Morton order loses a tenth by a new order
MOST = 1 << 23  # edges of the largest graph for which an order is computed


def rows_by_target(graph: AttentionGraph) -> ByTarget:
    """:func:`graphattn.plans.grouped.by_target`, its rows in the best order."""
    return by_target(graph) if order(graph) is None else cached(graph, "scheduled", lambda: _scheduled(graph))[0]


def rows_by_source(graph: AttentionGraph) -> BySource:
    """:func:`graphattn.plans.grouped.by_source`, likewise; ``place`` is the one in :func:`rows_by_target`."""
    return by_source(graph) if order(graph) is None else cached(graph, "scheduled", lambda: _scheduled(graph))[1]


def order(graph: AttentionGraph) -> Tensor | None:
    """The best order of the nodes, int64 (N,); None if the given order is good enough."""
    return cached(graph, "row order", lambda: _order(graph))


def distance(graph: AttentionGraph, position: Tensor | None = None) -> float:
    """The mean number of nodes between the ends of an edge, with node ``i`` at ``position[i]``."""
    ends = graph.target.cpu(), graph.source.cpu()
    target, source = ends if position is None else (position[end] for end in ends)
    return (target - source).abs().double().mean().item() if target.numel() else 0.0


def _order(graph: AttentionGraph) -> Tensor | None:
    if not graph.is_square or graph.num_targets <= FAR or graph.num_edges > MOST:
        return None
    before = distance(graph)
    if before < FAR:
        return None
    nodes = near_order(graph)
    return nodes if GAIN * distance(graph, torch.argsort(nodes)) < before else None


def _scheduled(graph: AttentionGraph) -> tuple[ByTarget, BySource]:
    """Both layouts with their rows in the new order; the edges within a row keep theirs."""
    nodes, targets, sources = order(graph), by_target(graph), by_source(graph)
    assert nodes is not None
    ptr, old = _rows(targets.ptr, nodes)
    place = torch.empty_like(targets.edge)
    place[old] = torch.arange(old.numel(), dtype=place.dtype)
    row = nodes.to(targets.order.dtype)
    by_row = ByTarget(ptr, targets.source[old], targets.edge[old], row)
    ptr, old = _rows(sources.ptr, nodes)
    return by_row, BySource(ptr, sources.target[old], place[sources.place[old].long()], row)


def _rows(ptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The starts of the rows in another order, and the former index of each of their entries."""
    count = ptr.diff()[rows]
    new = offsets(count)
    return new, torch.repeat_interleave(ptr[rows] - new[:-1], count) + torch.arange(int(new[-1]))
