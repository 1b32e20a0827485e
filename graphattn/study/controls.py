"""Controls: the arms that keep a study honest, made by themselves."""

import numpy as np
import torch

from ..convert import from_edge_index
from ..errors import ControlError, GraphError
from ..graph import AttentionGraph
from ..graphs import causal, degree_matched_random, full, self_loops
from ..graphs.of_graphs.controls import swapped_causal
from .arms import Graphs

CONTROLS = ("self", "full", "rewired", "permuted", "shuffled")
"""Controls by default."""
ALL_CONTROLS = (*CONTROLS[:3], "swapped", *CONTROLS[3:])
DRAWN = ("rewired", "swapped", "permuted")
"""Controls that are drawn, several for each seed."""


def alone(graphs: Graphs) -> Graphs:
    """Every node reads itself: no mixing."""
    return graphs.map(lambda graph: self_loops(graph.num_targets))


def everything(graphs: Graphs, is_causal: bool) -> Graphs:
    """Every node reads every node; where later ones may not be read, every earlier one."""
    if is_causal:
        return graphs.map(lambda graph: causal(graph.num_targets))
    return graphs.map(lambda graph: full(graph.num_targets))


def is_structured(graphs: Graphs, is_causal: bool) -> bool:
    """True if a rewiring of an arm's graph is another graph.

    Not of all pairs, of nodes by themselves, or of edges that are chosen.
    """
    if graphs.chooses:
        return False
    distinct = dict.fromkeys((*graphs.layers, *graphs.each))
    return any(_between(graph, is_causal) for graph in distinct)


def _between(graph: AttentionGraph, is_causal: bool) -> bool:
    """True if a graph has more edges than its self-loops, and fewer than all."""
    n = graph.num_targets
    all_pairs = n * n
    if is_causal:
        all_pairs = n * (n + 1) // 2
    return graph._num_loops() < graph.num_edges < all_pairs


def rewired(graphs: Graphs, seed: int, is_causal: bool) -> Graphs:
    """The degree-matched control: as many random sources per target as before; self-loops stay.

    Raises:
        ControlError: If a degree or a self-loop is another one than in the graph.
    """
    if is_causal:
        rewirings = graphs.map(lambda graph: rewired_causal(graph, seed))
    else:
        rewirings = graphs.map(lambda graph: degree_matched_random(graph, seed))
    originals = graphs.layers + graphs.each
    for before, after in zip(originals, rewirings.layers + rewirings.each, strict=True):
        assert_matched(before, after)
    return rewirings


def swapped(graphs: Graphs, seed: int, is_causal: bool) -> Graphs:
    """The control that keeps in- and out-degrees, symmetry, causality and self-loops.

    Raises:
        ControlError: If one of them is another than in the graph.
    Source:
        Maslov and Sneppen 2002, "Specificity and stability in topology of protein networks".
    """

    def swaps(graph: AttentionGraph) -> AttentionGraph:
        if is_causal:
            return swapped_causal(graph, seed)
        if graph.is_symmetric:
            return degree_matched_random(graph, seed, keep="symmetric")
        return degree_matched_random(graph, seed, keep="both")

    results = graphs.map(swaps)
    originals = graphs.layers + graphs.each
    for before, after in zip(originals, results.layers + results.each, strict=True):
        assert_matched(before, after)
        if not torch.equal(before.out_degree, after.out_degree):
            raise ControlError(f"swaps of {before.name} changed out-degrees")
        if before.is_symmetric and not after.is_symmetric:
            raise ControlError(f"swaps of {before.name} lost symmetry")
    return results


def reads_later(graph: AttentionGraph) -> bool:
    """Whether some node reads one that comes after it."""
    return bool((graph.source > graph.target).any())


def rewired_causal(graph: AttentionGraph, seed: int) -> AttentionGraph:
    """As :func:`graphattn.graphs.degree_matched_random`, drawn from earlier nodes alone.

    Raises:
        GraphError: If the graph reads a later node, or repeats an edge.
    """
    if reads_later(graph) or graph.has_repeated_edges:
        raise GraphError(
            "a causal rewiring needs a graph that reads no later node and repeats no edge, got "
            f"{graph!r}"
        )
    random = np.random.default_rng(seed)
    node = torch.arange(graph.num_targets)
    loop = graph.contains(node, node)
    degrees = (graph.in_degree.cpu() - loop.long()).tolist()
    drawn = [
        torch.from_numpy(random.choice(t, k, replace=False)) if k else node[:0]
        for t, k in enumerate(degrees)
    ]
    sources = [
        torch.cat((s.sort().values, node[t : t + 1][loop[t : t + 1]])) for t, s in enumerate(drawn)
    ]
    target = torch.repeat_interleave(node, torch.tensor([len(s) for s in sources]))
    return from_edge_index(torch.stack((torch.cat(sources), target)), num_nodes=graph.num_targets)


def assert_matched(before: AttentionGraph, after: AttentionGraph) -> None:
    """Refuse a rewiring whose targets read more or fewer, or that gained or lost a self-loop."""
    if not torch.equal(before.in_degree, after.in_degree):
        raise ControlError(f"a rewiring of {before.name} changed in-degrees")
    node = torch.arange(before.num_targets)
    if not torch.equal(before.contains(node, node), after.contains(node, node)):
        raise ControlError(f"a rewiring of {before.name} changed self-loops")


def permuted(graphs: Graphs, seed: int = 0) -> Graphs:
    """The same graph on nodes in another order, while the data stays."""

    def relabelled(graph: AttentionGraph) -> AttentionGraph:
        order = torch.randperm(graph.num_targets, generator=torch.Generator().manual_seed(seed))
        return graph.relabel(order)

    return graphs.map(relabelled)


def kept_by(before: AttentionGraph, after: AttentionGraph, is_permuted: bool) -> list[str]:
    """What a control keeps of a graph, in words."""
    if is_permuted:
        return ["all but the places of nodes"]
    words = []
    if torch.equal(before.in_degree, after.in_degree):
        words.append("in-degrees")
    if torch.equal(before.out_degree, after.out_degree):
        words.append("out-degrees")
    if before.is_symmetric and after.is_symmetric:
        words.append("symmetry")
    return words
