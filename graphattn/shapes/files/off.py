"""OFF files and COFF, NOFF, STOFF: vertex colours, normals, texture coordinates, face colours.

Read here and not by trimesh, which fails 11 of 24 awkward files (tests/awkward_files.py): it leaves
out all colours, normals and texture coordinates without a word, passes over lines that are missing
or too many, and stumbles over comments; nor by meshio, which fails 14: it reads triangles alone.
"""

import re
from typing import BinaryIO

import numpy as np

from ...io.numbers import Rows, clean, rows
from ...io.reading import Blob, PathLike, read, show
from .parts import Parts
from .polygons import spans
from .raw import Contents, Raw, reads, writes

_HEADER = re.compile(rb"\s*(ST)?(C)?(N)?OFF(?=[\s\d]|$)")


@reads(
    ".off",
    ".coff",
    ".noff",
    contents=Contents(
        read=(
            "vertices, normals, colours, texture coordinates, polygons, colours of faces; faces "
            "of two corners as edges"
        ),
        noted=(
            "numbers without a name, which are `x`; colours of some faces and of colour maps; "
            "faces of one corner"
        ),
        refused="binary OFF, 4OFF, nOFF",
    ),
)
def read_off(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The polygons of an OFF file: a header word, the counts, a line per vertex and per face."""
    blob = clean(read(path, max_bytes), "#")
    header = _HEADER.match(blob.data)
    if header is None:
        expected = "OFF, COFF, NOFF or STOFF"
        fix = "put OFF on a line of its own (4OFF and nOFF are not 3-D)"
        raise blob.fault(expected, show(blob.data.lstrip()[:12]), fix, offset=0)
    if re.match(rb"\s+BINARY", blob.data[header.end() :]):
        raise blob.fault(
            "the text form of OFF",
            "OFF BINARY",
            "convert it to text OFF or to PLY",
            offset=header.start(),
        )
    table = rows(blob, b" " * header.end() + blob.data[header.end() :], nonfinite=allow_nonfinite)
    first = 1 + _counts(blob, table, header.end())
    points = _points(blob, table, first, bool(header[2]), bool(header[3]), bool(header[1]))
    size = table.value[table.ptr[first:-1]]
    bad = np.flatnonzero(~((size >= 0) & (size < table.width[first:]) & (size == np.trunc(size))))
    if len(bad):
        row = int(bad[0])
        got = f"{size[row]:g} followed by {table.width[first + row] - 1} numbers"
        fix = "put one face on each line"
        at = f"face {row}"
        raise blob.fault(
            "a count and as many corners", got, fix, offset=table.offset(first + row), at=at
        )
    corners = size.astype(np.int64)
    colors, notes = _face_colors(
        table, table.ptr[first:-1] + 1 + corners, table.width[first:] - 1 - corners
    )
    if "x" in points:
        notes = (
            *notes,
            f"{points['x'].shape[1]} numbers behind those of vertices have no names: x",
        )
    begin = table.ptr[first:-1] + 1
    lines = table.start[table.ptr[1:-1]]
    return Raw(
        blob,
        points,
        np.append(0, np.cumsum(corners)),
        table.value[spans(begin, corners)],
        colors,
        notes=notes,
        point_lines=lines[: first - 1],
        face_lines=lines[first - 1 :],
        text=True,
        has_lines=True,
    )


def _counts(blob: Blob, table: Rows, end: int) -> int:
    """The number of vertices, once there are as many lines as the first one says."""
    have = len(table.ptr) - 1
    if have:
        counts = table.value[: table.ptr[1]]
    else:
        counts = np.zeros(0)
    if (
        not 2 <= len(counts) <= 3
        or not ((counts >= 0) & (counts < 2**53) & (counts == np.trunc(counts))).all()
    ):
        if have:
            offset = table.offset(0)
        else:
            offset = end
        got = str(counts[:4].tolist())
        raise blob.fault("the numbers of vertices, faces and edges", got, "add them", offset=offset)
    vertices = int(counts[0])
    faces = int(counts[1])
    if have - 1 != vertices + faces:
        expected = f"{vertices} vertex lines and {faces} face lines, as its header says"
        fault = "some are too many"
        if have - 1 < vertices + faces:
            fault = "truncated"
        got = f"{have - 1} lines ({fault})"
        raise blob.fault(
            expected, got, "correct the counts or get the whole file", offset=table.offset(0)
        )
    return vertices


def _points(
    blob: Blob, table: Rows, end: int, color: bool, normal: bool, uv: bool
) -> dict[str, np.ndarray]:
    """The numbers of vertices: x y z, a normal, a colour of 3 or 4, u v (Geomview's order)."""
    width = table.width[1:end]
    plain = 3 + 3 * normal + 2 * uv
    least = plain + 3 * color
    if len(width):
        columns = width[:1].sum()
    else:
        columns = least
    expected = f"{least} numbers for each vertex"
    if least == 3:
        expected = "x y z"
    wrong = np.append(False, (width < least) | (width != columns))  # behind the counts
    table.refuse(wrong, blob, expected, "put one vertex on each line")
    rest = table.value[table.ptr[1] : table.ptr[end]].reshape(len(width), columns)
    out = {"pos": rest[:, :3]}
    if normal:
        out["normal"] = rest[:, 3:6]
    tail = rest[:, 3 + 3 * normal : columns - 2 * uv]
    if tail.shape[1] in (3, 4):  # also where the header does not say so
        out["color"] = tail[:, :3]
        if tail.shape[1] == 4:
            out["alpha"] = tail[:, 3]
    elif tail.shape[1]:
        out["x"] = tail
    return out | ({"uv": rest[:, columns - 2 :]} if uv else {})


def _face_colors(
    table: Rows, begin: np.ndarray, size: np.ndarray
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Three numbers behind the corners of every face, or four; a note on any others."""
    if not size.any():
        return {}, ()
    if not np.isin(size, (3, 4)).all():
        return {}, (f"colours left out, of {(size > 0).sum():,} of {len(size):,} faces",)
    color = table.value[begin[:, None] + np.arange(3)]
    if not (size == 4).any():
        return {"face_color": color}, ()
    opaque = 1.0
    if color.max() > 1:
        opaque = 255.0
    alpha = np.full(len(size), opaque)
    alpha[size == 4] = table.value[begin[size == 4] + 3]
    return {"face_color": color, "face_alpha": alpha}, ()


@writes(".off", ".coff", ".noff")
def write_off(file: BinaryIO, parts: Parts) -> None:
    """Vertices with normals and colours, faces with colours."""
    parts.holds("normal", "color", "uv", face=True, faces=("face_color",))
    names = [name for name in ("normal", "color", "uv") if name in parts.points]
    word = f"{'ST' * ('uv' in names)}{'C' * ('color' in names)}{'N' * ('normal' in names)}OFF"
    if parts.face is None:
        face = np.zeros((3, 0), np.int64)
    else:
        face = parts.face
    file.write(f"{word}\n{len(parts.pos)} {face.shape[1]} 0\n".encode())
    columns = [parts.text(name, parts.points[name]) for name in ("pos", *names)]
    np.savetxt(file, np.concatenate(columns, axis=1), " ".join(map(parts.digits, columns)))
    if "face_color" in parts.faces:
        color = parts.faces["face_color"]
        np.savetxt(
            file, np.concatenate((face.T, color), axis=1), f"3 %d %d %d {parts.digits(color)}"
        )
    else:
        np.savetxt(file, face.T, "3 %d %d %d")
