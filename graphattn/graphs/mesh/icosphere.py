"""Icospheres: the sphere in triangles, and the multi-mesh of its refinements of weather models."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ..arguments import call, whole

_FACE_BYTES = 256  # of a face of the finest mesh, while its edges are found


@builder
def icosphere(levels: int, *, multimesh: bool = True, self_loops: bool = False) -> AttentionGraph:
    r"""Every vertex of a refined icosahedron reads its neighbours on every refinement.

    .. math:: \mathcal{N}(t) = \{ s : \{s, t\} \in E_0 \cup \ldots \cup E_l \}

    with :math:`E_i` the edges of the icosahedron whose faces have been cut in four i times.

    Args:
        levels: l, the number of refinements; there are :math:`10 \cdot 4^l + 2` vertices.
        multimesh: False leaves the edges of the finest mesh alone, :math:`E_l`.
        self_loops: True lets a vertex read itself, too, for layers without a residual connection.
    Returns:
        Listed edges by target and then by source; symmetric. Vertices of a coarser mesh come first,
        so that ``icosphere(l)`` begins with the vertices of ``icosphere(l - 1)``;
        :func:`icosphere_mesh` has their positions.
    Raises:
        GraphError: If ``levels < 0``, or the edges would take more than 4 GiB.
    Source:
        Lam et al. 2023 (GraphCast), the multi-mesh: six refinements have 40,962 vertices and
        327,660 edges. *What differs:* vertices of one refinement are ordered by the edges on which
        they lie; ``graph.relabel`` orders them along a curve (:func:`curve_order`), so that
        neighbours are near in memory.
    Example:
        >>> icosphere(6)
        AttentionGraph(icosphere(6): 40962 nodes, 327660 edges, density 0.000195, listed)
        >>> print(icosphere(0))
        AttentionGraph(icosphere(0): 12 nodes, 60 edges, density 0.417, listed)
        · █ █ █ █ █ · · · · · ·
        █ · █ · · █ █ · · · █ ·
        █ █ · █ · · █ █ · · · ·
        █ · █ · █ · · █ █ · · ·
        █ · · █ · █ · · █ █ · ·
        █ █ · · █ · · · · █ █ ·
        · █ █ · · · · █ · · █ █
        · · █ █ · · █ · █ · · █
        · · · █ █ · · █ · █ · █
        · · · · █ █ · · █ · █ █
        · █ · · · █ █ · · █ · █
        · · · · · · █ █ █ █ █ ·
    """
    levels = _levels(levels)
    edges = _refined(levels).edges
    if not multimesh:
        edges = edges[-1:]
    low, high = torch.cat(edges).unbind(1)
    size = 10 * 4**levels + 2
    keys = [low * size + high, high * size + low]
    if self_loops:
        keys.append(torch.arange(size) * (size + 1))
    key = torch.cat(keys).sort().values
    name = call("icosphere", levels, multimesh=multimesh, self_loops=self_loops)
    return AttentionGraph(listed(key // size, key % size, size, size, has_repeats=False), name)


class Icosphere(NamedTuple):
    """The vertices float64 (N, 3) on the unit sphere, and the faces int64 (F, 3).

    Seen from outside, the vertices of a face are counterclockwise.
    """

    pos: Tensor
    faces: Tensor


def icosphere_mesh(levels: int) -> Icosphere:
    """The finest mesh of :func:`icosphere`, its vertices in the same order.

    Args:
        levels: As for :func:`icosphere`.
    Returns:
        Positions (N, 3) on the unit sphere, and faces (F, 3), the four parts of a face together.
    Example:
        >>> pos, faces = icosphere_mesh(2)
        >>> pos.shape, faces.shape
        (torch.Size([162, 3]), torch.Size([320, 3]))
    """
    mesh = _refined(_levels(levels))
    return Icosphere(mesh.pos, mesh.faces)


class _Refined(NamedTuple):
    """A mesh, and the edges (E, 2) of each refinement, the lower vertex first."""

    pos: Tensor
    faces: Tensor
    edges: list[Tensor]


def _levels(levels: int) -> int:
    levels = whole(levels, "levels")
    faces = 20 * 4 ** min(levels, 32)  # more are refused alike
    refuse_over(_FACE_BYTES * faces, f"an icosphere of {faces:,} faces", "refine it less often")
    return levels


def _refined(levels: int) -> _Refined:
    pos, faces = _icosahedron()
    ends, side = _edges(faces)
    edges = [ends]
    for _ in range(levels):
        middle = pos[ends].sum(1)
        new = side + len(pos)  # the new vertex of each side
        pos = torch.cat((pos, middle / middle.norm(dim=1, keepdim=True)))
        a, b, c = faces.unbind(1)
        ab, bc, ca = new.unbind(1)
        parts = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        faces = torch.stack([torch.stack(part, 1) for part in parts], 1).flatten(0, 1)
        ends, side = _edges(faces)
        edges.append(ends)
    return _Refined(pos, faces, edges)


def _edges(faces: Tensor) -> tuple[Tensor, Tensor]:
    """The edges (E, 2) of triangles, and the edge of each side (F, 3): a to b, b to c, c to a."""
    sides = torch.stack((faces, faces.roll(-1, 1)), -1).sort(-1).values
    size = int(faces.max()) + 1
    key, number = torch.unique(sides[..., 0] * size + sides[..., 1], return_inverse=True)
    return torch.stack((key // size, key % size), 1), number


def _icosahedron() -> tuple[Tensor, Tensor]:
    """The 12 vertices: a pole, a ring of five, a ring half a step further, and the other pole."""
    angle = torch.arange(5, dtype=torch.float64) * (2 * math.pi / 5)
    rings = [_ring(angle, 1 / math.sqrt(5)), _ring(angle + math.pi / 5, -1 / math.sqrt(5))]
    pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    faces = []
    for i in range(5):
        j = (i + 1) % 5
        faces += [
            (0, 1 + i, 1 + j),
            (1 + i, 6 + i, 1 + j),
            (6 + i, 6 + j, 1 + j),
            (11, 6 + j, 6 + i),
        ]
    return torch.cat((pole, *rings, -pole)), torch.tensor(faces)


def _ring(angle: Tensor, height: float) -> Tensor:
    radius = math.sqrt(1 - height**2)
    return torch.stack(
        (radius * angle.cos(), radius * angle.sin(), torch.full_like(angle, height)), 1
    )
