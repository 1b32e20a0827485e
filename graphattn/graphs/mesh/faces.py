"""Faces of a mesh: checked, without degenerate ones, and split into corners and edges."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...arguments import check_range, check_shape, integers, table, whole
from ...errors import GraphError
from ...graph.limits import refuse_over
from ...graph.sort import by_row, rows_of

_SOME_FACES = 1_024  # that are compared with all others


class Faces(NamedTuple):
    """Polygons by their corners; int64 on the CPU.

    ``face`` (C,) and ``vertex`` (C,) name every corner of the sound faces, in order around each
    face; ``follower`` (C,) is the vertex that comes after it. ``sound`` (F,) is True for faces that
    are polygons.
    """

    face: Tensor
    vertex: Tensor
    follower: Tensor
    sound: Tensor
    num_vertices: int

    def edges(self) -> tuple[Tensor, Tensor]:
        """The undirected edge after each corner (C,), and the edges as vertex pairs (E, 2)."""
        low = torch.minimum(self.vertex, self.follower)
        high = torch.maximum(self.vertex, self.follower)
        ptr, high, place = by_row(low, high, self.num_vertices, self.num_vertices)
        low = rows_of(ptr)
        new = torch.ones_like(high, dtype=torch.bool)
        new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        edge = torch.empty_like(low)
        edge[place.long()] = torch.cumsum(new, 0) - 1
        return edge, torch.stack((low[new], high[new].long()), 1)


def checked_faces(
    faces: object, num_vertices: int | None, least: int = 3
) -> tuple[Faces, torch.device]:
    """The faces from a Tensor (F, n) or a list of tuples, and their device.

    A face has ``least`` corners or more; one of two corners is an edge.

    A corner equal to the next one is dropped, so a triangle may be padded to a quad by repeating a
    vertex. A face that then has fewer than three corners, or a vertex twice, is degenerate. A table
    whose rows are no polygons, such as tetrahedra, is refused.
    """
    vertex, sizes, device = _corners(faces, least)
    num_vertices = _size(vertex, num_vertices)
    refuse_over(
        64 * num_vertices,
        f"a mesh of {num_vertices:,} vertices",
        "number the vertices without gaps",
    )
    face = torch.repeat_interleave(sizes)
    sound = torch.ones_like(sizes, dtype=torch.bool)
    table = None
    if len(sizes) and bool((sizes == sizes[0]).all()):
        table = vertex.view(len(sizes), -1)
    if table is not None and _are_distinct(table):
        if isinstance(faces, Tensor):
            _refuse_cells(table, num_vertices)
        return Faces(face, vertex, table.roll(-1, 1).flatten(), sound, num_vertices), device
    keep = vertex != vertex[_next(face)]
    face = face[keep]
    vertex = vertex[keep]
    sound &= torch.bincount(face, minlength=len(sizes)) >= sizes.clamp(max=3)
    order = torch.argsort(face * max(1, num_vertices) + vertex)
    twice = (face[order][1:] == face[order][:-1]) & (vertex[order][1:] == vertex[order][:-1])
    sound[face[order][1:][twice]] = False
    if table is not None and _looks_transposed(table, sound):
        raise GraphError(
            f"faces must have a row for each face, (F, 3), got {tuple(table.shape)} whose rows "
            "name vertices twice; pass faces.t() of PyG's data.face (3, F) or edge_index (2, E), or "
            "a list of tuples if these are polygons"
        )
    if isinstance(faces, Tensor) and table is not None:
        _refuse_cells(table, num_vertices)
    keep = sound[face]
    face = face[keep]
    vertex = vertex[keep]
    return Faces(face, vertex, vertex[_next(face)], sound, num_vertices), device


def _refuse_cells(table: Tensor, num_vertices: int) -> None:
    """Refuse rows that mostly share three corners with another row, where polygons share two.

    Such rows are cells of a volume (tetrahedra share a triangle), or elements of second order (two
    corners and the point between them).
    """
    from scipy.sparse import csr_matrix  # slow to import

    size, width = table.shape
    if width <= 3:
        return
    ptr = np.arange(0, table.numel() + 1, width)
    ones = np.ones(table.numel(), np.int32)
    corners = csr_matrix((ones, table.flatten().numpy(), ptr), (size, num_vertices))
    corners.sum_duplicates()
    corners.data[:] = 1
    distinct = np.diff(corners.indptr)
    some = np.arange(0, size, size // _SOME_FACES + 1)
    shared = (corners[some] @ corners.T).tocoo()
    # fewer than all, which duplicates share
    least = np.minimum(distinct[some[shared.row]], distinct[shared.col])
    sharing = np.unique(shared.row[(shared.data >= 3) & (shared.data < least)])
    if len(sharing) <= len(some) / 2:
        return
    hint = "cells are mesh_cells([('tetra', cells)]), ('triangle6', cells) and so on"
    if size <= 3:
        hint = "pass faces.t() of PyG's data.face (3, F) or edge_index (2, E)"
    raise GraphError(
        f"faces must be polygons, in order around each, got {tuple(table.shape)} whose rows share "
        "three corners, as cells of a volume and elements of second order do; "
        f"{hint}; or a list of tuples if these are polygons"
    )


def _are_distinct(table: Tensor) -> bool:
    """True if no row of the table has a vertex twice."""
    turns = range(1, table.shape[1] // 2 + 1)
    return not any(bool((table == table.roll(by, 1)).any()) for by in turns)


def _looks_transposed(table: Tensor, sound: Tensor) -> bool:
    """True for two or three rows of which some, or all of few corners, are degenerate."""
    if len(table) not in (2, 3):
        return False
    if table.shape[1] > 4:
        return not bool(sound.all())
    return not bool(sound.any())


def _corners(faces: object, least: int) -> tuple[Tensor, Tensor, torch.device]:
    """All corners (C,), the number of corners of each face (F,), and the device of the faces."""
    if isinstance(faces, Sequence):
        flat = torch.as_tensor([corner for face in faces for corner in face])
        sizes = torch.tensor([len(face) for face in faces], dtype=torch.int64)
        device = flat.device
    else:
        corners = table(faces, "faces", "a Tensor (F, n)", GraphError)
        check_shape(corners, "faces", ("F", "n"), error=GraphError)
        flat = corners.flatten()
        device = corners.device
        sizes = torch.full((corners.shape[0],), corners.shape[1], dtype=torch.int64)
    if bool((sizes < least).any()):
        raise GraphError(
            f"a face has at least {least} vertices, got {int(sizes.min())} in face "
            f"{int(sizes.argmin())}; faces (3, F) are faces.t()"
        )
    return integers(flat, "faces", "of vertices", GraphError).cpu(), sizes, device


def _size(vertex: Tensor, num_vertices: int | None) -> int:
    """The number of vertices, as given, or those that faces name."""
    if num_vertices is not None:
        size = whole(num_vertices, "num_vertices", 0, GraphError)
    elif vertex.numel():
        size = max(0, int(vertex.max()) + 1)
    else:
        size = 0
    check_range(vertex, "faces", size, ", vertices counted from 0")
    return size


def _next(face: Tensor) -> Tensor:
    """For every corner, the position of the one after it in its face."""
    sizes = torch.unique_consecutive(face, return_counts=True)[1]
    last = torch.cumsum(sizes, 0) - 1
    following = torch.arange(1, face.numel() + 1)
    following[last] = last - sizes + 1
    return following
