"""Controls: the arms that keep a study honest, made by themselves."""

import numpy as np
import torch

from ..analysis.kept import compared, has_same_loops
from ..convert import from_edge_index
from ..errors import ControlError, GraphError
from ..graph import AttentionGraph
from ..graphs import causal, full, self_loops
from ..graphs.of_graphs.controls import rewiring
from .arms import Graphs

CONTROLS = ("self", "full", "rewired", "permuted", "shuffled")
"""Controls by default."""
ALL_CONTROLS = (*CONTROLS[:3], "in-degrees", "reach-matched", *CONTROLS[3:])
REWIRED = ("rewired", "in-degrees", "reach-matched")
"""Controls of other edges, ``draws`` of them for each seed."""
DRAWN = (*REWIRED, "permuted")
"""Controls that are drawn, several for each seed."""
_STATED = ("in-degrees", "out-degrees", "symmetry", "reach")


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


def rewired(graphs: Graphs, seed: int) -> Graphs:
    """The control that keeps both degrees, symmetry, causality and self-loops: Maslov's swaps.

    Raises:
        ControlError: If one of them is another than in the graph.
    Source:
        Maslov and Sneppen 2002, "Specificity and stability in topology of protein networks".
    """
    results = graphs.map(lambda graph: rewiring(graph, seed))
    _assert_swapped(graphs, results)
    return results


def reach_matched(graphs: Graphs, seed: int, layers: int) -> Graphs:
    """The rewiring whose nodes also depend on as many nodes in ``layers`` layers, within 5 %.

    A sample's own graph of which none is found stays as it is.

    Raises:
        GraphError: If none is found of a graph that all samples share.
        ControlError: If the control lost what it is to keep.
    """

    def matched(graph: AttentionGraph) -> AttentionGraph:
        try:
            return rewiring(graph, seed, layers=layers)
        except GraphError:
            if graphs.each:
                return graph
            raise

    results = graphs.map(matched)
    _assert_swapped(graphs, results)
    return results


def same_in_degrees(graphs: Graphs, seed: int, is_causal: bool) -> Graphs:
    """The control that keeps in-degrees and self-loops alone, and causality if it must.

    Raises:
        ControlError: If a degree or a self-loop is another one than in the graph.
    """
    if is_causal:
        results = graphs.map(lambda graph: rewired_causal(graph, seed))
    else:
        results = graphs.map(lambda graph: rewiring(graph, seed, keep="in-degrees"))
    for before, after in _pairs(graphs, results):
        assert_matched(before, after)
    return results


def _pairs(graphs: Graphs, results: Graphs) -> list[tuple[AttentionGraph, AttentionGraph]]:
    before = graphs.layers + graphs.each
    return list(zip(before, results.layers + results.each, strict=True))


def _assert_swapped(graphs: Graphs, results: Graphs) -> None:
    for before, after in _pairs(graphs, results):
        assert_matched(before, after)
        if not torch.equal(before.out_degree, after.out_degree):
            raise ControlError(f"swaps of {before.name} changed out-degrees")
        if before.is_symmetric and not after.is_symmetric:
            raise ControlError(f"swaps of {before.name} lost symmetry")
        if before.is_causal and not after.is_causal:
            raise ControlError(f"swaps of {before.name} read a later node")


def rewired_causal(graph: AttentionGraph, seed: int) -> AttentionGraph:
    """As ``degree_matched_random(keep="in-degrees")``, drawn from earlier nodes alone.

    Raises:
        GraphError: If the graph reads a later node, or repeats an edge.
    """
    if not graph.is_causal or graph.has_repeated_edges:
        raise GraphError(
            "a causal rewiring needs a graph that reads no later node and repeats no edge, got "
            f"{graph!r}"
        )
    random = np.random.default_rng(seed)
    node = torch.arange(graph.num_targets)
    loop = graph.contains(node, node)
    degrees = (graph.in_degree.cpu() - loop.long()).tolist()
    sources_of = [
        torch.from_numpy(random.choice(t, k, replace=False)) if k else node[:0]
        for t, k in enumerate(degrees)
    ]
    sources = [
        torch.cat((s.sort().values, node[t : t + 1][loop[t : t + 1]]))
        for t, s in enumerate(sources_of)
    ]
    target = torch.repeat_interleave(node, torch.tensor([len(s) for s in sources]))
    return from_edge_index(torch.stack((torch.cat(sources), target)), num_nodes=graph.num_targets)


def assert_matched(before: AttentionGraph, after: AttentionGraph) -> None:
    """Refuse a rewiring whose targets read more or fewer, or that gained or lost a self-loop."""
    if not torch.equal(before.in_degree, after.in_degree):
        raise ControlError(f"a rewiring of {before.name} changed in-degrees")
    if not has_same_loops(before, after):
        raise ControlError(f"a rewiring of {before.name} changed self-loops")


def permuted(graphs: Graphs, seed: int = 0) -> Graphs:
    """The same graph on nodes in another order, while the data stays."""

    def relabelled(graph: AttentionGraph) -> AttentionGraph:
        order = torch.randperm(graph.num_targets, generator=torch.Generator().manual_seed(seed))
        return graph.relabel(order)

    return graphs.map(relabelled)


def invariants(
    before: AttentionGraph, after: AttentionGraph, is_permuted: bool, layers: int
) -> list[str]:
    """Properties of a graph that a control keeps, in words."""
    if is_permuted:
        return ["all but the places of nodes"]
    properties = compared(before, after, layers)
    return [name for name in _STATED if name in properties and properties[name].kept]


def is_other(graphs: Graphs, results: Graphs) -> bool:
    """True if some graph of a control has other edges, in whatever order, than its arm's."""
    return not all(before.equals(after) for before, after in _pairs(graphs, results))


def unchanged(graphs: Graphs, results: Graphs) -> int:
    """The number of samples' own graphs that a rewiring leaves as they are."""
    pairs = zip(graphs.each, results.each, strict=True)
    return sum(before.equals(after) for before, after in pairs)
