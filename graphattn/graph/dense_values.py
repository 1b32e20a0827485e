"""Numbers of edges from a matrix of all pairs of nodes, and back."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import check_shape
from ..errors import ShapeError
from .limits import refuse_over


def edge_values(graph: Any, matrix: Tensor) -> Tensor:
    """The numbers (..., E, H) of a matrix (..., H, T, S) at the edges; (E,) of (T, S)."""
    T = graph.num_targets
    S = graph.num_sources
    check_shape(matrix, "matrix", (..., T, S))
    pairs = matrix.flatten(-2)
    if not graph._lists_all_pairs:
        pairs = pairs.index_select(-1, _places(graph, matrix.device))
    if pairs.dim() == 1:
        return pairs
    return pairs.transpose(-2, -1)


def dense_values(graph: Any, values: Tensor, fill: float) -> Tensor:
    """The matrix (..., H, T, S) of numbers (..., E, H) of edges; (T, S) of (E,)."""
    check_values(values, graph.num_edges)
    if values.dim() > 1:
        values = values.transpose(-2, -1)
    T = graph.num_targets
    S = graph.num_sources
    size = values.shape[:-1].numel() * T * S * values.element_size()
    refuse_over(size, f"the matrix of {T:,} x {S:,} pairs", "take a part with subgraph()")
    places = _places(graph, values.device)
    pairs = values.new_zeros(*values.shape[:-1], T * S).index_add(-1, places, values)
    if fill != 0:
        absent = torch.ones(T * S, dtype=torch.bool, device=values.device)
        absent[places] = False
        pairs = pairs.masked_fill(absent, fill)
    return pairs.unflatten(-1, (T, S))


def check_values(values: Any, num_edges: int) -> None:
    """Refuse anything but numbers of edges, (E,) or (..., E, H)."""
    if values.shape[-2:][:1] != (num_edges,):
        raise ShapeError(
            f"values must be ({num_edges},) or (..., {num_edges}, heads), got {tuple(values.shape)}"
        )


def _places(graph: Any, device: torch.device) -> Tensor:
    """The number of each edge among all pairs, int64 (E,), row by row."""
    return (graph.target * graph.num_sources + graph.source).to(device)
