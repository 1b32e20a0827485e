"""The edges into some targets of a graph, and the rows of sources that they read."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.sort import offsets
from ..plans.edge_tensors import EdgeTensors
from ..plans.grouped import EdgeLayout, by_target, rows_in_order


class OwnEdges(NamedTuple):
    """The edges into own targets: ``ptr`` int64 (T_p + 1,); ``source`` and ``edge``, int64 (E_p,), numbers in the whole
    graph, by target and then by source.
    """

    ptr: Tensor
    source: Tensor
    edge: Tensor

    def rows(self, order: Tensor) -> "OwnEdges":
        """The edges into these targets, in another order."""
        ptr, place = rows_in_order(self.ptr, order)
        return OwnEdges(ptr, self.source[place], self.edge[place])


def edges_into(graph: AttentionGraph, owned: Tensor) -> OwnEdges:
    """The edges into some targets (T_p,); those of a rule are listed without any others."""
    if graph.edges.is_listed:
        layout = by_target(graph)
        own = OwnEdges(*layout[:3]).rows(owned)
        return OwnEdges(own.ptr, own.source.long(), own.edge.long())
    row, source = _runs.expand(graph.edges.rows(owned))
    ptr = offsets(torch.bincount(row, minlength=owned.numel()))
    first = offsets(graph.in_degree.cpu())[owned]  # in the whole graph's order, which is by target
    return OwnEdges(ptr, source, torch.arange(source.numel()) + (first - ptr[:-1])[row])


def remote(source: Tensor, owner: Tensor, process: int) -> Tensor:
    """The sources of others among those of some edges, each once, by owner and then by number."""
    away = torch.unique(source[owner[source] != process])
    return away[torch.argsort(owner[away], stable=True)]


def local_edges(own: OwnEdges, column: Tensor, columns: int, device: torch.device) -> tuple[Tensor, EdgeTensors]:
    """The numbers of own edges, ascending, and the edges over so many columns, which sums of a target do not sort."""
    edges, order = torch.sort(own.edge)
    layout = EdgeLayout(own.ptr, column, torch.argsort(order), torch.arange(own.ptr.numel() - 1))
    local = EdgeTensors.of(layout, columns, device)
    local.names = own.edge.to(device, local._by_target[2].dtype)
    return edges, local
