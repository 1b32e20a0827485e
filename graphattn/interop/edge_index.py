"""Edges as index tensors: PyG's ``edge_index``, and edges grouped by their target."""

from typing import Any

import torch
from torch import Tensor

from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.listed import check_size, checked

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
    r"""A graph from its edges, one by one; their order stays the caller's.

    .. math:: \mathcal{N}(t) = \{ s : (s, t) \text{ is a column of } \texttt{edge\_index} \}

    Args:
        edge_index: (2, E) of integers: row 0 sources, row 1 targets (also when E = 2). It is copied. A PyG
            ``EdgeIndex`` brings its sizes along; what it claims about order and symmetry is not used.
        num_sources: S. Give it together with ``num_targets``, or give ``num_nodes`` alone.
        num_targets: T.
        num_nodes: N, where sources and targets are the same nodes.
        duplicates: What to do with repeated edges: ``"error"``, ``"keep"`` each copy, or ``"merge"`` copies.
        name: What ``repr`` shows.
    Returns:
        Listed edges, on the device of ``edge_index``.
    Raises:
        GraphError: If no size is known (the largest index plus one would lose nodes at the end that have no edge), the
            tensor is not an integer (2, E), or an edge is repeated and ``duplicates="error"``.
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
        checked(edge_index, given[1], given[0], duplicates), name or "edge_index", _device(edge_index)
    )


def _device(index: Any) -> torch.device:
    return index.device if isinstance(index, Tensor) else torch.device("cpu")


def _sizes(num_sources: int | None, num_targets: int | None, num_nodes: int | None) -> tuple[Any, Any]:
    if num_nodes is None:
        sizes = zip(_SIDES, (num_sources, num_targets), strict=True)
        return tuple(size if size is None else check_size(size, side) for side, size in sizes)  # type: ignore[return-value]
    if num_sources is not None or num_targets is not None:
        raise GraphError(
            f"num_nodes={num_nodes} says that sources and targets are the same nodes; num_sources={num_sources} and "
            f"num_targets={num_targets} must be left out then. Pass num_nodes alone, or the other two"
        )
    return (check_size(num_nodes, "num_nodes"),) * 2


def _joined(given: tuple[Any, Any], carried: tuple[Any, Any]) -> tuple[Any, Any]:
    for side, mine, theirs in zip(_SIDES, given, carried, strict=True):
        if mine is not None and theirs is not None and mine != theirs:
            raise GraphError(f"{side} is {mine}, but the EdgeIndex has sparse_size {carried}; leave {side} out")
    return tuple(theirs if mine is None else mine for mine, theirs in zip(given, carried, strict=True))


def _no_sizes(edge_index: Any, given: tuple[Any, Any]) -> str:
    missing = " and ".join(side for side, size in zip(_SIDES, given, strict=True) if size is None)
    message = (
        f"{missing} not given: edge_index alone does not say how many nodes there are (those at the end may have no "
        "edge). Pass num_nodes=N if sources and targets are the same nodes, else num_sources=S and num_targets=T"
    )
    index = edge_index if isinstance(edge_index, Tensor) else torch.as_tensor(edge_index)
    if index.dim() != 2 or index.shape[0] != 2 or index.shape[1] == 0 or index.is_floating_point():
        return message
    most = (index.amax(1) + 1).tolist()
    return f"{message}; the largest indices are those of {most[0]} sources and {most[1]} targets"


def to_edge_index(graph: AttentionGraph) -> Tensor:
    """int64 (2, E): row 0 sources, row 1 targets, in the caller's order; a rule's by target, then by source.

    The sizes are not in it: keep ``graph.num_sources`` and ``graph.num_targets`` beside it.

    Raises:
        GraphError: If a rule's edges would take more than 4 GiB.
    Example:
        >>> to_edge_index(from_edge_index([[2, 0], [0, 1]], num_nodes=3))
        tensor([[2, 0],
                [0, 1]])
    """
    return graph.edge_index.clone()


def from_by_target(
    ptr: Any, index: Any, num_sources: int, *, duplicates: str = "error", name: str | None = None
) -> AttentionGraph:
    """A graph from the sources of each target, target after target: target ``t`` reads ``index[ptr[t] : ptr[t + 1]]``.

    This is scipy's CSR of ``mask[t, s]``.

    Args:
        ptr: (T + 1,) of integers, from 0 up to E, never falling.
        index: (E,) of integers, the sources; any order within a target. Edges keep this order.
        num_sources: S.
        duplicates: As in :func:`from_edge_index`.
        name: What ``repr`` shows.
    Raises:
        GraphError: If ``ptr`` is not such a tensor, naming the first bad place; else as :func:`from_edge_index`.
        GraphIndexError: If a source is outside its range.
    Example:
        >>> from_by_target([0, 2, 2, 3], [4, 0, 1], num_sources=5).edge_index
        tensor([[4, 0, 1],
                [0, 0, 2]])
    """
    ptr, index = _integers(ptr, "ptr", "(T + 1,)"), _integers(index, "index", "(E,)")
    if ptr.device != index.device:
        raise GraphError(f"ptr is on {ptr.device} and index on {index.device}; move one of them")
    edges = index.numel()
    if ptr.numel() == 0:
        raise GraphError(
            "ptr must have shape (T + 1,), one more than there are targets, got an empty tensor; no targets is [0]"
        )
    if int(ptr[0]) != 0:
        raise GraphError(f"ptr must start at 0, got ptr[0] = {int(ptr[0])}")
    falls = torch.nonzero(ptr[1:] < ptr[:-1]).flatten()
    if falls.numel():
        at = int(falls[0])
        raise GraphError(
            f"ptr must never fall, got ptr[{at}] = {int(ptr[at])} and then ptr[{at + 1}] = {int(ptr[at + 1])}; "
            "it holds running totals, not the number of sources of each target (for those: cumsum, after a leading 0)"
        )
    if int(ptr[-1]) != edges:
        raise GraphError(
            f"ptr must end at the number of edges, got ptr[{ptr.numel() - 1}] = {int(ptr[-1])} and index of {edges}"
        )
    target = torch.repeat_interleave(ptr[1:] - ptr[:-1])
    edge_index = torch.stack((index, target))
    return from_edge_index(edge_index, num_sources, ptr.numel() - 1, duplicates=duplicates, name=name or "by_target")


def _integers(values: Any, argument: str, shape: str) -> Tensor:
    try:
        values = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphError(f"{argument} must be integers {shape}, got a {type(values).__name__}: {error}") from error
    if values.dim() != 1:
        raise GraphError(f"{argument} must have shape {shape}, got {tuple(values.shape)}")
    if values.numel() and values.dtype not in (torch.int8, torch.int16, torch.int32, torch.int64):
        raise GraphError(f"{argument} must be integer (int64), got {str(values.dtype).removeprefix('torch.')}")
    return values.to(torch.int64)


def to_by_target(graph: AttentionGraph) -> tuple[Tensor, Tensor, Tensor]:
    """The edges grouped by their target, sources ascending within a target.

    Returns:
        ``(ptr, index, edge)``, int64: target ``t`` has the places ``ptr[t] .. ptr[t + 1] - 1``, with sources ``index``
        there; ``edge`` says which of the caller's edges each is, so that edge features follow by ``x[edge]``.

    Raises:
        GraphError: If a rule's edges would take more than 4 GiB.
    Example:
        >>> ptr, index, edge = to_by_target(from_edge_index([[2, 0, 1], [1, 0, 0]], num_nodes=3))
        >>> ptr.tolist(), index.tolist(), edge.tolist()
        ([0, 2, 3, 3], [0, 1, 2], [1, 2, 0])
    """
    source, target = graph.edge_index
    edge = torch.argsort(target * max(1, graph.num_sources) + source, stable=True)
    degree = torch.bincount(target, minlength=graph.num_targets)
    ptr = torch.cat((degree.new_zeros(1), degree.cumsum(0)))
    return ptr, source[edge], edge
