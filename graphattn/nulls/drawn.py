"""Graphs that keep the degrees, the reach or the shape of another."""

import numpy as np
import torch

from ..analysis.kept import has_same_loops
from ..errors import ControlError, GraphError, warn
from ..graph import AttentionGraph
from ..graph.edge_index import from_edge_index
from ..graphs import causal, full, self_loops
from ..graphs.of_graphs.controls import rewiring


def alone(graph: AttentionGraph) -> AttentionGraph:
    """Every node reads itself: no mixing."""
    return self_loops(graph.num_targets)


def everything(graph: AttentionGraph, is_causal: bool | None = None) -> AttentionGraph:
    """Every node reads every node; where later ones may not be read, every earlier one.

    Args:
        graph: It gives the number of nodes.
        is_causal: True if later nodes may not be read; by default as of the graph.
    """
    if is_causal is None:
        is_causal = graph.is_causal
    if is_causal:
        return causal(graph.num_targets)
    return full(graph.num_targets)


def rewired(graph: AttentionGraph, seed: int = 0, layers: int | None = None) -> AttentionGraph:
    """The null that keeps both degrees, symmetry, causality and self-loops: Maslov's swaps.

    Where no other graph has these degrees, as of a causal window, it is the graph itself, with a
    warning.

    Args:
        graph: It repeats no edge.
        seed: Of the drawing.
        layers: The null is also matched in reach: a node depends on as many nodes in so many layers,
            in the mean, within 5 %.
    Raises:
        GraphError: If none is found that is matched in reach.
        ControlError: If the null lost what it is to keep.
    Source:
        Maslov and Sneppen 2002, "Specificity and stability in topology of protein networks".
    """
    null = swapped(graph, seed, layers)
    if null.equals(graph):
        warn(
            f"no other graph with the degrees of {graph.name} was found by swaps: the null is the "
            "graph itself; same_in_degrees draws sources anew"
        )
    return null


def swapped(graph: AttentionGraph, seed: int = 0, layers: int | None = None) -> AttentionGraph:
    """The graph of :func:`rewired`, without its warning."""
    null = rewiring(graph, seed, layers=layers)
    _assert_matched(graph, null)
    if not torch.equal(graph.out_degree, null.out_degree):
        raise ControlError(f"swaps of {graph.name} changed out-degrees")
    for name in ("is_symmetric", "is_causal"):
        if getattr(graph, name) and not getattr(null, name):
            raise ControlError(f"swaps of {graph.name} lost {name}")
    return null


def same_in_degrees(
    graph: AttentionGraph, seed: int = 0, is_causal: bool | None = None
) -> AttentionGraph:
    """The null that keeps in-degrees and self-loops alone, and causality if it must.

    Args:
        graph: It repeats no edge.
        seed: Of the drawing.
        is_causal: True if later nodes may not be read; by default as of the graph.
    Raises:
        ControlError: If a degree or a self-loop is another one than in the graph.
    """
    if is_causal is None:
        is_causal = graph.is_causal
    null = rewired_causal(graph, seed) if is_causal else rewiring(graph, seed, keep="in-degrees")
    _assert_matched(graph, null)
    return null


def permuted(graph: AttentionGraph, seed: int = 0) -> AttentionGraph:
    """The same graph on nodes in another order, while the data stays; a causal one reads later nodes."""
    order = torch.randperm(graph.num_targets, generator=torch.Generator().manual_seed(seed))
    return graph.relabel(order)


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


def _assert_matched(before: AttentionGraph, after: AttentionGraph) -> None:
    """Refuse a rewiring whose targets read more or fewer, or that gained or lost a self-loop."""
    if not torch.equal(before.in_degree, after.in_degree):
        raise ControlError(f"a rewiring of {before.name} changed in-degrees")
    if not has_same_loops(before, after):
        raise ControlError(f"a rewiring of {before.name} changed self-loops")
