"""Meshes from OFF, OBJ, PLY and STL files, as they are: no vertex or face is moved, dropped or repaired.

No trimesh is needed: each reader says in its first lines why it does not use it, and the tests compare with it.
"""

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ._formats import READERS
from ._guard import MAX_BYTES, PathLike, read, suffix
from ._polygons import Polygons, fan


class MeshNotes(NamedTuple):
    """What is odd about a mesh; nothing of it has been changed."""

    degenerate: int  # triangles with a repeated corner
    duplicate: int  # triangles with the same corners as an earlier one, in any order
    cut: int  # polygons of more than 3 corners, cut into a fan of triangles
    unused: int  # vertices without a face
    merged: int  # STL: corners joined into a vertex that was there already
    skipped: int  # elements of the file that are neither vertex nor face (lines, curves), left out


@dataclass(frozen=True, eq=False, repr=False)
class Mesh:
    """Vertices and triangles of one file, in its order.

    Args:
        vertices: (V, 3) float64, in the units of the file.
        faces: (F, 3) int64; a polygon of k corners is a fan of k - 2 triangles around its first corner.
        name: The file's name without folder and extension.
        polygons: The faces before they were cut: ``ptr`` (P + 1,), ``corner`` (K,).
    """

    vertices: np.ndarray
    faces: np.ndarray
    name: str
    polygons: Polygons = field(repr=False)

    @cached_property
    def edges(self) -> np.ndarray:
        """(E, 2) int64: every side of a polygon once, lower vertex first, sorted; no diagonal of a cut polygon."""
        ptr, corner = self.polygons.ptr, self.polygons.corner
        after = np.arange(1, len(corner) + 1)
        after[ptr[1:] - 1] = ptr[:-1]  # the last corner of each polygon joins the first
        pair = np.sort(np.stack((corner, corner[after]), axis=1), axis=1)
        key = np.unique(pair[:, 0] * len(self.vertices) + pair[:, 1])
        pair = np.stack(np.divmod(key, len(self.vertices)), axis=1)
        return pair[pair[:, 0] != pair[:, 1]]

    @cached_property
    def notes(self) -> MeshNotes:
        """Counts of what is odd about this mesh."""
        size, faces = np.diff(self.polygons.ptr), np.sort(self.faces, axis=1)
        order = faces[np.lexsort(faces.T)]
        return MeshNotes(
            degenerate=int((faces[:, 1:] == faces[:, :-1]).any(1).sum()),
            duplicate=int((order[1:] == order[:-1]).all(1).sum()),
            cut=int((size > 3).sum()),
            unused=int((np.bincount(self.polygons.corner, minlength=len(self.vertices)) == 0).sum()),
            merged=self.polygons.merged,
            skipped=self.polygons.skipped,
        )

    def __repr__(self) -> str:
        return f"Mesh({self.name!r}: {len(self.vertices)} vertices, {len(self.faces)} faces)"


def load_mesh(path: PathLike, *, allow_nonfinite: bool = False, max_bytes: int = MAX_BYTES) -> Mesh:
    r"""Read the triangles of a mesh file.

    Args:
        path: An .off (text; also COFF, NOFF, STOFF), .obj, .ply (ascii or binary) or .stl (ascii or binary) file. One
            regular file is read; what it refers to (materials, textures) is never opened. Colours, normals and texture
            coordinates are left out.
        allow_nonfinite: Accept NaN and infinite coordinates.
        max_bytes: Refuse larger files.

    Returns:
        A :class:`Mesh`: ``vertices`` (V, 3) float64, ``faces`` (F, 3) int64, ``edges`` (E, 2) int64, ``notes``.

    Raises:
        LoaderError: If the file cannot be read as what its extension says, with the line or face at fault; also if it
            has no faces (a point cloud: see :func:`load_points`).

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "square.off"
        >>> _ = path.write_text("OFF\n4 1 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3\n")
        >>> mesh = load_mesh(path)
        >>> mesh
        Mesh('square': 4 vertices, 2 faces)
        >>> mesh.edges.tolist()
        [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    polygons = read_polygons(path, allow_nonfinite, max_bytes, faces=True)
    name = os.path.splitext(os.path.basename(os.fsdecode(path)))[0]
    return Mesh(polygons.vertices, fan(polygons.ptr, polygons.corner), name, polygons)


def read_polygons(path: PathLike, allow_nonfinite: bool, max_bytes: int, *, faces: bool) -> Polygons:
    """The polygons of a mesh file, which must have vertices, and faces if ``faces``."""
    kind = suffix(path, tuple(READERS["mesh"]), "load_mesh")
    blob = read(path, max_bytes)
    polygons = READERS["mesh"][kind](blob, allow_nonfinite)
    if not len(polygons.vertices):
        raise blob.fault("vertices", "an empty mesh", "check how it was exported")
    if faces and not len(polygons.corner):
        got = f"an empty list of faces ({len(polygons.vertices)} vertices)"
        raise blob.fault("faces", got, "knn or radius on its points (load_points), if it is a point cloud")
    return polygons
