"""Checks that all formats share, and triangles of polygons."""

import re
from dataclasses import replace

import numpy as np

from ...errors import LoaderError
from ...io.numbers import Rows, not_finite, word
from ...io.reading import Blob, show
from .raw import Raw

_STARTS = 16  # corners from which a fan is tried
_FLAT = 1e-9  # part of a polygon's area, below which rounding decides whether a triangle folds


def coordinates(blob: Blob, table: Rows, width: int = 3, *, skip: int = 0) -> np.ndarray:
    """``width`` numbers of each row, behind the first ``skip``: (R, width)."""
    expected = f"{width} numbers"
    if width == 3:
        expected = "x y z"
    wrong = table.width < skip + width
    table.refuse(wrong, blob, expected, "put one vertex on each line", skip)
    return table.value[table.ptr[:-1, None] + skip + np.arange(width)]


def corners_of(raw: Raw, pos: np.ndarray, nonfinite: bool) -> np.ndarray:
    """The corners as int64; positions must be finite, faces have three corners or more."""
    if not len(pos):
        raise raw.blob.fault("points", "an empty file: it has none", "check how it was exported")
    _finite(raw, pos, nonfinite)
    size = np.diff(raw.ptr)
    least = 3
    if raw.has_lines:
        least = 1
    bad = np.flatnonzero(size < least)
    if len(bad):
        raise _of_face(raw, int(bad[0]), "at least 3 corners", f"{size[bad[0]]}", "delete the face")
    corner = raw.corner
    count = len(pos)
    if len(corner) and corner.dtype.kind in "iu" and corner.min() >= 0 and corner.max() < count:
        return corner.astype(np.int64, copy=False)
    bad = np.flatnonzero(~((corner >= 0) & (corner < count) & (corner == np.trunc(corner))))
    if len(bad):
        row = int(np.searchsorted(raw.ptr, bad[0], side="right")) - 1
        got = f"{corner[bad[0]]:g}"
        at = f": vertex {got} of {count}"
        raise _of_face(
            raw, row, f"vertices 0 to {count - 1}", got, "check that counting starts at 0", at
        )
    return corner.astype(np.int64)


def without_lines(raw: Raw) -> Raw:
    """The polygons alone; faces of two corners as edges, and those of one left out, with notes."""
    size = np.diff(raw.ptr)
    is_line = size == 2
    keep = size > 2
    notes = [*raw.notes]
    others = dict(raw.others)
    lines = raw.corner[raw.ptr[:-1][is_line, None] + np.arange(2)]
    ends = ("edge_vertex1", "edge_vertex2")
    if len(lines) and not set(ends) & set(others):
        others |= dict(zip(ends, lines.T, strict=True))
        notes.append(f"{len(lines):,} faces of two corners are edges")
    elif len(lines):
        notes.append(f"{len(lines):,} faces of two corners left out, as the file has other edges")
    if (size == 1).any():
        notes.append(f"{(size == 1).sum():,} faces of one corner left out")
    of_corners = np.repeat(keep, size)
    face_lines = raw.face_lines
    if face_lines is not None:
        face_lines = face_lines[keep]
    return replace(
        raw,
        ptr=np.append(0, np.cumsum(size[keep])),
        corner=raw.corner[of_corners],
        faces={name: values[keep] for name, values in raw.faces.items()},
        corners={name: values[of_corners] for name, values in raw.corners.items()},
        others=others,
        notes=tuple(notes),
        face_lines=face_lines,
    )


def unfolded(raw: Raw, pos: np.ndarray) -> tuple[Raw, int]:
    """Polygons that start where their fan of triangles does not fold, and how many have no such
    corner: a fan from any corner fits a convex polygon, and from a dent many others.
    """
    size = np.diff(raw.ptr)
    order = np.arange(len(raw.corner))
    folded = 0
    for corners in np.unique(size[size > 3]).tolist():
        left = raw.ptr[:-1][size == corners]
        for start in range(min(corners, _STARTS)):
            around = (start + np.arange(corners)) % corners
            at = left[:, None] + around
            place = pos[raw.corner[at]].astype(np.float64)
            side = place[:, 1:] - place[:, :1]
            side /= np.abs(side).max((1, 2), keepdims=True, initial=1e-300)
            area = np.cross(side[:, :-1], side[:, 1:])
            normal = area.sum(1, keepdims=True)
            least = -_FLAT * (normal * normal).sum(2)
            fits = ~((area * normal).sum(2) < least).any(1)
            order[at[fits] - around + np.arange(corners)] = at[fits]
            left = left[~fits]
            if not len(left):
                break
        folded += len(left)
    corners_in_order = {name: values[order] for name, values in raw.corners.items()}
    return replace(raw, corner=raw.corner[order], corners=corners_in_order), folded


def _finite(raw: Raw, pos: np.ndarray, nonfinite: bool) -> None:
    flat = pos.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        if nonfinite or np.isfinite(flat.dot(flat)):  # twice as fast as np.isfinite(pos)
            return
    bad = np.flatnonzero(~np.isfinite(pos).all(1))
    if len(bad):
        row = int(bad[0])
        if raw.point_lines is None:
            line = None
        else:
            line = int(raw.point_lines[row])
        raise not_finite(raw.blob, str(pos[row].tolist()), offset=line, at=f"vertex {row}")


def _of_face(raw: Raw, row: int, expected: str, got: str, fix: str, at: str = "") -> LoaderError:
    if raw.face_lines is None:
        line = None
    else:
        line = int(raw.face_lines[row])
    return raw.blob.fault(expected, got, fix, offset=line, at=f"face {row}{at}")


def typed(
    blob: Blob, name: str, values: np.ndarray, kind: np.dtype, start: np.ndarray
) -> np.ndarray:
    """Numbers of a text in the type of its header; ``start`` are their offsets in the file.

    Integers beyond 2**53, times in nanoseconds, are read again digit by digit: a float64 rounds
    them.
    """
    with np.errstate(all="ignore"):
        out = values.astype(kind, order="C")
        if kind.kind not in "iu":
            return out
        inexact = (out != values) | (np.abs(values) >= 2**53)
    limits = np.iinfo(kind)
    flat = out.reshape(-1)
    for at in np.flatnonzero(inexact).tolist():
        offset = int(start.reshape(-1)[at])
        digits = word(blob.data, offset)
        match = re.fullmatch(rb"[+-]?\d{1,20}", digits)
        if match is None or not limits.min <= int(digits) <= limits.max:
            fix = "correct it, or its type"
            raise blob.fault(f"{name} as {kind}", show(digits), fix, offset=offset)
        flat[at] = int(digits)
    return out


def spans(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The positions ``start[i], ..., start[i] + size[i] - 1`` of all ``i`` in one array."""
    ends = np.cumsum(size)
    total = 0
    if len(ends):
        total = int(ends[-1])
    return np.arange(total) + np.repeat(start - (ends - size), size)


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


def merge(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of (N, 3) in order of appearance, and the index (N,) of each row in them.

    Example:
        >>> merge(np.array([[5.0, 0, 0], [1, 0, 0], [5, 0, 0]]))[1].tolist()
        [0, 1, 0]
    """
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        points = points + 0.0  # -0.0 and 0.0 are one place
    order = np.lexsort(points.T)
    new = np.append(True, (points[order[1:]] != points[order[:-1]]).any(1))[: len(points)]
    if len(points):
        first = np.minimum.reduceat(order, np.flatnonzero(new))
    else:
        first = order
    group = np.empty(len(points), np.int64)
    group[order] = np.cumsum(new) - 1
    rank = np.argsort(np.argsort(first))
    return points[np.sort(first)], rank[group]
