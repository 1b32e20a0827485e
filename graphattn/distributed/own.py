"""The edges into some targets of a graph, and the rows of sources that they read."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.sort import offsets
from ..plans.grouped import by_target, rows_in_order


class OwnEdges(NamedTuple):
    """The edges into own targets: ``ptr`` int64 (T_p + 1,); ``source`` and ``edge``, int64 (E_p,), numbers in the whole
    graph, by target and then by source.
    """

    ptr: Tensor
    source: Tensor
    edge: Tensor


def edges_into(graph: AttentionGraph, owned: Tensor) -> OwnEdges:
    """The edges into some targets (T_p,); those of a rule are listed without any others."""
    if graph.edges.is_listed:
        layout = by_target(graph)
        ptr, place = rows_in_order(layout.ptr, owned)
        return OwnEdges(ptr, layout.node[place].long(), layout.edge[place].long())
    row, source = _runs.expand(graph.edges.rows(owned))
    ptr = offsets(torch.bincount(row, minlength=owned.numel()))
    first = offsets(graph.in_degree.cpu())[owned]  # in the whole graph's order, which is by target
    return OwnEdges(ptr, source, torch.arange(source.numel()) + (first - ptr[:-1])[row])


def remote(source: Tensor, owner: Tensor, process: int) -> Tensor:
    """The sources of others among those of some edges, each once, by owner and then by number."""
    away = torch.unique(source[owner[source] != process])
    return away[torch.argsort(owner[away], stable=True)]
