"""Graphs of arms, and the controls that keep a study honest, made by themselves."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .. import nulls
from ..analysis.kept import compared
from ..arguments import shown
from ..errors import GraphError, OptionError
from ..graph import AttentionGraph, Chosen, Pattern
from ..nulls.drawn import swapped
from .data import Data, Sample, samples


@dataclass(frozen=True, eq=False)
class Graphs:
    """The graphs of an arm.

    Args:
        layers: One for each layer, the same for all samples; empty if every sample has its own.
            Edges may be chosen by what a layer reads.
        each: Of every sample, the same in all layers; empty if they share ``layers``.
    """

    layers: tuple[Any, ...] = ()  # AttentionGraph or Chosen
    each: tuple[AttentionGraph, ...] = ()

    @property
    def chooses(self) -> bool:
        """True if edges of a layer are chosen in each call."""
        return any(isinstance(graph, Chosen) for graph in self.layers)

    def possible(self) -> "Graphs":
        """The arm with every edge that may be chosen."""
        return self.map(lambda graph: graph.union())

    def map(self, function: Callable[[Any], AttentionGraph]) -> "Graphs":
        """The arm with every graph changed; layers of one graph stay layers of one graph."""
        results: dict[Any, AttentionGraph] = {}
        for graph in (*self.layers, *self.each):
            if graph not in results:
                results[graph] = function(graph)
        layers = tuple(results[graph] for graph in self.layers)
        return replace(self, layers=layers, each=tuple(results[graph] for graph in self.each))

    def everything(self, is_causal: bool) -> "Graphs":
        """All pairs; where later nodes may not be read, all earlier ones."""
        return self.map(lambda graph: nulls.everything(graph, is_causal))

    @property
    def first(self) -> Any:
        """One of them, to look at."""
        return (self.layers or self.each)[0]

    def few(self, most: int = 8) -> "Graphs":
        """A few of samples' own graphs, evenly chosen."""
        return replace(self, each=self.each[:: max(1, len(self.each) // most)][:most])

    def some(self, layers: int, most: int = 8) -> list[tuple[Any, ...]]:
        """The layers of a few samples: (one graph for each layer) of each."""
        if self.layers:
            return [self.layers]
        return [(graph,) * layers for graph in self.few(most).each]

    def digest(self) -> str:
        """A hash of all edges, in their order."""
        result = hashlib.sha256()
        digests = {}
        for graph in (*self.layers, *self.each):
            if graph not in digests:
                if isinstance(graph, Chosen):
                    edges = _choice(graph)
                else:
                    edges = _bytes(graph.edge_index)
                digests[graph] = hashlib.sha256(
                    f"{graph.num_targets} {graph.num_sources} ".encode() + edges
                ).digest()
            result.update(digests[graph])
        return result.hexdigest()[:16]


def graphs_of(name: str, arm: Any, data: Data, num_layers: int) -> Graphs:
    """Graphs of an arm, of every layer and of every sample.

    Raises:
        OptionError: If it is nothing that gives a graph.
        GraphError: If a graph does not fit the data.
    """
    if isinstance(arm, list | tuple):
        if len(arm) != num_layers:
            raise GraphError(
                f"arm {name!r} has {len(arm)} graphs, and the model {num_layers} layers: one for "
                "each"
            )
        of_layers = [graphs_of(name, of_layer, data, 1) for of_layer in arm]
        if any(graphs.each for graphs in of_layers):
            raise GraphError(
                f"arm {name!r}: a list is for graphs that all samples share; give a function of a "
                "sample"
            )
        return Graphs(layers=tuple(graphs.first for graphs in of_layers))
    if isinstance(arm, Pattern) and not arm.on_points and data.sizes is None:
        arm = arm(data.num_nodes)
    if isinstance(arm, Chosen) and arm.expression.has_functions:
        raise OptionError(
            f"arm {name!r} chooses by a function, {arm.name}; call it in a study.CustomModel"
        )
    if isinstance(arm, AttentionGraph | Chosen):
        _check_fit(name, arm, data.num_nodes)
        if data.sizes is not None:
            raise GraphError(
                f"arm {name!r} is one graph, and samples differ in size; give a pattern, or a "
                "function"
            )
        return Graphs(layers=(arm,) * num_layers)
    return Graphs(each=tuple(_of_sample(name, arm, sample) for sample in samples(data)))


def _of_sample(name: str, arm: Any, sample: Sample) -> AttentionGraph:
    if not isinstance(arm, Pattern):
        try:
            graph = arm(sample)
        except Exception as error:
            raise OptionError(
                f"arm {name!r} gives no graph of sample {sample.index}: {type(error).__name__}: "
                f"{error}"
            ) from error
    elif arm.on_points and sample.pos is None:
        raise OptionError(
            f"arm {name!r} is a recipe of places, {arm.name}, and the data has none; give pos"
        )
    elif arm.on_points:
        graph = arm(sample.pos)
    else:
        graph = arm(sample.num_nodes)
    if isinstance(graph, Chosen):
        raise OptionError(
            f"arm {name!r} chooses edges in each call, and needs samples of one size, read by one "
            "pattern"
        )
    if not isinstance(graph, AttentionGraph):
        raise OptionError(
            f"arm {name!r} must give a graph of sample {sample.index}, got {shown(graph)}"
        )
    _check_fit(f"{name} of sample {sample.index}", graph, sample.num_nodes)
    return graph


def _choice(graph: Chosen) -> bytes:
    """The identity of a choice: its calls, and their tensors."""
    arguments: list[Any] = []
    parts = [graph.expression.text(arguments).encode()]
    for argument in arguments:
        if isinstance(argument, AttentionGraph):
            argument = argument.edge_index
        parts.append(_bytes(torch.as_tensor(argument)))
    return b"".join(parts)


def _bytes(x: Tensor) -> bytes:
    return x.cpu().contiguous().numpy().tobytes()


def _check_fit(name: str, graph: AttentionGraph | Chosen, nodes: int) -> None:
    if (graph.num_targets, graph.num_sources) != (nodes, nodes):
        sizes = f"{graph.num_targets:,} targets and {graph.num_sources:,} sources"
        raise GraphError(
            f"arm {name!r} has {sizes}, the data {nodes:,} nodes; a pattern, causal(...), takes "
            "any size"
        )


CONTROLS = ("self", "full", "rewired", "permuted", "shuffled")
"""Controls by default."""
ALL_CONTROLS = (*CONTROLS[:3], "in-degrees", "reach-matched", *CONTROLS[3:])
REWIRED = ("rewired", "in-degrees", "reach-matched")
"""Controls of other edges, ``draws`` of them for each seed."""
DRAWN = (*REWIRED, "permuted")
"""Controls that are drawn, several for each seed."""
_STATED = ("in-degrees", "out-degrees", "symmetry", "reach")


def is_structured(graphs: Graphs, is_causal: bool) -> bool:
    """True if a rewiring of an arm's graph is another graph.

    Not of all pairs, of nodes by themselves, or of edges that are chosen.
    """
    if graphs.chooses:
        return False
    for graph in dict.fromkeys((*graphs.layers, *graphs.each)):
        n = graph.num_targets
        all_pairs = n * n
        if is_causal:
            all_pairs = n * (n + 1) // 2
        if graph._num_loops() < graph.num_edges < all_pairs:
            return True
    return False


def reach_matched(graphs: Graphs, seed: int, layers: int) -> Graphs:
    """The rewiring whose nodes also depend on as many nodes in ``layers`` layers, within 5 %.

    A sample's own graph of which none is found stays as it is.

    Raises:
        GraphError: If none is found of a graph that all samples share.
    """

    def matched(graph: AttentionGraph) -> AttentionGraph:
        try:
            return swapped(graph, seed, layers)
        except GraphError:
            if graphs.each:
                return graph
            raise

    return graphs.map(matched)


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
    pairs = zip(graphs.layers + graphs.each, results.layers + results.each, strict=True)
    return not all(before.equals(after) for before, after in pairs)


def unchanged(graphs: Graphs, results: Graphs) -> int:
    """The number of samples' own graphs that a rewiring leaves as they are."""
    pairs = zip(graphs.each, results.each, strict=True)
    return sum(before.equals(after) for before, after in pairs)
