"""Biases of parts of a graph, such as one of two graphs in a union."""

from functools import partial

import torch
from torch import Tensor

from ..errors import GraphError
from .graph import AttentionGraph, need_nodes
from .modes import Memo, constant_result, keep

_MOST_KEPT = 64


class PartBiases:
    """Numbers (..., E, H) of a graph's edges as sums of those of parts; 0 where no part has one.

    Args:
        parts: Graphs of some edges, with numbers (..., E_p, H or 1) in their edge order.
    """

    def __init__(self, parts: dict[AttentionGraph, Tensor]) -> None:
        self.parts = parts

    def within(self, graph: AttentionGraph) -> "PartBiases":
        """These numbers, if all parts are of that graph.

        Raises:
            GraphError: If a part has other nodes, or an edge that the graph lacks.
        """
        for part in self.parts:
            _places_within(graph, part)
        return self

    def on(self, graph: AttentionGraph) -> Tensor | None:
        """The numbers of all edges of a graph, (..., E, H or 1); ``None`` without parts."""
        total: Tensor | None = None
        for part, numbers in self.parts.items():
            places = _places_within(graph, part).to(numbers.device)
            lead = numbers.shape[:-2]
            everywhere = numbers.new_zeros(*lead, graph.num_edges, numbers.shape[-1])
            spread = everywhere.index_add(-2, places, numbers)
            if total is None:
                total = spread
            else:
                total = total + spread
        return total


def places_of(graph: AttentionGraph, target: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """The number of each edge in a graph, int64 (E,), and True where the graph has it."""
    listed = graph._listed()
    device = target.device
    key = listed.key.to(device)
    if key.numel() == 0:
        return torch.zeros_like(target), torch.zeros_like(target, dtype=torch.bool)
    wanted = target * graph.num_sources + source
    at = torch.searchsorted(key, wanted).clamp(max=key.numel() - 1)
    return listed.order.to(device)[at], key[at] == wanted


@constant_result
def _places_within(graph: AttentionGraph, part: AttentionGraph) -> Tensor:
    """The numbers of a part's edges in a graph, kept by the graph."""
    kept: Memo = keep(graph._memo, "places of parts", Memo)
    return keep(kept, part, partial(_found_within, graph, part), _MOST_KEPT)


def _found_within(graph: AttentionGraph, part: AttentionGraph) -> Tensor:
    need_nodes(part, f"a part of {graph!r}", graph.num_targets, graph.num_sources)
    if graph.has_repeated_edges:
        raise GraphError(f"a bias of parts needs distinct edges, and {graph!r} repeats some")
    places, found = places_of(graph, part.target, part.source)
    if not bool(found.all()):
        first = int(torch.nonzero(~found)[0])
        edge = f"{int(part.source[first])} -> {int(part.target[first])}"
        raise GraphError(f"the part {part!r} has the edge {edge}, which {graph!r} lacks")
    return places
