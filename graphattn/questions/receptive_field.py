"""Receptive fields: the sources that a target depends on after each layer."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import kinds_checked
from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.edge_set import EdgeSet
from ..graph.layers import Layers, bounded, pulled, unions
from ..graph.listed import Listed
from ..graph.runs import Runs
from .forms import Intervals, intervals, runs_of
from .walks import BUDGET


class Rows(EdgeSet):
    """Target ``t`` reads the sources ``lo[t] .. hi[t] - 1``."""

    def __init__(self, lo: Tensor, hi: Tensor, num_sources: int) -> None:
        self.lo, self.hi = lo, hi
        self.num_targets, self.num_sources = lo.numel(), num_sources

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        lo, hi = self.lo.to(target.device), self.hi.to(target.device)
        return (source >= lo[target]) & (source < hi[target])

    def runs(self, target: Tensor) -> Runs:
        return Runs(torch.arange(target.numel()), self.lo[target], self.hi[target])

    def count(self) -> int:
        return int((self.hi - self.lo).sum())


@dataclass(frozen=True)
class ReceptiveField:
    """What :func:`receptive_field` found.

    Args:
        targets: The targets in question, int64 (n,), or ``None`` for all of each layer.
        graphs: For each layer, first layer first: which sources of the first layer each of the targets depends on
            after it; row ``i`` is ``targets[i]``, and is empty where a layer has no such target.
    """

    targets: Tensor | None
    graphs: tuple[AttentionGraph, ...]

    @property
    def sizes(self) -> tuple[Tensor, ...]:
        """For each layer int64 (n,): how many sources each target depends on after it."""
        return tuple(graph.in_degree.cpu() for graph in self.graphs)

    def to_dict(self) -> dict[str, Any]:
        """For each layer the least, the mean and the most that a target depends on, and the number of sources."""
        rows = [dict(zip(("least", "mean", "most"), spread(size), strict=True)) for size in self.sizes]
        return {"targets": self.graphs[-1].num_targets, "sources": self.graphs[0].num_sources, "layers": rows}

    def __str__(self) -> str:
        table = self.to_dict()
        who = f"{table['targets']:,} target{'s' * (table['targets'] != 1)}"
        lines = [f"sources in the receptive field, of {table['sources']:,}, at {who}:"]
        for number, row in enumerate(table["layers"]):
            spread = f"{row['least']:,} to {row['most']:,}, mean {row['mean']:,.5g}"
            lines.append(f"  after layer {number}: {row['most'] if row['least'] == row['most'] else spread}")
        return "\n".join(lines)


def spread(size: Tensor) -> tuple[int, float, int]:
    """The least, the mean and the most of some numbers; zeros of none."""
    return (int(size.min()), float(size.double().mean()), int(size.max())) if size.numel() else (0, 0.0, 0)


@kinds_checked("residual", "budget")
def receptive_field(
    layers: Layers, targets: Any = None, *, residual: bool = False, budget: int = BUDGET
) -> ReceptiveField:
    """Which sources of the first layer a target depends on after each layer: the support of the Jacobian.

    Args:
        layers: One graph, or a list of graphs, first layer first.
        targets: Indices (n,) of the targets in question; all by default. One or a few are cheap on any rule.
        residual: Whether every target of a square layer also keeps what it has (a residual connection). ``False`` by
            default, as the question is about the graphs; ``leaks`` and ``find_leaks``, about a model, have ``True``.
        budget: Pairs that may be looked at.
    Raises:
        GraphError: If the layers do not meet, the last one lacks a target, or it costs more than ``budget``.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> wavenet = [sliding_window(100_000, window=2, dilation=d) for d in (1, 2, 4, 8)]
        >>> print(receptive_field(wavenet, targets=[99_999]))
        sources in the receptive field, of 100,000, at 1 target:
          after layer 0: 2
          after layer 1: 4
          after layer 2: 8
          after layer 3: 16
    """
    graphs = graphs_of(layers, residual)
    if targets is None:
        every = _of_intervals(graphs)
        if every is not None:
            return ReceptiveField(None, tuple(every))
    chosen = None if targets is None else graphs[-1]._choice(targets, graphs[-1].num_targets, "targets")
    if chosen is None:
        bounded(graphs, budget >> 2, "receptive_field", "ask about fewer targets: targets=[t]")
    fields = [_field(graphs[: number + 1], chosen, budget) for number in range(len(graphs))]
    return ReceptiveField(chosen, tuple(fields))


def _field(graphs: tuple[AttentionGraph, ...], chosen: Tensor | None, budget: int) -> AttentionGraph:
    """What the chosen targets of the last of these layers depend on."""
    T = graphs[-1].num_targets
    chosen = torch.arange(T) if chosen is None else chosen
    there = torch.nonzero(chosen < T).flatten()
    reached = Runs(there, chosen[there], chosen[there] + 1)

    def refuse(pairs: int) -> None:
        if pairs > budget >> 2:
            raise GraphError(
                f"receptive_field looks at {pairs:,} pairs (limit {budget >> 2:,}); "
                "ask about fewer targets: targets=[t]"
            )

    for layer in reversed(graphs):
        refuse(layer.edges.runs_per_row * min(layer.num_targets, int((reached.hi - reached.lo).sum())) >> 2)
        reached = pulled(reached, layer, refuse)
    refuse(int((reached.hi - reached.lo).sum()))
    row, source = _runs.expand(reached)
    edges = Listed(row, source, chosen.numel(), graphs[0].num_sources)
    return AttentionGraph(edges, f"receptive field after layer {len(graphs) - 1}")


def graphs_of(layers: Layers, residual: bool = False) -> tuple[AttentionGraph, ...]:
    """The graph of each layer; where heads differ, the edges that some head has."""
    graphs = unions(layers)
    return tuple(graph.with_self_loops() if residual and graph.is_square else graph for graph in graphs)


def _of_intervals(graphs: tuple[AttentionGraph, ...]) -> list[AttentionGraph] | None:
    """The fields of all targets where every layer is one interval per row: the ends of the ends."""
    if len({(graph.num_targets, graph.num_sources) for graph in graphs}) > 1 or not all(g.is_rule for g in graphs):
        return None
    known: dict[AttentionGraph, Intervals | None] = {}
    result: list[AttentionGraph] = []
    before: Intervals | None = None
    for number, graph in enumerate(graphs):
        if graph not in known:
            known[graph] = intervals(runs_of(graph.edges), graph.num_targets)
        rows = known[graph]
        if rows is None:
            return None
        if before is not None:
            some = rows.hi > rows.lo
            lo = before.lo[rows.lo.clamp(max=before.lo.numel() - 1)]
            rows = Intervals(lo, torch.where(some, before.hi[(rows.hi - 1).clamp(min=0)], lo))
        before = rows
        edges = Rows(rows.lo, rows.hi, graphs[0].num_sources)
        result.append(AttentionGraph(edges, f"receptive field after layer {number}"))
    return result


def last_field(graphs: tuple[AttentionGraph, ...], budget: int) -> Tensor:
    """How many sources each target of the last layer depends on, int64 (T,)."""
    every = _of_intervals(graphs)
    if every is None:
        bounded(graphs, budget >> 2, "receptive_field", "ask it about fewer targets: targets=[t]")
    return (_field(graphs, None, budget) if every is None else every[-1]).in_degree.cpu()
