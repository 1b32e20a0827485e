"""An operator that checks and sorts an ``edge_index``, so that a compiled program holds it whole."""

import torch
from torch import Tensor

from ..graph.edge_index import from_edge_index
from .grouped import by_source, by_target


@torch.library.custom_op("graphattn::edges_of_index", mutates_args=())
def edges_of_index(edge_index: Tensor, num_targets: int, num_sources: int) -> list[Tensor]:
    """The layouts by target and by source, one after the other, of an ``edge_index`` (2, E)."""
    graph = from_edge_index(edge_index, num_sources, num_targets)
    device = edge_index.device
    return [*by_target(graph, device), *by_source(graph, device)]


@edges_of_index.register_fake
def _(edge_index: Tensor, num_targets: int, num_sources: int) -> list[Tensor]:
    E = edge_index.shape[1]
    small = torch.int64
    if max(num_targets, num_sources, E) < 2**31:
        small = torch.int32
    layouts = []
    for size in (num_targets, num_sources):
        layouts.append(edge_index.new_empty(size + 1, dtype=torch.int64))
        layouts += [edge_index.new_empty(length, dtype=small) for length in (E, E, size)]
    return layouts
