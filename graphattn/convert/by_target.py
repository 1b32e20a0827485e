"""Edges grouped by their target: the sources of every target, end to end."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import integers
from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.need import need_graph
from .edge_index import from_edge_index


def from_by_target(
    ptr: Any,
    index: Any,
    edge: Any = None,
    *,
    num_sources: int | None = None,
    duplicates: str = "error",
    name: str | None = None,
) -> AttentionGraph:
    """A graph from the sources of each target, target after target: target ``t`` reads ``index[ptr[t] : ptr[t + 1]]``.

    This is scipy's CSR of ``mask[t, s]``, and undoes :func:`to_by_target`:
    ``from_by_target(*to_by_target(graph), num_sources=graph.num_sources)`` has the edges of ``graph`` in their order.

    Args:
        ptr: (T + 1,) of integers, from 0 up to E, never falling.
        index: (E,) of integers, the sources; any order within a target.
        edge: (E,) of integers, a permutation: which edge of the graph each place becomes; the place itself by default.
        num_sources: S. It must be given: sources that nobody reads are in no tensor.
        duplicates: As in :func:`from_edge_index`.
        name: What ``repr`` shows.
    Raises:
        GraphError: If ``ptr`` or ``edge`` is not such a tensor, naming the first bad place, or ``num_sources`` is
            missing; else as :func:`from_edge_index`.
        GraphIndexError: If a source is outside its range.
    Example:
        >>> from_by_target([0, 2, 2, 3], [4, 0, 1], num_sources=5).edge_index
        tensor([[4, 0, 1],
                [0, 0, 2]])
    """
    if num_sources is None:
        own = f"num_sources={edge}" if isinstance(edge, int) else "num_sources=graph.num_sources"
        raise GraphError(
            "num_sources not given: ptr and index do not say how many sources there are (some may have no reader); "
            f"pass it by name, {own}"
        )
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
    if edge is not None:
        edge_index = edge_index[:, torch.argsort(_permutation(edge, edges).to(index.device))]
    return from_edge_index(edge_index, num_sources, ptr.numel() - 1, duplicates=duplicates, name=name or "by_target")


def _permutation(edge: Any, edges: int) -> Tensor:
    edge = _integers(edge, "edge", "(E,)")
    if edge.numel() != edges or not torch.equal(edge.sort().values, torch.arange(edges, device=edge.device)):
        shown = edge[:8].tolist()
        raise GraphError(
            f"edge must name each of the {edges} edges once, counted from 0, as to_by_target gives it; got "
            f"{edge.numel()} numbers{': ' * bool(shown)}{str(shown)[1:-1]}{', ...' * (edge.numel() > 8)}"
        )
    return edge


def _integers(values: Any, argument: str, shape: str) -> Tensor:
    values = integers(values, argument, shape, GraphError)
    if values.dim() != 1:
        raise GraphError(f"{argument} must have shape {shape}, got {tuple(values.shape)}")
    return values


def to_by_target(graph: AttentionGraph) -> tuple[Tensor, Tensor, Tensor]:
    """The edges grouped by their target, sources ascending within a target.

    Returns:
        ``(ptr, index, edge)``, int64: target ``t`` has the places ``ptr[t] .. ptr[t + 1] - 1``, with sources ``index``
        there; ``edge`` says which of the caller's edges each is, so that edge features follow by ``x[edge]``.

    Raises:
        GraphError: If a rule's edges would take more than 4 GiB.
    Example:
        >>> from graphattn.convert import from_edge_index
        >>> ptr, index, edge = to_by_target(from_edge_index([[2, 0, 1], [1, 0, 0]], num_nodes=3))
        >>> ptr.tolist(), index.tolist(), edge.tolist()
        ([0, 2, 3, 3], [0, 1, 2], [1, 2, 0])
    """
    need_graph(graph, "to_by_target")
    source, target = graph.edge_index
    edge = torch.argsort(target * max(1, graph.num_sources) + source, stable=True)
    degree = torch.bincount(target, minlength=graph.num_targets)
    ptr = torch.cat((degree.new_zeros(1), degree.cumsum(0)))
    return ptr, source[edge], edge
