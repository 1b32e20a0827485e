"""Edges as index tensors: PyG's ``edge_index``."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import whole
from ..errors import GraphError
from .graph import AttentionGraph
from .listed import INTEGERS, checked

_SIDES = ("num_sources", "num_targets")


def from_edge_index(
    edge_index: Any,
    num_sources: int | None = None,
    num_targets: int | None = None,
    num_nodes: int | None = None,
    *,
    duplicates: str = "error",
    name: str | None = None,
) -> AttentionGraph:
    r"""A graph from its edges, one by one, in the caller's order.

    .. math:: \mathcal{N}(t) = \{ s : (s, t) \text{ is a column of } \texttt{edge\_index} \}

    Args:
        edge_index: (2, E) of integers: row 0 sources, row 1 targets (also when E = 2). It is
            copied. A PyG ``EdgeIndex`` provides its sizes; its claims about order and symmetry are
            not used.
        num_sources: S. Give it together with ``num_targets``, or give ``num_nodes`` alone.
        num_targets: T.
        num_nodes: N, if sources and targets are the same nodes.
        duplicates: Treatment of repeated edges: ``"error"``, ``"keep"`` each copy, or ``"merge"``
            copies.
        name: The name that ``repr`` shows.
    Returns:
        Listed edges, on the device of ``edge_index``.
    Raises:
        GraphError: If no size is known (the largest index plus one would lose nodes at the end that
            have no edge), the tensor is not an integer (2, E), or an edge is repeated and
            ``duplicates="error"``.
        GraphIndexError: If an index is outside its range.
    Example:
        >>> print(from_edge_index([[0, 1, 2], [1, 1, 0]], num_sources=3, num_targets=2))
        AttentionGraph(edge_index: 3 sources -> 2 targets, 3 edges, density 0.5, listed)
        · · █
        █ █ ·
    """
    given = _sizes(num_sources, num_targets, num_nodes)
    if hasattr(edge_index, "sparse_size") and hasattr(edge_index, "as_tensor"):  # a PyG EdgeIndex
        given = _joined(given, edge_index.sparse_size())
        edge_index = edge_index.as_tensor()
    if None in given:
        raise GraphError(_no_sizes(edge_index, given))
    return AttentionGraph(
        checked(edge_index, given[1], given[0], duplicates),
        name or "edge_index",
        _device(edge_index),
    )


def _device(index: Any) -> torch.device:
    if isinstance(index, Tensor):
        return index.device
    return torch.device("cpu")


def _sizes(
    num_sources: int | None, num_targets: int | None, num_nodes: int | None
) -> tuple[Any, Any]:
    if num_nodes is None:
        sizes = zip(_SIDES, (num_sources, num_targets), strict=True)
        return tuple(
            size if size is None else whole(size, side, 0, GraphError) for side, size in sizes
        )  # type: ignore[return-value]
    if num_sources is not None or num_targets is not None:
        raise GraphError(
            f"num_nodes={num_nodes} means that sources and targets are the same nodes, and "
            "excludes "
            f"num_sources={num_sources} and num_targets={num_targets}; pass num_nodes alone, or "
            "the other two"
        )
    return (whole(num_nodes, "num_nodes", 0, GraphError),) * 2


def _joined(given: tuple[Any, Any], carried: tuple[Any, Any]) -> tuple[Any, Any]:
    for side, size, known in zip(_SIDES, given, carried, strict=True):
        if size is not None and known is not None and size != known:
            raise GraphError(
                f"{side} is {size}, but the EdgeIndex has sparse_size {carried}; leave {side} out"
            )
    return tuple(
        known if size is None else size for size, known in zip(given, carried, strict=True)
    )


def _no_sizes(edge_index: Any, given: tuple[Any, Any]) -> str:
    missing = " and ".join(side for side, size in zip(_SIDES, given, strict=True) if size is None)
    message = (
        f"{missing} must be given, since nodes at the end may have no edge; pass num_nodes=N if "
        "sources and targets "
        "are the same nodes, else num_sources=S and num_targets=T"
    )
    if isinstance(edge_index, Tensor):
        index = edge_index
    else:
        index = torch.as_tensor(edge_index)
    if (
        index.dim() != 2
        or index.shape[0] != 2
        or index.shape[1] == 0
        or index.dtype not in INTEGERS
    ):
        return message
    most = (index.amax(1) + 1).tolist()
    return f"{message}; the largest indices are those of {most[0]} sources and {most[1]} targets"
