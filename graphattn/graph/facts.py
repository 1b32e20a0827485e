"""Facts that attention needs, computed from a graph's edges and never claimed by a caller."""

import torch

from .graph import AttentionGraph
from .runs import nonempty


def is_full(graph: AttentionGraph) -> bool:
    """True if every target reads every source, once."""
    return not graph.has_repeated_edges and graph.num_edges == graph.num_targets * graph.num_sources


def is_lower_triangle(graph: AttentionGraph) -> bool:
    """True if the edges are exactly the pairs with ``s <= t``: SDPA's ``is_causal``, aligned upper
    left.
    """
    T = graph.num_targets
    S = graph.num_sources
    square = min(T, S)
    if (
        graph.has_repeated_edges
        or graph.num_edges != square * (square + 1) // 2 + max(0, T - S) * S
    ):
        return False
    return graph._remember("is_lower_triangle", lambda: no_source_after_target(graph))


def is_symmetric(graph: AttentionGraph) -> bool:
    """True if every edge of a square graph has its reverse, with as many copies."""
    if not torch.equal(graph.in_degree, graph.out_degree):
        return False
    if graph.is_rule:
        return graph.equals(graph.reverse())
    edges = graph._listed()
    here = edges.sorted
    back = edges.flip().sorted
    return torch.equal(here.ptr, back.ptr) and torch.equal(here.column, back.column)


def no_source_after_target(graph: AttentionGraph) -> bool:
    """True if no target reads a later source."""
    if not graph.is_rule:
        return bool((graph.source <= graph.target).all())
    for first, _, chunk in graph.edges.chunks():
        row, _, hi = nonempty(chunk)
        if bool((hi > row + first + 1).any()):
            return False
    return True
