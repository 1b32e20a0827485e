"""Normals of a mesh for its shading: smooth over a surface, broken along its creases."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments import real
from ..errors import OptionError
from .colours import Array, Index, Mask

SMOOTH = 40.0  # degrees: a chamfer of 45 is a crease, a cylinder of 10 sides is round
_FEW = 8  # times smaller than the largest plane at a node, a face bends its normal no more
_COPLANAR = float(np.cos(np.radians(1.0)))


@dataclass(frozen=True)
class Lit:
    """The vertices that shading distinguishes: a node once for each side of the creases through it.

    Attributes:
        node: int64 (V,), the node that a vertex is.
        normal: float64 (V, 3), unit normals.
        corner: int64 (F, 3), the vertices of the faces.
    """

    node: Index
    normal: Array
    corner: Index


def checked_smooth(smooth: Any) -> float:
    """``smooth=`` as an angle in degrees: True is 180, False is 0."""
    if isinstance(smooth, bool):
        return 180.0 * smooth
    angle = real(smooth, "smooth")
    if not 0 <= angle <= 180:
        raise OptionError(
            f"smooth must be True, False or an angle from 0 to 180 degrees, got {smooth}"
        )
    return angle


def lit(at: Array, faces: Index, smooth: float = SMOOTH) -> Lit:
    r"""Normals of the corners of faces, the same for the faces around a node that no crease parts.

    .. math:: n_v \propto \sum_{f \ni v} \alpha_{fv} \min(1, 8 A_f / \max_{g \ni v} A_g)^2 n_f

    with the angle of the face at the node and the area of all that lies in one plane with the face:
    a plane beside a fillet stays a plane, however long and thin its triangles are.

    Args:
        at: (N, 3), where the nodes are; nodes at one place are one, as the corners of an STL file.
        faces: int (F, 3), wound in any direction.
        smooth: The largest angle between the normals of two faces, degrees, that is no crease.

    Source: Thürmer and Wüthrich (1998), "Computing Vertex Normals from Polygonal Facets": the
    angle. *What differs:* the area, and creases.
    """
    F = len(faces)
    if F == 0:
        return Lit(np.empty(0, dtype=np.int64), np.empty((0, 3)), faces)
    corners = at[faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    unit = _unit(normal)
    area = np.linalg.norm(normal, axis=1)
    # a number (N,) of each place: the same for nodes that are there
    order = np.lexsort(at.T)
    new = (at[order[1:]] != at[order[:-1]]).any(1)
    place = np.empty(len(at), dtype=np.int64)
    place[order] = np.append(0, np.cumsum(new))[: len(at)]
    one, two, along = _shared_edges(place[faces])
    unit *= _winding(F, one // 3, two // 3, along)[:, None]
    cosine = (unit[one // 3] * unit[two // 3]).sum(1)
    plane = _components(F, one[cosine > _COPLANAR] // 3, two[cosine > _COPLANAR] // 3)
    joined = cosine >= np.cos(np.radians(smooth)) - 1e-9
    one = one[joined]
    two = two[joined]
    along = along[joined]
    ahead = (3 * (one // 3) + (one + 1) % 3, 3 * (two // 3) + (two + 1) % 3)
    begin = np.where(along, two, ahead[1])
    end = np.where(along, ahead[1], two)
    fan = _components(3 * F, np.append(one, ahead[0]), np.append(begin, end))
    size = np.repeat(np.bincount(plane, area)[plane], 3)
    largest = np.zeros(3 * F)
    np.maximum.at(largest, fan, size)
    after = np.roll(corners, -1, 1) - corners
    back = np.roll(corners, 1, 1) - corners
    # (F, 3), at the corners of triangles
    angle = np.arctan2(np.linalg.norm(np.cross(after, back), axis=2), (after * back).sum(2))
    weight = angle.ravel() * np.minimum(1, _FEW * size / np.maximum(largest[fan], 1e-300)) ** 2
    total: Array = np.stack(
        [np.bincount(fan, weight * np.repeat(unit[:, k], 3)) for k in range(3)], 1
    )
    _, first, vertex = np.unique(
        fan * len(at) + faces.ravel(), return_index=True, return_inverse=True
    )
    return Lit(faces.ravel()[first], _unit(total)[fan[first]], vertex.reshape(F, 3))


def _unit(vectors: Array) -> Array:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros(vectors.shape), where=length > 0)


def _shared_edges(faces: Index) -> tuple[Index, Index, Mask]:
    """The edges shared by two faces, by their first corners, and if both have one direction."""
    begin = faces.ravel()
    end = np.roll(faces, -1, 1).ravel()
    key = np.minimum(begin, end) * (int(faces.max(initial=0)) + 1) + np.maximum(begin, end)
    order = np.argsort(key, kind="stable")
    same = np.append(key[order[1:]] == key[order[:-1]], False)[: len(order)]  # as the next
    pair = np.flatnonzero(same & ~np.roll(same, 1) & ~np.roll(same, -1))
    one = order[pair]
    two = order[(pair + 1) % max(1, len(order))]
    return one, two, begin[one] == begin[two]


def _winding(count: int, one: Index, two: Index, along: Mask) -> Array:
    """The sign, 1 or -1, that orients each face consistently with its surface."""
    if not along.any():
        return np.ones(count)
    # each face twice, as it is and turned: joined with what fits
    two = two + np.where(along, count, 0)
    part = _components(
        2 * count, np.append(one, one + count), np.append(two, (two + count) % (2 * count))
    )
    return np.where(part[:count] <= part[count:], 1.0, -1.0)


def _components(count: int, one: Index, two: Index) -> Index:
    """The number (count,) of the connected part that each is in."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    joined = csr_array((np.ones(len(one), dtype=bool), (one, two)), shape=(count, count))
    return connected_components(joined, directed=False)[1].astype(np.int64)
