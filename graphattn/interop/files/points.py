"""Points from text, .npy and mesh files."""

import re

import numpy as np

from ...errors import LoaderError
from ._formats import READERS, reads
from ._guard import MAX_BYTES, Blob, PathLike, read, show, suffix
from ._npy import doubles, read_array
from ._text import Rows, clean, not_finite, rows
from .mesh import read_polygons

_NUMBER = re.compile(rb"[+-]?([\d.].*|nan|inf|infinity)", re.IGNORECASE)
TEXT = (".xyz", ".pts", ".txt", ".csv")


def load_points(
    path: PathLike, *, header: bool = False, allow_nonfinite: bool = False, max_bytes: int = MAX_BYTES
) -> np.ndarray:
    r"""Read the positions of points.

    Args:
        path: One of

            * .xyz, .pts, .txt, .csv: a point on each line, numbers separated by blanks or commas, comments after ``#``,
              all lines equally long. The first three numbers are x, y, z; more (colours, normals) are left out. Lines
              of two numbers are points in the plane.
            * .npy: a float array (N, d), any d.
            * .off, .obj, .ply, .stl: the vertices; such a file needs no faces here.
        header: Whether the first line of a text file is a row of names. Without it such a row is an error.
        allow_nonfinite: Accept NaN and infinite coordinates.
        max_bytes: Refuse larger files.

    Returns:
        (N, d) float64, in the units and the order of the file.

    Raises:
        LoaderError: With the line or the point at fault.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.xyz"
        >>> _ = path.write_text("# x y z red green blue\n0 0 1.5 255 0 0\n1, 2, 3, 0, 255, 0\n")
        >>> load_points(path).tolist()
        [[0.0, 0.0, 1.5], [1.0, 2.0, 3.0]]
    """
    kind = suffix(path, (*TEXT, *READERS["points"], *READERS["mesh"]), "load_points")
    if header and kind not in TEXT:
        raise LoaderError(f"header: expected a text file, got {kind}. Try: header=False.")
    if kind in READERS["mesh"]:
        return read_polygons(path, allow_nonfinite, max_bytes, faces=False).vertices
    blob = read(path, max_bytes)
    if kind not in TEXT:
        return READERS["points"][kind](blob, allow_nonfinite)
    blob = clean(blob, "#")
    table = rows(blob, _without_names(blob, without_commas(blob), header), nonfinite=allow_nonfinite)
    if not len(table.value):
        raise blob.fault("points", "an empty list: only a row of names", "check how it was written")
    width = table.width
    bad = np.flatnonzero((width != width[0]) | (width < 2))
    if len(bad):
        row = int(bad[0])
        expected = f"{width[0]} numbers, as on the first line" if width[0] > 1 else "2 numbers or more"
        fix = "put one point on each line; a count is not part of the points"
        raise blob.fault(expected, f"{width[row]}", fix, offset=table.offset(row))
    points = np.ascontiguousarray(table.value.reshape(-1, width[0])[:, :3])
    return _finite(blob, points, allow_nonfinite, table)


def without_commas(blob: Blob) -> bytes:
    """The text with commas blank, refused where nothing stands before or after one."""
    if b"," not in blob.data:
        return blob.data
    gap = re.search(rb"(?:^|[\n,])[ \t]*,|,[ \t]*(?=\n|$)", blob.data)
    if gap:
        raise blob.fault("a number on both sides of a comma", "an empty cell", "fill it", offset=gap.end() - 1)
    return blob.data.replace(b",", b" ")


def _without_names(blob: Blob, text: bytes, header: bool) -> bytes:
    """The text with its first line blank if that is a row of names; refused where ``header`` says otherwise."""
    first = re.search(rb"\S[^\n]*", text)  # clean() has seen to it that there is one
    if first is None or header != (not any(map(_NUMBER.fullmatch, first[0].split()))):
        expected = "a row of names (header=True)" if header else "numbers"
        fix = "header=False" if header else "header=True, if this line is a row of names"
        raise blob.fault(expected, show(first[0]) if first else "nothing", fix, offset=first.start() if first else None)
    return b" " * first.end() + text[first.end() :] if header else text


@reads("points", ".npy")
def _array(blob: Blob, allow_nonfinite: bool) -> np.ndarray:
    array = read_array(blob)
    if array.dtype.kind != "f" or array.ndim != 2 or not array.size:
        got = f"shape {array.shape} of {array.dtype}{'' if array.size else ', which is empty'}"
        raise blob.fault("floats of shape (N, d)", got, "array.astype(numpy.float64), one row for each point")
    return _finite(blob, doubles(array), allow_nonfinite)


def _finite(blob: Blob, points: np.ndarray, allow_nonfinite: bool, table: Rows | None = None) -> np.ndarray:
    bad = np.flatnonzero(~np.isfinite(points).all(1))
    if len(bad) and not allow_nonfinite:
        row = int(bad[0])
        offset = None if table is None else table.offset(row)
        raise not_finite(blob, str(points[row].tolist()[:8]), offset=offset, at=f"point {row}")
    return points
