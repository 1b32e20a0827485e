"""Small inputs for patterns that need points, faces or networks; the same on every machine."""

import math
from collections.abc import Iterable
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


def _graph(name: str, num_nodes: int, pairs: Iterable[tuple[int, int]]) -> AttentionGraph:
    source, target = torch.tensor(sorted(pairs, key=lambda pair: pair[::-1])).unbind(1)
    return AttentionGraph(listed(target, source, num_nodes, num_nodes), name)


#: The 92 triangles of the convex hull of ``sphere``; int64 (92, 3).
sphere_faces: torch.Tensor
#: Zachary's karate club, friendships of its members: 34 nodes, 78 edges in both directions.
karate: AttentionGraph
#: Members of the karate club that left with the officer (1); int64 (34,).
node_types: torch.Tensor


def __getattr__(name: str) -> Any:
    """Inputs that need another library are made at first use."""
    value: Any
    if name == "sphere_faces":
        from scipy.spatial import ConvexHull

        value = torch.from_numpy(ConvexHull(sphere.numpy()).simplices).long()
    elif name in ("karate", "node_types"):
        import networkx

        club = networkx.karate_club_graph()
        if name == "karate":
            value = _graph(name, 34, {*club.edges, *((b, a) for a, b in club.edges)})
        else:
            sides = [club.nodes[node]["club"] for node in club]
            value = torch.tensor([int(side == "Officer") for side in sides])
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, value)


#: A directed acyclic graph of 24 nodes: t reads t // 2 and t // 3.
dag = _graph("dag", 24, {(t // d, t) for t in range(1, 24) for d in (2, 3)})

#: The parents of 31 nodes, a binary tree level by level; int64 (31,).
parents = (torch.arange(31) - 1).div(2, rounding_mode="floor")
