"""The edges into some targets of a graph, and the rows of sources that they read."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.sort import offsets, rows_of
from ..kernels.cuda.row_work import Degrees, part_of
from ..operands import Inputs
from ..plans.edge_tensors import EdgeTensors
from ..plans.grouped import EdgeLayout, by_target, rows_in_order


class OwnEdges(NamedTuple):
    """The edges into own targets, by target and then by source.

    ``ptr`` int64 (T_p + 1,); ``source`` and ``edge``, int64 (E_p,), numbers in the whole graph.
    Edges of a rule are counted here, until ``number`` asks for the degrees of all; ``degrees`` are
    those of the whole graph.
    """

    ptr: Tensor
    source: Tensor
    edge: Tensor
    number: Callable[[Tensor], Tensor] | None = None
    degrees: Degrees | None = None

    def numbered(self) -> "OwnEdges":
        """Own edges with numbers in the whole graph."""
        if self.number is None:
            return self
        return self._replace(edge=self.number(self.edge), number=None)

    def rows(self, order: Tensor) -> "OwnEdges":
        """The edges into these targets, in another order."""
        ptr, place = rows_in_order(self.ptr, order)
        return self._replace(ptr=ptr, source=self.source[place], edge=self.edge[place])


def edges_into(graph: AttentionGraph, owned: Tensor) -> OwnEdges:
    """The edges into some targets (T_p,); those of a rule are listed without any others."""
    if graph.edges.is_listed:
        layout = by_target(graph)
        own_edges = OwnEdges(*layout[:3]).rows(owned)
        return OwnEdges(own_edges.ptr, own_edges.source.long(), own_edges.edge.long())
    row, source = _runs.expand(graph.edges.rows(owned))
    ptr = offsets(torch.bincount(row, minlength=owned.numel()))

    def number(edge: Tensor) -> Tensor:  # in the whole graph's order, which is by target
        return (
            edge.cpu()
            + (offsets(graph.in_degree.cpu())[owned] - ptr[:-1])[rows_of(ptr)[edge.cpu()]]
        )

    return OwnEdges(ptr, source, torch.arange(source.numel()), number)


def remote(source: Tensor, owner: Tensor, process: int) -> Tensor:
    """The sources of others among those of some edges, each once, by owner and then by number."""
    away = torch.unique(source[owner[source] != process])
    return away[torch.argsort(owner[away], stable=True)]


def local_edges(
    own_edges: OwnEdges, column: Tensor, columns: int, device: torch.device
) -> tuple[Tensor, EdgeTensors]:
    """The indices of own edges, ascending, and the edges over some columns, without a sort."""
    edges, order = torch.sort(own_edges.edge)
    layout = EdgeLayout(
        own_edges.ptr, column, torch.argsort(order), torch.arange(own_edges.ptr.numel() - 1)
    )
    local = EdgeTensors.of(layout, columns, device)
    if own_edges.degrees is not None:
        part_of(own_edges.degrees, local._by_target[0])
    name = own_edges.edge.to(device, local._by_target[2].dtype)
    number = own_edges.number
    local._named = lambda: name if number is None else number(name)
    return edges, local


class Some(NamedTuple):
    """Some of a process's own edges; ``place`` (e,), int64: where they are among all of them."""

    local: EdgeTensors
    place: Tensor

    @classmethod
    def of(
        cls, own_edges: OwnEdges, place: Tensor, columns: int, all_edges: EdgeTensors, edges: Tensor
    ) -> "Some":
        """Edges of all by index (E_p,), ascending; a source is the column ``place`` (S,)."""
        numbers, local = local_edges(own_edges, place[own_edges.source], columns, all_edges.device)
        local.seed_of_all = all_edges.seed_of_all
        return cls(local, torch.searchsorted(edges, numbers).to(all_edges.device))

    def inputs_of(self, inputs: Inputs, key: Tensor, value: Tensor) -> Inputs:
        """A call on these edges alone, with other rows of sources."""
        bias, attr = (
            x if x is None else x.index_select(-2, self.place)
            for x in (inputs.score_bias, inputs.edge_attr)
        )
        return replace(inputs, key=key, value=value, score_bias=bias, edge_attr=attr)
