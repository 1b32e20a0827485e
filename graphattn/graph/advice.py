"""Advice for objects that are no graph: the call that makes a graph of them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import shown
from ..errors import GraphError

_WAYS = {  # by the module that a type, or one that it inherits from, is defined in
    "torch_geometric.data": "pass graphattn.from_pyg(data), or to a layer data.edge_index",
    "torch_sparse": (
        "pass graphattn.from_edge_index(torch.stack((col, row)), ...), where "
        "row, col, _ = adj_t.coo()"
    ),
    "networkx": "pass graphattn.from_networkx(graph)",
    "torch.nn.attention.flex_attention": "pass graphattn.convert.from_block_mask(block_mask)",
    "scipy.sparse": "pass graphattn.from_scipy(matrix), with a row per target",
}
_EITHER = "wrap an edge_index with graphattn.from_edge_index, a mask with graphattn.from_mask"
_OF_MANY = (
    "pass one of them, graphs[i]; graphs of heads are a PerHead(graphs), those of the examples of a "
    "batch a PerExample(graphs), and models of graphattn.models take a list, a graph for each layer"
)


def advice(graph: Any) -> str | None:
    """Advice on making an :class:`AttentionGraph` of a value; None if it may be an ``edge_index``.

    Example:
        >>> advice(torch.ones(3, 3).tril().bool())
        'a bool mask (T, S), True where there is an edge: wrap it with graphattn.from_mask(mask)'
    """
    remedy: str = getattr(type(graph), "_remedy", "")
    if remedy and type(graph).__module__.startswith("graphattn."):
        return remedy
    if isinstance(graph, list | tuple):
        of_list = _of_list(graph)
        if of_list is not None:
            return of_list
    modules = [kind.__module__ for kind in type(graph).__mro__]
    for home, way in _WAYS.items():
        if any(f"{module}.".startswith(f"{home}.") for module in modules):
            return way
    if isinstance(graph, np.ndarray):
        is_bool = graph.dtype == bool
        is_float = graph.dtype.kind == "f"
        return _of_table(is_bool, is_float, graph.shape, "edge_index.astype(int)")
    if not isinstance(graph, Tensor):
        return None
    if graph.layout != torch.strided:
        return (
            "pass adj.to_sparse_coo().coalesce().indices().flip(0) as edge_index if it has a row "
            "per target (PyG's adj_t), and without the flip if it has a row per source"
        )
    is_bool = graph.dtype == torch.bool
    is_float = graph.is_floating_point()
    return _of_table(is_bool, is_float, tuple(graph.shape), "edge_index.long()")


def _of_list(items: list[Any] | tuple[Any, ...]) -> str | None:
    """Advice for a list; ``None`` if it may be an ``edge_index``, a row of sources and of targets."""
    if len(items) == 0:
        return "it is empty: pass a graph for each example of the batch"
    first = items[0]
    if isinstance(first, list | tuple) and any(map(_is_graph, first)):
        return (
            "a list has one graph for each example; models of graphattn.models take layers, of "
            "which each may be a PerExample(graphs)"
        )
    if type(first).__name__ == "Relations" and _is_graph(first):
        return "pass its .graph for each example: [relations.graph for relations in ...]"
    if any(map(_is_graph, items)):
        return _OF_MANY
    if not isinstance(first, Tensor | np.ndarray) or first.ndim < 2:
        return None
    if str(first.dtype).endswith("bool"):
        return "masks of the examples are one tensor (B, T, S): graphattn.from_mask(torch.stack(masks))"
    return (
        "make a graph of each edge_index: "
        "[graphattn.from_edge_index(e, num_nodes=N) for e in edge_indices]"
    )


def _is_graph(value: Any) -> bool:
    """True for what this package makes as a graph, or of graphs."""
    return type(value).__module__.startswith("graphattn.graph.")


def _of_table(
    is_bool: bool,
    is_float: bool,
    shape: tuple[int, ...],
    cast: str,
) -> str | None:
    if is_bool:
        return (
            "a bool mask (T, S), True where there is an edge: wrap it with "
            "graphattn.from_mask(mask)"
        )
    if not is_float or len(shape) < 2:
        return None
    mask = "graphattn.from_mask(mask != 0) makes a graph if 0 means no edge"
    if shape[:-1] == (2,):
        return f"these are floats: pass {cast} if it is an edge_index (2, E); {mask}"
    return f"numbers are no graph: {mask}"


def of_other_size(graph: Any, size: int) -> str:
    """Advice, mostly empty, for tensors of ``size`` nodes on a graph of another size."""
    call: Any = getattr(graph, "expression", None)
    if getattr(call, "function", "") != "documents":
        return ""
    if call.options.get("lengths") is not None:
        return ""
    if call.args:
        ids = call.args[0]
    else:
        ids = call.options["ids"]
    if int(torch.as_tensor(ids).sum()) == size:
        causal = call.options["causal"]
        return (
            f"; if its ids are lengths, {size} in total, use "
            f"documents(lengths=..., causal={causal})"
        )
    return ""


def no_positions(value: Any, argument: str) -> str:
    """The message for invalid positions; for a shape, such as PyG's ``Data``, with its ``pos``."""
    hint = ""
    if hasattr(value, "pos"):
        hint = f"; for a shape pass {argument}=shape.pos and batch=shape.batch"
    return f"{argument} must be a Tensor or array (N, d) of coordinates, got {shown(value)}{hint}"


def no_graph(value: Any, argument: str) -> GraphError:
    """The error for anything but an :class:`AttentionGraph`, with the way to make one of it."""
    remedy = advice(value)
    if remedy is None:
        if not isinstance(value, Tensor | np.ndarray) or value.ndim != 2:
            remedy = _EITHER
        elif value.shape[0] == 2:
            remedy = "wrap an edge_index with graphattn.from_edge_index(edge_index, num_nodes=N)"
        else:
            remedy = (
                "a mask of numbers: wrap it with graphattn.from_mask(mask != 0), if 0 means no edge"
            )
    return GraphError(f"{argument}, got {type(value).__name__}; {remedy}")
