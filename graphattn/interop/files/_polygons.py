"""What every mesh reader hands over, and the checks they share."""

from typing import NamedTuple

import numpy as np

from ._guard import Blob
from ._text import Rows, not_finite


class Polygons(NamedTuple):
    """Faces as the file has them: face ``i`` has the corners ``corner[ptr[i]:ptr[i + 1]]``."""

    vertices: np.ndarray  # (V, 3) float64
    ptr: np.ndarray  # (P + 1,) int64
    corner: np.ndarray  # (K,) int64
    skipped: int = 0  # elements of the file that are neither vertex nor face
    merged: int = 0  # repeated corners joined into one vertex (STL)


def coordinates(blob: Blob, table: Rows, low: int, high: int, skip: int = 0) -> np.ndarray:
    """The x, y, z of rows ``low`` to ``high`` as (V, 3); what stands behind them (colours, normals) is left out."""
    narrow = np.flatnonzero(table.width[low:high] < skip + 3)
    if len(narrow):
        row = low + int(narrow[0])
        got = f"{table.width[row] - skip} numbers"
        raise blob.fault("x y z", got, "put one vertex on each line", offset=table.offset(row))
    return table.value[table.ptr[low:high, None] + skip + np.arange(3)]


def check(
    blob: Blob, mesh: Polygons, nonfinite: bool, vertex: np.ndarray | None = None, face: np.ndarray | None = None
) -> Polygons:
    """``found`` again, once every coordinate is finite and every face has three corners that are vertices.

    Corners may still have the type of the file (unsigned, or float from text); they come back as int64. ``vertex``
    (V,) and ``face`` (P,) are the byte offsets of their lines in a text file; ``nonfinite`` allows NaN.
    """
    bad = np.zeros(0) if nonfinite else np.flatnonzero(~np.isfinite(mesh.vertices).all(1))
    if len(bad):
        row = int(bad[0])
        raise not_finite(blob, str(mesh.vertices[row].tolist()), offset=_line(vertex, row), at=f"vertex {row}")
    size = np.diff(mesh.ptr)
    bad = np.flatnonzero(size < 3)
    if len(bad):
        row = int(bad[0])
        at, got = f"face {row}", f"{size[row]}"
        raise blob.fault("at least 3 corners", got, "delete the face", offset=_line(face, row), at=at)
    corner, count = mesh.corner, len(mesh.vertices)
    bad = np.flatnonzero(~((corner >= 0) & (corner < count) & (corner == np.trunc(corner))))
    if len(bad):
        row = int(np.searchsorted(mesh.ptr, bad[0], side="right")) - 1
        at = f"face {row}: vertex {corner[bad[0]]:g} of {count}"
        expected, fix = f"vertices 0 to {count - 1}", "check that counting starts at 0"
        raise blob.fault(expected, f"{corner[bad[0]]:g}", fix, offset=_line(face, row), at=at)
    return mesh._replace(corner=corner.astype(np.int64, copy=False))


def _line(offsets: np.ndarray | None, row: int) -> int | None:
    return None if offsets is None else int(offsets[row])


def spans(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The positions ``start[i], ..., start[i] + size[i] - 1`` of all ``i`` in one array."""
    ends = np.cumsum(size)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(start - (ends - size), size)


def fan(ptr: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """Triangles (F, 3) that share each polygon's first corner.

    Example:
        >>> fan(np.array([0, 3, 7]), np.array([0, 1, 2, 0, 2, 3, 4])).tolist()
        [[0, 1, 2], [0, 2, 3], [0, 3, 4]]
    """
    size = np.diff(ptr)
    if (size == 3).all():
        return corner.reshape(-1, 3)
    first = np.repeat(ptr[:-1], size - 2)
    step = spans(np.ones_like(size), size - 2)
    return np.stack((corner[first], corner[first + step], corner[first + step + 1]), axis=1)
