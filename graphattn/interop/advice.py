"""What to call instead, for the many things that people pass as a graph."""

from typing import Any

import torch
from torch import Tensor

_WAYS = {  # by the module that a type, or one that it inherits from, is defined in
    "torch_geometric.data": "pass graphattn.from_pyg(data), or to a layer data.edge_index",
    "torch_sparse": "pass graphattn.from_edge_index(torch.stack((col, row)), ...), where row, col, _ = adj_t.coo()",
    "networkx": "pass graphattn.from_networkx(graph)",
    "scipy.sparse": "pass graphattn.from_scipy(matrix), with a row per target",
}


def advice(graph: Any) -> str | None:
    """How to make an :class:`AttentionGraph` of something else; ``None`` for what may be an ``edge_index``.

    Example:
        >>> advice(torch.ones(3, 3).tril().bool())
        'a bool mask (T, S), True where there is an edge, goes through graphattn.from_mask(mask)'
    """
    modules = [kind.__module__ for kind in type(graph).__mro__]
    for home, way in _WAYS.items():
        if any(f"{module}.".startswith(f"{home}.") for module in modules):
            return way
    if not isinstance(graph, Tensor):
        return None
    if graph.layout != torch.strided:
        return (
            "pass adj.to_sparse_coo().coalesce().indices().flip(0) as edge_index if it has a row per target (PyG's "
            "adj_t), and without the flip if it has a row per source"
        )
    if graph.dtype == torch.bool:
        return "a bool mask (T, S), True where there is an edge, goes through graphattn.from_mask(mask)"
    if graph.is_floating_point() and graph.dim() >= 2:
        return "numbers are no graph: graphattn.from_mask(mask != 0) makes one if 0 says that there is no edge"
    return None
