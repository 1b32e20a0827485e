"""Integers that a bias reads from a graph.

They are computed once for each graph, and constants for torch.compile.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...arguments import shown
from ...errors import ShapeError
from ...graph import AttentionGraph
from ...graph.advice import no_graph
from ...graph.like import GraphLike
from ...graph.modes import Memo, constant_result, keep
from ...plans.cache import cached
from ..positions import pair_of_positions

_ByGraph = WeakKeyDictionary[AttentionGraph, Memo]


_EXPECTED = "a bias needs an AttentionGraph or PerHead (for a Pattern, pattern(num_nodes))"


def need_edges(graph: Any) -> None:
    """Refuse anything without edges."""
    if not isinstance(graph, GraphLike) or graph.is_open:
        raise no_graph(graph, _EXPECTED)


def need_graph(graph: Any) -> None:
    """Refuse anything but a graph, or the share of one."""
    need_edges(graph)
    if not graph._is_constant and graph.positions is None:
        raise no_graph(graph, _EXPECTED)


def of_edges(
    graph: GraphLike, make: Callable[..., Tensor], *arguments: Any, device: torch.device
) -> Tensor:
    """``make(graph, *arguments)``, a tensor cached for this graph on this device; for
    :class:`PerHead`, its union.

    Of a shard ``graph`` is its own edges, between the nodes of the whole graph. ``arguments`` are
    hashable; the tensor lives no longer than the graph among them, if there is one, which is not
    kept alive.
    """
    need_graph(graph)
    return _constant(graph, make, device, *arguments)[0]


@constant_result  # a constant of compiled code, guarded by the graph's identity
def _constant(
    graph: GraphLike, make: Callable[..., Tensor], device: torch.device, *arguments: Any
) -> tuple[Tensor]:
    edges = graph._whole_graph
    others = [argument for argument in arguments if isinstance(argument, AttentionGraph)]
    rest = tuple(argument for argument in arguments if not isinstance(argument, AttentionGraph))

    def result() -> Tensor:
        return make(edges, *arguments).to(device)

    if not others:
        return (cached(edges, (make, rest, device), result),)
    (other,) = others
    by_graph: _ByGraph = cached(edges, (make, "by graph"), WeakKeyDictionary)
    return (keep(keep(by_graph, other, Memo), (rest, device), result),)


def targets(graph: GraphLike, device: torch.device) -> Tensor:
    """The target of each edge, int64 (E,), cached for this graph on this device; a shard's is a row
    of its own ends.
    """
    if not graph._is_constant:
        return graph.target
    return of_edges(graph.union(), getattr, "target", device=device)


def sources(graph: GraphLike, device: torch.device) -> Tensor:
    """The source of each edge, int64 (E,), cached for this graph on this device; a shard's is a row
    of its own ends.
    """
    if not graph._is_constant:
        return graph.source
    return of_edges(graph.union(), getattr, "source", device=device)


def offsets(
    graph: GraphLike, positions: Tensor | tuple[Tensor, Tensor] | None, device: torch.device
) -> Tensor:
    """Position of the source minus position of the target, (E,) or (..., E).

    Args:
        graph: A graph of sequences.
        positions: Positions of the nodes (..., N), or a pair, of the targets (..., T) and of the
            sources (..., S). By default both count 0, 1, 2, ...; those of a shard as in the whole
            graph.
        device: Device of the result.
    """
    if positions is None:
        return of_edges(graph, _source_minus_target, device=device)
    need_graph(graph)
    of_targets, of_sources = pair_of_positions(positions)
    sides = (("targets", of_targets, graph.num_targets), ("sources", of_sources, graph.num_sources))
    for side, side_positions, size in sides:
        are_integers = (
            isinstance(side_positions, Tensor)
            and side_positions.dtype in (torch.int64, torch.int32)
            and tuple(side_positions.shape[-1:]) == (size,)
        )
        if not are_integers:
            raise ShapeError(
                f"positions of {side} must be integers (..., {size}), got "
                f"{shown(side_positions)}; for separate "
                "targets and sources pass a pair (targets, sources)"
            )
    of_targets = of_targets.to(device)
    of_sources = of_sources.to(device)
    source_rows, target_rows = graph.ends(of_sources[..., None], of_targets[..., None])
    of_edge_sources = source_rows[..., sources(graph, device), 0]
    return of_edge_sources - target_rows[..., targets(graph, device), 0]


def _source_minus_target(graph: AttentionGraph) -> Tensor:
    return graph.source - graph.target
