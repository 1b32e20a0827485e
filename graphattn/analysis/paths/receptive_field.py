"""Receptive fields: the sources that a target depends on after each layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...arguments import check_flags, whole
from ...errors import GraphError
from ...graph import AttentionGraph, PerExample
from ...graph.algebra import join_cost, pulled
from ...graph.forms import of_runs
from ...graph.kinds.layers import Layers, layers_of, unions
from ...graph.limits import refuse_over
from ...graph.runs import Runs
from ...printed import Printed
from .walks import BUDGET

_STEP = 1 << 11  # pairs that a step back through a layer counts for, however few they are


@dataclass(frozen=True, repr=False)
class ReceptiveField(Printed):
    """Sources found by :func:`receptive_field`.

    Args:
        targets: The targets in question, int64 (n,), or ``None`` for all of each layer.
        graphs: For each layer, first layer first: which sources of the first layer each of the
            targets depends on after it; row ``i`` is ``targets[i]``, and is empty where a layer has
            no such target.
    """

    targets: Tensor | None
    graphs: tuple[AttentionGraph, ...]

    @property
    def sizes(self) -> tuple[Tensor, ...]:
        """For each layer int64 (n,): how many sources each target depends on after it."""
        return tuple(graph.in_degree.cpu() for graph in self.graphs)

    def to_dict(self) -> dict[str, Any]:
        """The least, mean and largest number of sources after each layer, and of all."""
        rows = [
            dict(zip(("least", "mean", "most"), spread(size), strict=True)) for size in self.sizes
        ]
        return {
            "targets": self.graphs[-1].num_targets,
            "sources": self.graphs[0].num_sources,
            "layers": rows,
        }

    def in_full(self) -> str:
        table = self.to_dict()
        targets = f"{table['targets']:,} target{'s' * (table['targets'] != 1)}"
        lines = [f"sources in the receptive field, of {table['sources']:,}, at {targets}:"]
        for number, row in enumerate(table["layers"]):
            numbers = f"{row['least']:,} to {row['most']:,}, mean {row['mean']:,.5g}"
            if row["least"] == row["most"]:
                numbers = str(row["most"])
            lines.append(f"  after layer {number}: {numbers}")
        return "\n".join(lines)


def spread(size: Tensor) -> tuple[int, float, int]:
    """The least, the mean and the most of some numbers; zeros of none."""
    if size.numel():
        return (int(size.min()), float(size.double().mean()), int(size.max()))
    return (0, 0.0, 0)


def receptive_field(
    layers: Layers, targets: Any = None, *, residual: bool = False, budget: int = BUDGET
) -> ReceptiveField:
    """Sources of the first layer that a target depends on after each layer: the Jacobian's support.

    Args:
        layers: One graph, or a list of graphs, first layer first.
        targets: Indices (n,) of the targets in question; all by default. One or a few are cheap on
            any rule.
        residual: Whether every target of a square layer also keeps what it has (a residual
            connection). ``False`` by default, as the question is about the graphs; ``leaks`` and
            ``measure_leaks``, about a model, have ``True``.
        budget: Pairs that may be looked at, for the fields of all layers together.
    Raises:
        GraphError: If the layers do not meet, the last one lacks a target, or it costs more than
            ``budget``.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> wavenet = [sliding_window(100_000, window=2, causal=True, dilation=d) for d in (1, 2, 4, 8)]
        >>> print(receptive_field(wavenet, targets=[99_999]))
        sources in the receptive field, of 100,000, at 1 target:
          after layer 0: 2
          after layer 1: 4
          after layer 2: 8
          after layer 3: 16
    """
    check_flags(residual=residual)
    graphs = graphs_of(layers, residual)
    budget = whole(budget, "budget", 1, GraphError)
    if targets is None:
        return ReceptiveField(None, tuple(_of_all(graphs, budget)))
    chosen = graphs[-1]._choice(targets, graphs[-1].num_targets, "targets")
    number = len(graphs)
    spent = _Spent(budget, "ask about fewer layers or targets, targets=[t]")
    # every field is traced back through all layers before
    spent(_STEP * number * (number + 1) // 2)
    return ReceptiveField(
        chosen, tuple(_field(graphs[: last + 1], chosen, spent) for last in range(number))
    )


class _Spent:
    """Refuses to join more rows of sources than a budget allows in all."""

    def __init__(self, budget: int, instead: str) -> None:
        self.joined = 0
        self.budget = budget
        self.instead = instead

    def __call__(self, joined: int) -> None:
        """Count rows that are about to be joined."""
        self.joined += joined
        self.refuse(self.joined)

    def refuse(self, joined: int) -> None:
        """Raise a GraphError where these are too many."""
        instead = f"{self.instead}, or try budget={8 * joined}"
        refuse_over(4 * joined, "receptive_field", instead, self.budget, "steps or more")

    def pulled(self, reached: Runs, num_rows: int, layer: AttentionGraph) -> Runs:
        """Sources that each row reads, from the targets of a layer that it depends on."""
        return pulled(reached, num_rows, layer.edges, self)


def _field(graphs: tuple[AttentionGraph, ...], chosen: Tensor, spent: _Spent) -> AttentionGraph:
    """Sources that the chosen targets of the last of these layers depend on."""
    there = torch.nonzero(chosen < graphs[-1].num_targets).flatten()
    reached = Runs(there, chosen[there], chosen[there] + 1)
    for layer in reversed(graphs):
        reached = spent.pulled(reached, chosen.numel(), layer)
    return _after(reached, chosen.numel(), graphs[0].num_sources, len(graphs) - 1)


def _of_all(graphs: tuple[AttentionGraph, ...], budget: int) -> Iterator[AttentionGraph]:
    """Sources that all targets of each layer depend on, from those of the layer before."""
    spent = _Spent(budget, "ask about fewer targets: targets=[t]")
    spent(sum(graph.num_targets for graph in graphs))
    before: AttentionGraph | None = None
    for number, graph in enumerate(graphs):
        T = graph.num_targets
        if before is None:
            reached = graph.edges.rows(torch.arange(T))
        else:
            cost = join_cost(graph.edges, before.edges)
            spent.refuse(spent.joined + cost)
            reached = spent.pulled(graph.edges.rows(torch.arange(T)), T, before)
        before = _after(reached, T, graphs[0].num_sources, number)
        yield before


def _after(reached: Runs, num_targets: int, num_sources: int, number: int) -> AttentionGraph:
    return AttentionGraph(
        of_runs(reached, num_targets, num_sources), f"receptive field after layer {number}"
    )


def graphs_of(layers: Layers, residual: bool = False) -> tuple[AttentionGraph, ...]:
    """The graph of each layer; where heads differ, the edges that some head has.

    Raises:
        GraphError: If a layer has graphs of examples, whose nodes have numbers of their own.
    """
    stack = layers_of(layers)
    for number, layer in enumerate(stack):
        if isinstance(layer, PerExample):
            raise GraphError(
                f"layer {number} has a graph for each example, {layer!r}; ask about one of them, "
                "graphs[b], or about all in one row of nodes, graphs.union()"
            )
    graphs = []
    for graph in unions(stack):
        if residual and graph.is_square:
            graph = graph.with_self_loops()
        graphs.append(graph)
    return tuple(graphs)


def graphs_and_targets(
    layers: Layers, targets: Any, subject: str, budget: int
) -> tuple[tuple[AttentionGraph, ...], Tensor]:
    """The graph of each layer and the chosen targets of the last, within a budget."""
    graphs = graphs_of(layers)
    budget = whole(budget, "budget", 1, GraphError)
    chosen = graphs[-1]._choice(targets, graphs[-1].num_targets, "targets")
    widest = max(max(graph.num_targets, graph.num_sources) for graph in graphs)
    subject = f"{subject} of {chosen.numel():,} targets"
    instead = "ask about fewer targets: targets=[t]"
    refuse_over(4 * chosen.numel() * widest, subject, instead, budget, "steps")
    return graphs, chosen


def last_field(graphs: tuple[AttentionGraph, ...], budget: int) -> Tensor:
    """Number of sources that each target of the last layer depends on, int64 (T,)."""
    *_, last = _of_all(graphs, budget)
    return last.in_degree.cpu()
