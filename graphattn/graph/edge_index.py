"""Edges as index tensors: PyG's ``edge_index``."""

from typing import Any

import torch

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
    offsets: Any = None,
    cell: Any = None,
    batch: Any = None,
) -> AttentionGraph:
    r"""A graph from its edges, one by one, in the caller's order.

    .. math:: \mathcal{N}(t) = \{ s : (s, t) \text{ is a column} \}

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
        offsets: (E, d) of integers, for a cell that repeats: the edge reads its source at
            ``pos[source] + offsets @ cell`` (ASE's ``S`` of the neighbour list ``ijS``, where i is
            the target). A pair through two images is two edges, and no repeated one.
        cell: (d, d), the lattice vectors as rows in the units of the positions, with ``offsets``;
            or (C, d, d) of several cells.
        batch: (T,), the cell of each target, of several cells.
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
    sizes = _sizes(num_sources, num_targets, num_nodes)
    if hasattr(edge_index, "sparse_size") and hasattr(edge_index, "as_tensor"):  # a PyG EdgeIndex
        sizes = _joined(sizes, edge_index.sparse_size())
        edge_index = edge_index.as_tensor()
    if None in sizes:
        raise GraphError(_no_sizes(edge_index, sizes))
    S, T = sizes
    if not name:
        name = "edge_index"
    edges = checked(edge_index, T, S, duplicates, offsets=offsets, cell=cell, batch=batch)
    return AttentionGraph(edges, name, edges.ends.device)


def _sizes(
    num_sources: int | None,
    num_targets: int | None,
    num_nodes: int | None,
) -> tuple[Any, Any]:
    if num_nodes is None:
        if num_sources is not None:
            num_sources = whole(num_sources, "num_sources", 0, GraphError)
        if num_targets is not None:
            num_targets = whole(num_targets, "num_targets", 0, GraphError)
        return num_sources, num_targets
    if num_sources is not None or num_targets is not None:
        raise GraphError(
            f"num_nodes={num_nodes} means that sources and targets are the same nodes, and "
            f"excludes num_sources={num_sources} and num_targets={num_targets}; pass num_nodes "
            "alone, or the other two"
        )
    num_nodes = whole(num_nodes, "num_nodes", 0, GraphError)
    return num_nodes, num_nodes


def _joined(sizes: tuple[Any, Any], sparse_size: tuple[Any, Any]) -> tuple[Any, Any]:
    """The sizes that the caller or the EdgeIndex names."""
    joined = []
    for side, size, stored in zip(_SIDES, sizes, sparse_size, strict=True):
        if size is None:
            joined.append(stored)
        elif stored in (None, size):
            joined.append(size)
        else:
            raise GraphError(
                f"{side} is {size}, but the EdgeIndex has sparse_size {sparse_size}; "
                f"leave {side} out"
            )
    num_sources, num_targets = joined
    return num_sources, num_targets


def _no_sizes(edge_index: Any, sizes: tuple[Any, Any]) -> str:
    missing = " and ".join(side for side, size in zip(_SIDES, sizes, strict=True) if size is None)
    message = (
        f"{missing} must be given, since nodes at the end may have no edge; pass num_nodes=N if "
        "sources and targets are the same nodes, else num_sources=S and num_targets=T"
    )
    index = torch.as_tensor(edge_index)
    if index.shape[:-1] != (2,) or index.dtype not in INTEGERS:
        return message
    if index.numel() == 0:
        return message
    most = (index.amax(1) + 1).tolist()
    return f"{message}; the largest indices are those of {most[0]} sources and {most[1]} targets"
