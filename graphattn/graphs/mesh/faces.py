"""Faces of a mesh: checked, without degenerate ones, and taken to pieces."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...arguments import integers, table
from ...errors import GraphError, GraphIndexError
from ...graph.algebra import refuse_over
from ...graph.runs import spread


class Faces(NamedTuple):
    """Polygons by their corners; int64 on the CPU.

    ``face`` (C,) and ``vertex`` (C,) name every corner of the sound faces, in order around each face; ``follower`` (C,)
    is the vertex that comes after it. ``sound`` (F,) says which faces are polygons at all.
    """

    face: Tensor
    vertex: Tensor
    follower: Tensor
    sound: Tensor
    num_vertices: int

    def edges(self) -> tuple[Tensor, Tensor]:
        """One number for the undirected edge after each corner (C,), and the edges as vertex pairs (E, 2)."""
        low, high = torch.minimum(self.vertex, self.follower), torch.maximum(self.vertex, self.follower)
        key, edge = torch.unique(low * self.num_vertices + high, return_inverse=True)
        size = max(1, self.num_vertices)
        return edge, torch.stack((key // size, key % size), 1)


def checked_faces(faces: object, num_vertices: int | None) -> tuple[Faces, torch.device]:
    """The faces from a Tensor (F, n) or a list of tuples, and their device.

    A corner equal to the next one is dropped, so a triangle may be padded to a quad by repeating a vertex. What then
    has fewer than three corners, or names a vertex twice, is degenerate.
    """
    vertex, sizes, device = _corners(faces)
    face, _ = spread(sizes)
    num_vertices = _check_range(vertex, face, num_vertices)
    refuse_over(64 * num_vertices, f"a mesh of {num_vertices:,} vertices", "number the vertices without gaps")
    face, vertex = _without_repeats(face, vertex, sizes.numel())
    sizes = torch.bincount(face, minlength=sizes.numel())
    sound = sizes >= 3
    order = torch.argsort(face * max(1, num_vertices) + vertex)
    twice = (face[order][1:] == face[order][:-1]) & (vertex[order][1:] == vertex[order][:-1])
    sound[face[order][1:][twice]] = False
    keep = sound[face]
    face, vertex = face[keep], vertex[keep]
    return Faces(face, vertex, vertex[_next(face)], sound, num_vertices), device


def _corners(faces: object) -> tuple[Tensor, Tensor, torch.device]:
    """All corners in a row (C,), the number of corners of each face (F,), and the device they came from."""
    if isinstance(faces, str | bytes | bytearray | memoryview):
        kind = type(faces).__name__
        raise GraphError(f"faces must be a Tensor (F, n) or a list of tuples of vertex numbers, got a {kind}")
    if isinstance(faces, Sequence):
        try:
            flat = torch.as_tensor([corner for face in faces for corner in face])
            sizes = torch.tensor([len(face) for face in faces], dtype=torch.int64)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise GraphError(f"faces must be a Tensor (F, n) or a list of tuples of vertex numbers: {error}") from error
        device = flat.device
    else:
        corners = table(faces, "faces", "a Tensor (F, n)", GraphError)
        if corners.dim() != 2:
            raise GraphError(f"faces must have shape (F, 3), (F, 4) or (F, n), got {tuple(corners.shape)}")
        flat, device = corners.flatten(), corners.device
        sizes = torch.full((corners.shape[0],), corners.shape[1], dtype=torch.int64)
    if sizes.numel() and int(sizes.min()) < 3:
        hint = "; pass faces.t()" if isinstance(faces, Tensor) and faces.shape[0] == 3 else ""
        raise GraphError(f"a face has at least 3 vertices, got {int(sizes.min())} in face {int(sizes.argmin())}{hint}")
    return integers(flat, "faces", "of vertices", GraphError).cpu(), sizes, device


def _check_range(vertex: Tensor, face: Tensor, num_vertices: int | None) -> int:
    size = num_vertices
    if size is None:
        size = int(vertex.max()) + 1 if vertex.numel() else 0
    bad = torch.nonzero((vertex < 0) | (vertex >= size)).flatten()
    if bad.numel():
        corner = int(bad[0])
        raise GraphIndexError(
            f"face {int(face[corner])} names vertex {int(vertex[corner])}, outside [0, {max(0, size)}) ({max(0, size)} "
            f"vertices); vertices count from 0"
        )
    return size


def _next(face: Tensor) -> Tensor:
    """For every corner, the position of the one after it in its face."""
    following = torch.arange(1, face.numel() + 1)
    if face.numel() == 0:
        return following
    first = torch.ones_like(face, dtype=torch.bool)
    first[1:] = face[1:] != face[:-1]
    last = torch.ones_like(first)
    last[:-1] = first[1:]
    following[last] = torch.nonzero(first).flatten()
    return following


def _without_repeats(face: Tensor, vertex: Tensor, num_faces: int) -> tuple[Tensor, Tensor]:
    keep = vertex != vertex[_next(face)]
    return face[keep], vertex[keep]
