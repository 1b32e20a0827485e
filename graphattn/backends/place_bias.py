"""Biases that are functions of the places of target and source, such as of their distance."""

from itertools import chain
from typing import Any, NamedTuple

from torch import Tensor

from ..errors import ShapeError
from ..graph import AttentionGraph
from ..plans.grouped import ends
from .rows import is_changed

FEW = 1 << 12  # edges, whose biases take no longer as a tensor
WORTH = 4  # edges for each row of a table of all offsets


class PlaceBias(NamedTuple):
    """Numbers (E, H) of edges as rows ``of_targets[t] - of_sources[s]`` of a table.

    The table has a row for every pair of a target and a source, edge or not.
    """

    table: Tensor  # (V, H or 1)
    of_targets: Tensor  # int32 (T,)
    of_sources: Tensor  # int32 (S,)

    def on(self, graph: AttentionGraph) -> Tensor:
        """The numbers of all edges of a graph, (E, H or 1)."""
        target, source = ends(graph, self.table.device)
        return self.table.index_select(0, self.of_targets[target] - self.of_sources[source])

    def fits(self, query: Tensor) -> bool:
        """True if the table is of the query's heads and on its device."""
        return self.table.shape[1] in (1, query.shape[-2]) and self.table.device == query.device


def is_made(score_bias: Any) -> bool:
    """True of a module or function, which makes a bias of a graph."""
    # Dynamo cannot ask of a dict if it is callable
    return not isinstance(score_bias, dict) and callable(score_bias)


def by_place(bias: Any, graph: Any, *arguments: Any) -> Any:
    """``bias(graph, *arguments)``, as a :class:`PlaceBias` where :func:`has_places` and a module's
    method ``places`` makes one.
    """
    result = None
    if has_places(bias, graph):
        result = bias.places(graph, *arguments)
    if result is None:
        result = bias(graph, *arguments)
    if result is None:
        raise ShapeError("score_bias must return a bias of the edges, (E, H), got None")
    return result


def has_places(bias: Any, graph: Any) -> bool:
    """True if a module makes a table of places of a graph of many edges, on the CPU.

    Hooks, or a ``forward`` of another file than ``places``, may compute other numbers.
    """
    kind = type(bias)
    if not hasattr(kind, "places") or not isinstance(graph, AttentionGraph):
        return False
    if kind.forward.__module__ != kind.places.__module__ or any(map(is_changed, bias.modules())):
        return False
    least = max(FEW, WORTH * (graph.num_targets + graph.num_sources))
    on_cpu = all(x.is_cpu for x in chain(bias.parameters(), bias.buffers()))
    return on_cpu and graph.num_edges >= least
