"""``facts``: what is known in seconds about a graph, about graphs of heads, or about the layers of a model."""

from typing import Any, overload

from ..arguments import whole
from ..errors import GraphError
from ..graph import AttentionGraph, Pattern, PerHead
from ..graph.layers import Layer, layers_of, sized_layers
from ..graph.need import need_graph
from .facts_of_many import FactsOfMany, facts_of_heads, facts_of_layers
from .facts_of_one import Facts as Facts
from .facts_of_one import facts_of_one

_SEARCHED = 1 << 26


@overload
def facts(graph: AttentionGraph, *, size: Any = None, budget: int = _SEARCHED) -> Facts: ...
@overload
def facts(graph: Any, *, size: Any = None, budget: int = _SEARCHED) -> Any: ...
def facts(graph: Any, *, size: Any = None, budget: int = _SEARCHED) -> Facts | FactsOfMany:
    """Everything about a graph that is known in seconds, exact; what costs more is named in ``left_out``.

    Sizes, degrees, causal, symmetric, self-loops, isolated targets and unused sources; components, cycles and roots;
    hops until everything, or every node's past, is read; up to 512 nodes, the spectral gap.

    Args:
        graph: A graph; a :class:`PerHead`; or the layers of a model, first layer first, as a list.
        size: Of patterns, whose size is open: a number of nodes, or (height, width).
        budget: Edges that each search may look at: for hops, through layers, and, weighed, for parts and degrees.
    Returns:
        Facts of a graph; a :class:`FactsOfMany` of several graphs, with the facts of each, those of the union of heads,
        and how many sources the last layer depends on.
    Raises:
        GraphError: If it is no graph, or its nodes, or the intervals of sources of its rows, are more than
            ``budget / 4`` in all.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> found = facts(sliding_window(100_000, window=257))
        >>> found.acyclic, found.roots, found.hops, found.reads_past
        (True, 1, 391, True)
    """
    budget = whole(budget, "budget", 1, GraphError)

    def of(graph: AttentionGraph, among: int = 1) -> Facts:
        return facts_of_one(graph, budget, among)

    if isinstance(graph, Pattern) and size is not None:
        graph = graph(size)
    if isinstance(graph, PerHead):
        return facts_of_heads(graph, of)
    if isinstance(graph, list | tuple):
        return facts_of_layers(_sized(graph, size), of, budget)
    need_graph(graph, "facts")
    return of(graph)


def _sized(layers: Any, size: Any) -> tuple[Layer, ...]:
    """The layers, their patterns in that size."""
    if size is not None:
        return sized_layers(layers, size)
    graphs = layers_of(layers)
    for number, layer in enumerate(graphs):
        if isinstance(layer, Pattern):
            raise GraphError(f"facts needs the size of layer {number}, {layer!r}: pass size=N, or size=(height, width)")
    return graphs
