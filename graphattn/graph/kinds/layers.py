"""The graphs of the layers of a model, first layer first: one graph for all layers, or a list."""

from collections.abc import Iterable
from typing import Any

from ...arguments import whole
from ...errors import GraphError
from ..advice import advice, no_graph
from ..algebra import join_cost
from ..deferred.chosen import Chosen
from ..deferred.pattern import Pattern
from ..graph import AttentionGraph
from ..limits import refuse_over
from .joined import joined, padded
from .per_example import PerExample
from .per_head import PerHead

Layer = AttentionGraph | PerHead | PerExample | Pattern | Chosen
Layers = Layer | Iterable[Layer]
_JOINED = 10**8  # default budget in rows of sources: seconds


def layers_of(layers: Layers, num_layers: int | None = None) -> tuple[Layer, ...]:
    """The graph of each layer, from one graph for all of them or from a list.

    Raises:
        GraphError: If the list is empty or holds anything but graphs, if the number of targets of a
            layer differs from the number of sources of the next, or if there are not
            ``num_layers``.
    """
    copies = 1
    if num_layers is not None:
        copies = whole(num_layers, "num_layers", 1, GraphError)
    if isinstance(layers, Layer):
        return (layers,) * copies
    expected = "layers must be a graph or a list of graphs, first layer first"
    is_list = isinstance(layers, list | tuple)
    if not is_list and (not isinstance(layers, Iterable) or advice(layers) is not None):
        raise no_graph(layers, expected)
    graphs = tuple(layers)
    if not graphs:
        raise GraphError("layers must be at least one graph, got none")
    for number, layer in enumerate(graphs):
        if not isinstance(layer, Layer):
            raise no_graph(
                layer, f"layer {number} must be an AttentionGraph, PerHead, PerExample or Pattern"
            )
        if not number:
            continue
        before = graphs[number - 1]
        if layer.is_open or before.is_open:
            continue
        if layer.num_sources != before.num_targets:
            raise GraphError(
                f"layer {number} reads {layer.num_sources} sources, but layer {number - 1} has "
                f"{before.num_targets} targets; the targets of a layer are the sources of the next"
            )
    if num_layers is not None and len(graphs) != copies:
        raise GraphError(
            f"{copies} layers need as many graphs, got {len(graphs)}; [a, b] * 3 repeats a list"
        )
    return graphs


def sized_layers(layers: Layers, size: int | tuple[int, ...]) -> tuple[Layer, ...]:
    """The layers with their patterns at that size; graphs stay as they are."""
    return layers_of([layer.at(size) for layer in layers_of(layers)])


def unions(layers: Layers) -> tuple[AttentionGraph, ...]:
    """The graph of each layer; for a layer of ``PerHead``, ``PerExample`` or ``Chosen``, its union.

    Raises:
        GraphError: If a layer is a pattern, whose size is open.
    """
    return tuple(layer.union() for layer in in_a_row(layers))


def in_a_row(layers: Layers) -> tuple[Any, ...]:
    """The graph of each layer; if one has graphs of examples, all have these side by side.

    Raises:
        GraphError: If a layer is a pattern, whose size is open, or their numbers of examples differ.
    """
    graphs = layers_of(layers)
    for number, layer in enumerate(graphs):
        if layer.is_open:
            raise GraphError(
                f"layer {number} is {layer!r}: give it a size, pattern(num_nodes), first"
            )
    if not any(isinstance(layer, PerExample) for layer in graphs):
        return graphs
    return tuple(
        joined(of_layer, padded=True) for of_layer in zip(*examples_of(graphs), strict=True)
    )


def number_of_examples(layers: Iterable[Any]) -> int:
    """B of layers with graphs of examples; 1 without."""
    numbers = {layer.num_examples for layer in layers if isinstance(layer, PerExample)}
    if len(numbers) > 1:
        raise GraphError(
            f"layers must have as many examples, got graphs of {min(numbers)} and {max(numbers)}"
        )
    return max(numbers, default=1)


def examples_of(layers: tuple[Layer, ...]) -> list[tuple[Any, ...]]:
    """The layers of each example, padded; those with one graph for all have it in each.

    Raises:
        GraphError: If two layers have other numbers of examples.
    """
    B = number_of_examples(layers)
    columns = []
    for layer in layers:
        sizes = (layer.num_targets, layer.num_sources)
        graphs = {graph: padded(graph, *sizes) for graph in dict.fromkeys(layer._example_graphs)}
        column = [graphs[graph] for graph in layer._example_graphs]
        columns.append(column * (B // len(column)))
    return list(zip(*columns, strict=True))


def _with_own_values(graph: AttentionGraph) -> AttentionGraph:
    if graph.is_square:
        return graph.with_self_loops()
    return graph


def reach(layers: Layers, *, residual: bool = False, budget: int = _JOINED) -> AttentionGraph:
    """The composition of the layers: an edge where a target of the last layer depends on a source.

    Args:
        layers: One graph, or a list of graphs, first layer first. Layers may change the number of
            nodes (pooling).
        residual: True if every target of a square layer also keeps its own value (a residual
            connection).
        budget: Limit of the rows of sources joined in all layers together; estimated beforehand.

    Raises:
        GraphError: If the sizes of two layers do not match, a layer is a pattern without a size, or
            the estimated cost exceeds ``budget``.

    Example:
        >>> from graphattn.graphs import window_partition
        >>> plain, shifted = window_partition((8, 8), (4, 4)), window_partition((8, 8), (4, 4), shift=(2, 2))
        >>> swin = [plain, shifted] * 3
        >>> [reach(swin[:depth]).density for depth in (1, 2, 3)]  # after three layers every node depends on all
        [0.25, 0.5625, 1.0]
    """
    budget = whole(budget, "budget", 1, GraphError)
    graphs = unions(layers)
    if residual:
        graphs = tuple(map(_with_own_values, graphs))
    before, *later = graphs
    joined = 0
    for layer in later:
        joined += join_cost(layer.edges, before.edges)
        instead = f"compose a part of it, a subgraph(), or try budget={8 * joined}"
        refuse_over(joined, "reach", instead, budget, "rows of sources or more")
        before = layer @ before
    return before
