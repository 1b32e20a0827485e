"""Small inputs for patterns that need points, faces or networks; the same on every machine."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...graph import AttentionGraph
from ...graph.listed import listed

__all__ = [
    "cells", "dag", "karate", "node_types", "octahedron_faces", "parents", "sphere", "sphere_faces",
    "square", "two_clouds",
]  # fmt: skip


_step = torch.arange(48, dtype=torch.float64) + 0.5
_height = 1 - 2 * _step / 48
_angle = _step * math.pi * (3 - math.sqrt(5))
_ring = (1 - _height**2).sqrt()
#: 48 points spread evenly on the unit sphere, from top to bottom (Fibonacci's); float64 (48, 3).
sphere = torch.stack((_ring * _angle.cos(), _ring * _angle.sin(), _height), 1)

_powers = torch.tensor([0.7548776662, 0.5698402910], dtype=torch.float64)
#: 48 points spread over the unit square, in an order unrelated to their positions; float64 (48, 2).
#: (Roberts' sequence: fractional parts of multiples of the powers of 1 / 1.3247..., where 1.3247...
#: solves x**3 = x + 1.)
square = torch.arange(1, 49)[:, None] * _powers % 1

#: The cloud of every point if ``square`` or ``sphere`` is split in two, of 20 and 28 points; int64
#: (48,).
two_clouds = (torch.arange(48) >= 20).long()

#: The cells of a grid of 8 x 8, row by row; int64 (64, 2).
cells = torch.cartesian_prod(torch.arange(8), torch.arange(8))

#: The 8 triangles over 6 vertices; int64 (8, 3).
octahedron_faces = torch.tensor(
    [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1], [5, 2, 1], [5, 3, 2], [5, 4, 3], [5, 1, 4]]
)


def _sphere_faces() -> torch.Tensor:
    """92 triangles over the 48 points of ``sphere``, their convex hull; int64 (92, 3)."""
    from scipy.spatial import ConvexHull  # slow to import

    return torch.from_numpy(ConvexHull(sphere.numpy()).simplices).long()


def _graph(name: str, num_nodes: int, pairs: Iterable[tuple[int, int]]) -> AttentionGraph:
    source, target = torch.tensor(sorted(pairs, key=lambda pair: pair[::-1])).unbind(1)
    return AttentionGraph(listed(target, source, num_nodes, num_nodes), name)


def _karate() -> AttentionGraph:
    """Zachary's karate club, friendships of its members: 34 nodes, 78 edges in both directions."""
    import networkx  # slow to import

    club = networkx.karate_club_graph()
    return _graph("karate", 34, {*club.edges, *((b, a) for a, b in club.edges)})


def _node_types() -> torch.Tensor:
    """Members of the karate club that left with the officer (1); int64 (34,)."""
    import networkx

    club = networkx.karate_club_graph()
    return torch.tensor([int(club.nodes[node]["club"] == "Officer") for node in club])


sphere_faces: torch.Tensor
karate: AttentionGraph
node_types: torch.Tensor
_MAKERS: dict[str, Callable[[], Any]] = {
    "sphere_faces": _sphere_faces,
    "karate": _karate,
    "node_types": _node_types,
}


def __getattr__(name: str) -> Any:
    """Inputs that need another library are made at first use."""
    if name not in _MAKERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, _MAKERS[name]())


#: A directed acyclic graph of 24 nodes: t reads t // 2 and t // 3.
dag = _graph("dag", 24, {(t // d, t) for t in range(1, 24) for d in (2, 3)})

#: The parents of 31 nodes, a binary tree level by level; int64 (31,).
parents = (torch.arange(31) - 1).div(2, rounding_mode="floor")
