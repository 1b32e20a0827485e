"""The one table of graphs that all tests run on: name -> a function that builds it.

Built from the graph room's own primitives alone, so that a mistake in a builder cannot hide here.
Sizes are small primes, and sources and targets differ wherever a graph is not square.
"""

from collections.abc import Callable

import torch

from graphattn.graph import AttentionGraph, disjoint_union
from graphattn.graph.edges import Edges
from graphattn.graph.forms import band, of_function, partition, product, rectangle
from graphattn.graph.listed import checked
from graphattn.graphs.grid.axes import cells as axis_cells
from graphattn.graphs.grid.cells_and_windows import axis_neighbourhood

FAR = 1 << 40


def _rule(edges: Edges, name: str) -> AttentionGraph:
    return AttentionGraph(edges, name)


def _listed(
    pairs: list[tuple[int, int]], num_targets: int, num_sources: int, name: str
) -> AttentionGraph:
    """From (source, target) pairs, copies kept."""
    index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    return AttentionGraph(checked(index, num_targets, num_sources, "keep"), name)


def _random(
    num_targets: int, num_sources: int, num_edges: int, name: str, seed: int = 0
) -> AttentionGraph:
    """Distinct edges in no order at all."""
    place = torch.randperm(
        num_targets * num_sources, generator=torch.Generator().manual_seed(seed)
    )[:num_edges]
    index = torch.stack((place % num_sources, place // num_sources))
    return AttentionGraph(checked(index, num_targets, num_sources), name)


def full() -> AttentionGraph:
    return _rule(band(11, 11), "full")


def causal() -> AttentionGraph:
    return _rule(band(13, 13, 0, FAR), "causal")


def window() -> AttentionGraph:
    return _rule(band(23, 23, 0, 4), "causal window of 5")


def wide_window() -> AttentionGraph:
    return _rule(band(23, 23, -3, 2), "lopsided window")


def dilated_window() -> AttentionGraph:
    return _rule(band(23, 23, 0, 9, step=3), "dilated window")


def longformer() -> AttentionGraph:
    """A window, and two nodes that read all and are read by all."""
    every, few = ((0, 29),), ((0, 1), (17, 18))
    tokens = _rule(rectangle(29, 29, few, every), "reads all") | _rule(
        rectangle(29, 29, every, few), "read by all"
    )
    return _rule(band(29, 29, -2, 2), "window") | tokens


def prefix() -> AttentionGraph:
    """A prefix that reads itself both ways, and a causal rest."""
    return _rule(band(19, 19, 0, FAR), "causal") | _rule(
        rectangle(19, 19, ((0, 7),), ((0, 7),)), "prefix"
    )


def packed_documents() -> AttentionGraph:
    lengths = torch.tensor([5, 1, 11, 2])
    return _rule(partition(torch.repeat_interleave(lengths)), "documents") & _rule(
        band(19, 19, 0, FAR), "causal"
    )


def cross() -> AttentionGraph:
    return _rule(band(7, 13), "cross")


def cross_causal_end() -> AttentionGraph:
    """The last target reads the last source."""
    return _rule(band(7, 13, 0, FAR, offset=6), "causal, aligned at the end")


def tall_causal() -> AttentionGraph:
    """More targets than sources: the last targets read all."""
    return _rule(band(13, 7, 0, FAR), "tall causal")


def cells() -> AttentionGraph:
    """A shifted partition of a 5 x 7 grid, whose sides the cells do not divide."""
    return _rule(
        product((axis_cells(5, 3, 1), axis_cells(7, 2, 1))), "shifted cells of a 5 x 7 grid"
    )


def grid_neighbourhood() -> AttentionGraph:
    return _rule(
        product((axis_neighbourhood(5, 3), axis_neighbourhood(7, 5))),
        "3 x 5 neighbourhood on a 5 x 7 grid",
    )


def predicate() -> AttentionGraph:
    return _rule(of_function(17, 11, lambda t, s: (t * 5 + s * 3) % 7 < 2), "a predicate")


def complement() -> AttentionGraph:
    return ~causal()


def listed_random() -> AttentionGraph:
    return _random(17, 17, 61, "random")


def listed_bipartite() -> AttentionGraph:
    return _random(13, 19, 53, "random bipartite")


def directed_ring() -> AttentionGraph:
    """One edge for each target: weights of exactly 1."""
    return _listed([(i, (i + 1) % 11) for i in range(11)], 11, 11, "ring")


def isolated_targets() -> AttentionGraph:
    return _listed([(0, 3), (5, 3), (2, 3), (5, 7), (6, 7), (9, 10)], 13, 11, "isolated targets")


def unused_sources() -> AttentionGraph:
    return _rule(rectangle(7, 17, ((0, 7),), ((2, 5), (11, 13))), "unused sources")


def no_edges() -> AttentionGraph:
    return _listed([], 5, 7, "no edges")


def no_edges_rule() -> AttentionGraph:
    return _rule(rectangle(5, 5, (), ((0, 5),)), "no edges, a rule")


def repeated_edges() -> AttentionGraph:
    pairs = [(0, 1), (2, 1), (0, 1), (3, 0), (0, 1), (4, 4), (4, 4), (2, 0), (6, 3), (5, 3)]
    return _listed(pairs, 5, 7, "repeated edges")


def hub() -> AttentionGraph:
    """One target reads everybody, everybody reads one source, and little else."""
    rim = [(0, t) for t in range(1, 31)]
    return _listed([(s, 30) for s in range(31)] + rim[:-1] + [(7, 3), (3, 7)], 31, 31, "hub")


def one_node() -> AttentionGraph:
    return _listed([(0, 0)], 1, 1, "one node")


def one_lonely_node() -> AttentionGraph:
    return _listed([], 1, 1, "one lonely node")


def zero_nodes() -> AttentionGraph:
    return _listed([], 0, 0, "zero nodes")


def zero_targets() -> AttentionGraph:
    return _listed([], 0, 5, "zero targets")


def zero_sources() -> AttentionGraph:
    return _listed([], 5, 0, "zero sources")


def rule_or_listed() -> AttentionGraph:
    """A lazy union of a rule and listed edges, some of which it has anyway."""
    return _rule(band(17, 17, 0, 2), "window") | listed_random()


def union_of_blocks() -> AttentionGraph:
    return disjoint_union([cross(), isolated_targets(), window()])


def union_of_rules() -> AttentionGraph:
    return disjoint_union([causal(), cells(), cross()])


def relabelled() -> AttentionGraph:
    order = torch.randperm(23, generator=torch.Generator().manual_seed(3))
    return window().relabel(order)


GRAPHS: dict[str, Callable[[], AttentionGraph]] = {
    build.__name__: build
    for build in (
        full,
        causal,
        window,
        wide_window,
        dilated_window,
        longformer,
        prefix,
        packed_documents,
        cross,
        cross_causal_end,
        tall_causal,
        cells,
        grid_neighbourhood,
        predicate,
        complement,
        listed_random,
        listed_bipartite,
        directed_ring,
        isolated_targets,
        unused_sources,
        no_edges,
        no_edges_rule,
        repeated_edges,
        hub,
        one_node,
        one_lonely_node,
        zero_nodes,
        zero_targets,
        zero_sources,
        rule_or_listed,
        union_of_blocks,
        union_of_rules,
        relabelled,
    )
}
#: One of each kind: all pairs, fused triangles, unions and products of rules, lists, rows of 0, of
#: 1 and of all.
KINDS = (
    "full",
    "tall_causal",
    "longformer",
    "cells",
    "listed_bipartite",
    "isolated_targets",
    "hub",
    "repeated_edges",
)
