"""Views of large listed graphs, whose cells are all alike in the order of their nodes."""

from typing import TypeGuard

import torch
from torch import Tensor

from ...printed import counted
from ..edges import Edges
from ..listed import Listed, listed
from ..near import cuthill_mckee

_MOST_EDGES = 1 << 18  # of a graph that is looked at: a second
_MORE_EMPTY = 0.1  # of all cells, where another order shows more
ORDER = "(nodes along graph.reordered(), where neighbours are near)"


def in_near_order(edges: Edges, side: int) -> Edges | None:
    """The edges with their nodes in an order where neighbours are near, if that shows more.

    It shows more where more cells of ``side`` by ``side`` pairs are empty; None if not, or if the
    edges are no list between the same nodes, or many.
    """
    T = edges.num_targets
    if side == 1 or edges.num_sources != T or not _is_short(edges):
        return None
    place = cuthill_mckee(edges).argsort().to(edges.target.device)
    near = listed(place[edges.target], place[edges.source], T, T)
    more = _empty(near, side) - _empty(edges, side)
    if more < _MORE_EMPTY * _cells(edges, side).numel():
        return None
    return near


def degrees(edges: Edges) -> str:
    """Degrees and components of listed edges, a line; "" for others, or many."""
    if not _is_short(edges) or edges.count() == 0:
        return ""
    if max(edges.num_targets, edges.num_sources) > _MOST_EDGES:  # a number for each node
        return ""
    read = f"in-degree {_range(edges.degrees())}, out-degree {_range(edges.flip().degrees())}"
    if edges.num_targets != edges.num_sources:
        return read
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import connected_components

    ends = (edges.target.cpu().numpy(), edges.source.cpu().numpy())
    ones = torch.ones(len(ends[0]), dtype=torch.int8).numpy()
    adjacency = coo_array((ones, ends), shape=(edges.num_targets, edges.num_sources))
    components = int(connected_components(adjacency, directed=False, return_labels=False))
    return f"{read}; {counted(components, 'component')}"


def _is_short(edges: Edges) -> TypeGuard[Listed]:
    return isinstance(edges, Listed) and edges.count() <= _MOST_EDGES


def _cells(edges: Edges, side: int) -> Tensor:
    return edges.block_counts(side, side)


def _empty(edges: Edges, side: int) -> int:
    return int((_cells(edges, side) == 0).sum())


def _range(degree: Tensor) -> str:
    least, most = (int(end) for end in degree.aminmax())
    if least == most:
        return f"{least:,}"
    return f"{least:,} to {most:,}"
