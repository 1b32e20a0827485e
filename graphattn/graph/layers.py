"""The graphs of the layers of a model, first layer first: one graph for all layers, or a list."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import torch
from torch import Tensor

from ..arguments import flag, several, whole
from ..errors import GraphError
from . import runs as _runs
from .advice import advice, no_graph
from .algebra import closed_product
from .graph import AttentionGraph
from .pattern import Pattern
from .per_head import PerHead
from .runs import Runs

Layer = AttentionGraph | PerHead | Pattern
Layers = Layer | Iterable[Layer]
_MOST_LAYERS = 1 << 20
_PAIRS, _SAMPLED = 10**8, 64  # pairs that layers join in seconds; targets by which they are estimated
_TRACED = 128  # layers through which these are traced back; of later ones the degrees are multiplied


def layers_of(layers: Layers, num_layers: int | None = None) -> tuple[Layer, ...]:
    """The graph of each layer, from one graph for all of them or from a list.

    Raises:
        GraphError: If there is none, one is something else, or the targets of a layer are not as many as the sources
            of the next one, or there are not ``num_layers``.
    """
    num_layers = None if num_layers is None else whole(num_layers, "num_layers", 1, GraphError)
    if num_layers is not None and num_layers > _MOST_LAYERS:
        raise GraphError(f"num_layers must be at most {_MOST_LAYERS:,}, got {num_layers}")
    if isinstance(layers, Layer):
        return (layers,) * (num_layers or 1)
    expected = "layers must be a graph or a list of graphs, first layer first"
    if not isinstance(layers, list | tuple) and (isinstance(layers, Tensor) or advice(layers) is not None):
        raise no_graph(layers, expected)
    given = tuple(several(layers, "layers", expected.removeprefix("layers "), GraphError))
    if not given:
        raise GraphError("layers must be at least one graph, got none")
    for number, layer in enumerate(given):
        if not isinstance(layer, Layer):
            raise no_graph(layer, f"layer {number} must be an AttentionGraph, PerHead or Pattern")
        before = given[number - 1] if number else layer
        if isinstance(layer, Pattern) or isinstance(before, Pattern) or not number:
            continue
        if layer.num_sources != before.num_targets:
            raise GraphError(
                f"layer {number} reads {layer.num_sources} sources, but layer {number - 1} has "
                f"{before.num_targets} targets; the targets of a layer are the sources of the next"
            )
    if num_layers is not None and len(given) != num_layers:
        raise GraphError(f"{num_layers} layers need as many graphs, got {len(given)}; [a, b] * 3 repeats a list")
    return given


def sized_layers(layers: Layers, size: int | tuple[int, ...]) -> tuple[Layer, ...]:
    """The layers with their patterns in that size; graphs stay as they are."""
    return layers_of([layer(size) if isinstance(layer, Pattern) else layer for layer in layers_of(layers)])


def unions(layers: Layers) -> tuple[AttentionGraph, ...]:
    """The graph of each layer; of a layer whose heads differ, the edges that some head has.

    Raises:
        GraphError: If a layer is a pattern, whose size is open.
    """
    graphs = []
    for number, layer in enumerate(layers_of(layers)):
        if isinstance(layer, Pattern):
            raise GraphError(f"layer {number} is {layer!r}: give it a size, pattern(num_nodes), first")
        graphs.append(layer.union() if isinstance(layer, PerHead) else layer)
    return tuple(graphs)


def reach(layers: Layers, *, residual: bool = False, budget: int = _PAIRS) -> AttentionGraph:
    """Which sources of the first layer each target of the last one depends on: the composition of the layers.

    Args:
        layers: One graph, or a list of graphs, first layer first. Layers may change the number of nodes (pooling).
        residual: Whether every target of a square layer also keeps what it has (a residual connection).
        budget: Pairs that may be joined by all layers together, where no closed form answers; estimated beforehand.

    Raises:
        GraphError: If the nodes of two layers do not meet, a layer is a pattern without a size, or it costs more than
            ``budget``.

    Example:
        >>> from graphattn.graphs import cell_partition
        >>> plain, shifted = cell_partition((8, 8), (4, 4)), cell_partition((8, 8), (4, 4), shift=(2, 2))
        >>> swin = [plain, shifted] * 3
        >>> [reach(swin[:depth]).density for depth in (1, 2, 3)]  # after three layers every node depends on all
        [0.25, 0.5625, 1.0]
    """
    flag(residual, "residual", GraphError)
    budget = whole(budget, "budget", 1, GraphError)
    graphs = unions(layers)
    if residual:
        graphs = tuple(graph.with_self_loops() if graph.is_square else graph for graph in graphs)
    before, *rest = graphs
    while rest and closed_product(rest[0].edges, before.edges) is not None:
        before = rest.pop(0) @ before
    if rest:
        bounded((before, *rest), budget, "reach", f"compose a part of it, a subgraph(), or try budget={8 * budget}")
    return reduce(lambda before, layer: layer @ before, rest, before)


def bounded(graphs: Sequence[AttentionGraph], most: int, what: str, instead: str) -> None:
    """Refuse layers that join too many pairs of nodes, before any are joined: by what some targets depend on."""
    most_of_all = max(graph.num_targets for graph in graphs) * max(graph.num_sources for graph in graphs)
    joined, before = 0.0, 1.0

    def refuse(pairs: float) -> None:
        if pairs > most:
            raise GraphError(f"{what} would join about {int(pairs):,} pairs or more (limit {most:,}); {instead}")

    for number, graph in enumerate(graphs if most_of_all * len(graphs) > most >> 2 else ()):
        T = graph.num_targets
        target = torch.linspace(0, T - 1, min(T, _SAMPLED), dtype=torch.float64).long()
        scale = T / max(1, target.numel())
        reached = pulled(Runs(torch.arange(target.numel()), target, target + 1), graph)
        edges = int((reached.hi - reached.lo).sum())
        joined += scale * before * edges
        refuse(joined)
        if number >= _TRACED:
            before = min(graphs[0].num_sources, before * edges / max(1, target.numel()))
            continue
        for layer in reversed(graphs[:number]):
            reached = pulled(reached, layer, lambda pairs: refuse(scale * pairs))  # noqa: B023
        before = int((reached.hi - reached.lo).sum()) / max(1, target.numel())


def pulled(reached: Runs, layer: AttentionGraph, refuse: Callable[[int], None] = lambda pairs: None) -> Runs:
    """What each row reads, from the targets of a layer that it depends on; ``refuse`` is told how many pairs."""
    refuse(int((reached.hi - reached.lo).sum()))
    row, target = _runs.expand(reached)
    distinct, place = torch.unique(target, return_inverse=True)
    runs = layer.edges.runs(distinct)
    counts = torch.bincount(runs.row, minlength=distinct.numel())
    refuse(int(counts[place].sum()))
    owner, within = _runs.spread(counts[place])
    which = (torch.cumsum(counts, 0) - counts)[place][owner] + within
    return _runs.in_order(Runs(row[owner], runs.lo[which], runs.hi[which]), layer.num_sources)
