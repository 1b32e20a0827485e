"""Integers that a bias reads from a graph.

They are computed once for each graph, and constants for torch.compile.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...arguments import shown
from ...errors import ShapeError
from ...graph import AttentionGraph
from ...graph.advice import no_graph
from ...graph.like import GraphLike
from ...graph.modes import Memo, constant_result, keep
from ...kernels.modes import can_read_values
from ...plans.cache import CPU, cached
from ..positions import pair_of_positions

SPARSE = 4  # offsets of a node, with more of which a table is not made of them

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


class Line(NamedTuple):
    """Nodes of a graph on a line, so that ``of_targets[t] - of_sources[s]`` numbers offsets."""

    of_targets: Tensor  # int32 (T,)
    of_sources: Tensor  # int32 (S,)
    offsets: Tensor  # int64 (V,), source minus target, those of all pairs


def line(graph: AttentionGraph, positions: Tensor | tuple[Tensor, Tensor] | None) -> Line | None:
    """The offsets of all pairs, on the CPU; None where positions differ between examples, are not
    constants of a program, or leave many offsets without a pair.
    """
    if positions is None:
        return _natural_line(graph)
    sides = _checked_positions(graph, positions, CPU)
    if any(side.dim() > 1 or not can_read_values(side) for side in sides):
        return None
    return _line(*sides)


@constant_result
def _natural_line(graph: AttentionGraph) -> Line | None:
    def make() -> Line | None:
        return _line(torch.arange(graph.num_targets), torch.arange(graph.num_sources))

    return cached(graph, _natural_line, make)


def _line(of_targets: Tensor, of_sources: Tensor) -> Line | None:
    start = int(of_sources.min())
    first = int(of_targets.min()) - int(of_sources.max())
    count = int(of_targets.max()) - start - first + 1
    if count > SPARSE * (of_targets.numel() + of_sources.numel()):
        return None
    return Line(
        (of_targets - first - start).int(),
        (of_sources - start).int(),
        -first - torch.arange(count),
    )


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
    of_targets, of_sources = _checked_positions(graph, positions, device)
    source_rows, target_rows = graph.ends(of_sources[..., None], of_targets[..., None])
    of_edge_sources = source_rows[..., sources(graph, device), 0]
    return of_edge_sources - target_rows[..., targets(graph, device), 0]


def _checked_positions(
    graph: GraphLike, positions: Tensor | tuple[Tensor, Tensor], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Positions of targets (..., T) and of sources (..., S) on a device."""
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
    return of_targets.to(device), of_sources.to(device)


def _source_minus_target(graph: AttentionGraph) -> Tensor:
    return graph.source - graph.target
