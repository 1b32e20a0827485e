"""Graphs, or graphs of heads, side by side as one, for one call on several examples."""

from collections.abc import Iterable
from itertools import accumulate
from math import lcm
from typing import Any

from ...errors import GraphError
from ..graph import AttentionGraph, side_by_side
from .per_head import PerHead

Joined = AttentionGraph | PerHead


def joined(graphs: Iterable[Any], *, padded: bool = False) -> Joined:
    """Graphs, or graphs of heads, as one without edges between them.

    The edges of its union are those of graph after graph, each in its own order.

    Args:
        graphs: The graphs; all are seen as graphs of heads if one is.
        padded: True if every graph takes as many nodes as the largest.

    Example:
        >>> from graphattn.graphs import causal, full
        >>> print(joined((causal(3), full(2)), padded=True))
        AttentionGraph(causal(3) + full(2): 6 nodes, 10 edges, density 0.278, rule)
        █ · · · · ·
        █ █ · · · ·
        █ █ █ · · ·
        · · · █ █ ·
        · · · █ █ ·
        · · · · · ·
    """
    parts = list(graphs)
    union = in_blocks([part.union() for part in parts], padded)
    number = lcm(*(len(part.of_heads) for part in parts))
    if number == 1:
        return union
    heads = []
    for example, part in enumerate(parts):
        if any(head.has_repeated_edges for head in part.of_heads):
            raise GraphError(
                f"beside graphs of heads, which are sets of edges, example {example} repeats some: "
                f"{part!r}; drop them with graph | graph"
            )
        share = number // len(part.of_heads)
        heads.append([head for head in part.of_heads for _ in range(share)])
    columns = list(zip(*heads, strict=True))
    of_columns = {column: in_blocks(list(column), padded) for column in dict.fromkeys(columns)}
    return PerHead(tuple(of_columns[column] for column in columns))._with_union(union)


def padded(graph: Joined, num_targets: int, num_sources: int) -> Joined:
    """A graph, or graphs of heads, with nodes without edges up to these numbers."""
    if (graph.num_targets, graph.num_sources) == (num_targets, num_sources):
        return graph
    of_each: Joined = graph._map_graphs(
        lambda one: side_by_side([one], (0,), (0,), (num_targets, num_sources))
    )
    return of_each


def in_blocks(graphs: list[AttentionGraph], padded: bool) -> AttentionGraph:
    """Graphs as the blocks of one, on its diagonal."""
    targets = [graph.num_targets for graph in graphs]
    sources = [graph.num_sources for graph in graphs]
    if padded:
        targets = [max(targets)] * len(graphs)
        sources = [max(sources)] * len(graphs)
    target_starts = [0, *accumulate(targets)]
    source_starts = [0, *accumulate(sources)]
    sizes = (target_starts[-1], source_starts[-1])
    result = side_by_side(graphs, target_starts, source_starts, sizes)
    if padded:
        result.edges.num_blocks = len(graphs)
    return result
