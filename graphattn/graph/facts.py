"""Facts computed from a graph's edges, never claimed by a caller."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from .graph import AttentionGraph


def is_full(graph: AttentionGraph) -> bool:
    """Whether every target reads every source, once."""
    return not graph.has_repeated_edges and graph.num_edges == graph.num_targets * graph.num_sources


def is_lower_triangle(graph: AttentionGraph) -> bool:
    """Whether the edges are exactly the pairs with ``s <= t``: SDPA's ``is_causal``, aligned upper left."""
    T, S = graph.num_targets, graph.num_sources
    square = min(T, S)
    if graph.has_repeated_edges or graph.num_edges != square * (square + 1) // 2 + max(0, T - S) * S:
        return False
    return graph._remember("is_lower_triangle", lambda: no_source_after_target(graph))


def is_symmetric(graph: AttentionGraph) -> bool:
    """Whether every edge of a square graph has its reverse, as often."""
    if not torch.equal(graph.in_degree, graph.out_degree):
        return False
    if graph.is_rule:
        return graph.equals(graph.reverse())
    edges = graph._listed()
    here, back = edges.sorted, edges.flip().sorted
    return torch.equal(here.ptr, back.ptr) and torch.equal(here.column, back.column)


def _num_loops(graph: AttentionGraph) -> int:
    if not graph.is_rule and not graph.has_repeated_edges:
        return int((graph.source == graph.target).sum())
    return graph._num_loops()


def no_source_after_target(graph: AttentionGraph) -> bool:
    """True if no target reads a later source."""
    if not graph.is_rule:
        return bool((graph.source <= graph.target).all())
    for first, _, chunk in graph.edges.walk():
        keep = chunk.hi > chunk.lo
        if bool((chunk.hi[keep] > chunk.row[keep] + first + 1).any()):
            return False
    return True


@dataclass(frozen=True)
class Facts:
    """What :func:`facts` found; counts are exact Python integers, ``None`` where the fact has no meaning."""

    num_targets: int
    num_sources: int
    num_edges: int
    density: float
    rule: bool
    full: bool
    causal: bool | None
    symmetric: bool | None
    self_loops: int | None
    isolated_targets: int
    unused_sources: int
    max_in_degree: int
    max_out_degree: int
    repeated_edges: bool

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain Python values."""
        return asdict(self)


def facts(graph: AttentionGraph) -> Facts:
    """Everything cheap to know about a graph. Costs one walk over its edges, and one over the reversed ones.

    ``causal`` means that no target reads a later source (``s <= t`` on every edge).

    Example:
        >>> from graphattn.graphs import causal
        >>> facts(causal(4)).causal
        True
    """
    square = graph.is_square
    loops = _num_loops(graph) if square else None
    into, out = graph.in_degree, graph.out_degree
    return Facts(
        num_targets=graph.num_targets,
        num_sources=graph.num_sources,
        num_edges=graph.num_edges,
        density=graph.density,
        rule=graph.is_rule,
        full=is_full(graph),
        causal=no_source_after_target(graph) if square else None,
        symmetric=is_symmetric(graph) if square else None,
        self_loops=loops,
        isolated_targets=int((into == 0).sum()),
        unused_sources=int((out == 0).sum()),
        max_in_degree=int(into.max()) if into.numel() else 0,
        max_out_degree=int(out.max()) if out.numel() else 0,
        repeated_edges=graph.has_repeated_edges,
    )
