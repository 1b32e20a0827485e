"""OBJ files with texture coordinates and normals; values at seams are kept by corner.

Read here and not by trimesh, which fails 9 of 24 awkward files (tests/awkward_files.py): it takes
the index 0 for the last vertex, drops points of no face, reorders polygons, stumbles over tabs and
comments behind a face, and opens what ``mtllib`` names; nor by meshio, which fails 9: an index from
the end counts from the start, and normals and colours are lost. Materials, curves and surfaces are
left out, and lines beside faces.
"""

import re
from collections import Counter
from typing import BinaryIO

import numpy as np

from ...io.numbers import KIND, SPACE, Rows, clean, first_words, keep, line_ends, rows, tokens, word
from ...io.reading import Blob, PathLike, read, show
from .corners import OF_CORNERS, at_vertices, mean_normals
from .curves.lines import ENDS, along
from .parts import Parts
from .polygons import coordinates
from .raw import Contents, Raw, reads, writes

_KEYWORDS = set(
    b"l p curv curv2 surf cstype fo vp g o s mg usemtl mtllib usemap maplib "
    b"deg bmat step parm trim hole scrv sp end con bevel c_interp "
    b"d_interp lod shadow_obj trace_obj ctech stech call csh".split()
)


_WIDTH = {"v": 3, "vt": 2, "vn": 3}
_NONE = np.iinfo(np.int64).min  # a corner without texture coordinates, or without a normal


@reads(
    ".obj",
    contents=Contents(
        read="`v` with colours, `vt`, `vn`, `f`, or `l` of a file without faces",
        noted=(
            "values that differ at seams; colours of some vertices, weights, third texture "
            "coordinates; every other statement (groups, materials, lines beside faces) with its "
            "number"
        ),
        refused="`call`, indices out of range, faces of two corners",
    ),
)
def read_obj(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The polygons of an OBJ file."""
    blob = clean(read(path, max_bytes), "#")
    # a line goes on after a backslash
    joined = re.sub(rb"\\[ \t]*\n", lambda mesh: b" " * len(mesh[0]), blob.data)
    byte = np.frombuffer(joined + b"   ", np.uint8)
    begin = first_words(byte)
    line = {}  # those that start with the word
    for name in ("v", "vt", "vn", "f", "l"):
        line[name] = KIND[byte[begin + len(name)]] == SPACE
        for place, letter in enumerate(name.encode()):
            line[name] &= byte[begin + place] == letter
    if line["f"].any():
        del line["l"]  # beside faces they are left out
    skipped = _skipped(blob, joined, begin[~np.any([*line.values()], axis=0)])
    notes = []
    if skipped:
        left = ", ".join(f"{count:,} {name.decode()}" for name, count in skipped.items())
        notes.append(f"statements left out: {left}")
    table = {
        name: rows(blob, _numbers(byte, begin[line[name]], len(name)), nonfinite=allow_nonfinite)
        for name in _WIDTH
    }
    values = {name: coordinates(blob, table[name], width, skip=1) for name, width in _WIDTH.items()}
    ptr, corner, start = _corners(blob, _numbers(byte, begin[line["f"]], 1))
    for column, name in enumerate(_WIDTH):
        before = np.repeat(np.cumsum(line[name])[line["f"]], np.diff(ptr))
        _resolve(blob, corner[:, column], name, before, len(values[name]), start, ptr)
    others = {}
    if "l" in line:
        curve, end, at = _corners(blob, _numbers(byte, begin[line["l"]], 1))
        before = np.repeat(np.cumsum(line["v"])[line["l"]], np.diff(curve))
        _resolve(blob, end[:, 0], "v", before, len(values["v"]), at, curve, "line element")
        others = dict(zip(ENDS, end[:, 0][along(curve)].T, strict=True))
    notes += _behind(table, values)
    points, corners, seams = _points(values, corner)
    lines = {"point_lines": begin[line["v"]], "face_lines": begin[line["f"]]}
    return Raw(
        blob,
        points,
        ptr,
        corner[:, 0],
        others=others,
        corners=corners,
        notes=(*seams, *notes),
        **lines,
        text=True,
    )


def _numbers(byte: np.ndarray, begin: np.ndarray, size: int) -> bytes:
    """The text with all other lines blank and these lines' keyword turned into the number 0."""
    out = keep(byte, begin + size, line_ends(byte, begin))
    out[begin] = ord("0")
    return out.tobytes()


def _corners(blob: Blob, text: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ptr (P + 1,), the numbers v, vt, vn of each corner (K, 3), and its byte offset (K,)."""
    byte = np.frombuffer(text, np.uint8)
    start, ptr = tokens(byte)
    table = rows(blob, text.replace(b"/", b" "), np.int64)
    token = np.searchsorted(start, table.start, side="right") - 1
    slash = byte == ord("/")
    slashes = np.cumsum(slash) - slash  # before each byte
    slot = slashes[table.start] - slashes[start[token]]
    corner = np.full((len(start), 3), _NONE)
    bad = np.append(start[~np.isin(np.arange(len(start)), token[slot == 0])], table.start[slot > 2])
    if len(bad):
        here = int(bad.min())
        expected = "a vertex number before the slash"
        raise blob.fault(expected, show(word(text, here)), "write 1/2/3, 1//3 or 1", offset=here)
    corner[token, slot] = table.value
    faces = np.arange(len(ptr))
    corners = np.ones(len(start), bool)
    corners[ptr[:-1]] = False  # the keyword
    return ptr - faces, corner[corners], start[corners]


def _resolve(
    blob: Blob,
    index: np.ndarray,
    name: str,
    before: np.ndarray,
    count: int,
    start: np.ndarray,
    ptr: np.ndarray,
    element: str = "face",
) -> None:
    """Indices from 0 in the place of those from 1, and of those that count back from their line."""
    present = index != _NONE
    written = index.copy()
    index[:] = np.where(present, np.where(written < 0, before + written, written - 1), -1)
    bad = np.flatnonzero(present & ((index < 0) | (index >= count)))
    if len(bad):
        here = int(bad[0])
        if name == "v":
            noun = "vertex"
        else:
            noun = name
        number = np.searchsorted(ptr, here, side="right") - 1
        at = f"{element} {number}: {noun} {written[here]} of {count}"
        if not count:
            expected = f"lines {name} before each {element} that names them"
            raise blob.fault(expected, "none", "export it anew", offset=int(start[here]), at=at)
        expected = f"1 to {count}"
        if before[here]:
            expected += f", or -{before[here]} to -1 counting back from here"
        raise blob.fault(
            expected, f"{written[here]}", "count from 1", offset=int(start[here]), at=at
        )


def _behind(table: dict[str, Rows], values: dict[str, np.ndarray]) -> list[str]:
    """Take colours behind the places of vertices, and note what else is there."""
    notes = []
    at = table["v"].ptr[:-1]
    width = table["v"].width - 1  # without the keyword
    colored = width >= 6
    if len(width) and colored.all():
        values["color"] = table["v"].value[at[:, None] + np.arange(4, 7)]
        if (width >= 7).all():
            values["alpha"] = table["v"].value[at + 7]
    elif colored.any():
        notes.append(f"colours left out, of {colored.sum():,} of {len(width):,} vertices")
    weighted = (width == 4) | (width == 5)
    if (table["v"].value[at[weighted] + 4] != 1).any():
        notes.append(f"{weighted.sum():,} numbers behind x y z left out: weights of curves")
    deep = table["vt"].width > 3
    if table["vt"].value[table["vt"].ptr[:-1][deep] + 3].any():
        notes.append("third texture coordinates left out")
    return notes


def _points(
    values: dict[str, np.ndarray], corner: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], tuple[str, ...]]:
    """Properties of the vertices of the file, those of corners, and notes."""
    num = len(values["v"])
    points = {"pos": values["v"]}
    corners: dict[str, np.ndarray] = {}
    notes: list[str] = []
    for word_, name, column in (("uv", "vt", 1), ("normal", "vn", 2)):
        index = corner[:, column]
        if not len(corner) and len(values[name]) == num:
            points[word_] = values[name]  # a cloud has one for each vertex
        if not (index >= 0).any():
            continue
        table = np.append(values[name], np.zeros((1, values[name].shape[1])), 0)
        by_vertex, by_corner, words = at_vertices(corner[:, 0], table[index], num, word_)
        points |= by_vertex
        corners |= by_corner
        notes += words
        missing = int((index < 0).sum())
        unused = num - len(np.unique(corner[:, 0]))
        if missing:
            notes.append(f"{missing:,} corners without {word_}, which is 0 there")
        elif unused and by_vertex:
            notes.append(f"{unused:,} vertices without {word_}, which is 0 there")
    points |= {name: values[name] for name in ("color", "alpha") if name in values}
    return points, corners, tuple(notes)


def _skipped(blob: Blob, text: bytes, begin: np.ndarray) -> Counter[bytes]:
    """Counts of statements in these lines that a mesh of polygons cannot hold."""
    count: Counter[bytes] = Counter()
    for offset in map(int, begin):
        name = word(text, offset)
        if name not in _KEYWORDS:
            raise blob.fault(
                "v, f or another OBJ statement", show(name), "check the line", offset=offset
            )
        if name == b"call":
            got = show(text[offset : offset + 60].split(b"\n")[0])
            raise blob.fault("one file", got, "put the other file in its place", offset=offset)
        count[name] += 1
    return count


@writes(".obj")
def write_obj(file: BinaryIO, parts: Parts) -> None:
    """Vertices with their normals and texture coordinates under one number, or by corner; lines."""
    lines = parts.lines()
    parts.holds("normal", "uv", "color", face=True, faces=tuple(OF_CORNERS.values()))
    for name in {"pos", "uv", "normal", "color"} & set(parts.points):
        parts.text(name, parts.points[name])
    vertices = parts.pos
    if "color" in parts.points:
        vertices = np.concatenate((parts.pos, parts.points["color"]), axis=1)
    np.savetxt(file, vertices, f"v {parts.digits(vertices)}")
    if parts.face is None:
        face = np.zeros((3, 0), np.int64)
    else:
        face = parts.face
    corner = face.T.reshape(-1)
    index = [corner + 1]
    form = "%d"
    for word_, keyword in (("uv", "vt"), ("normal", "vn")):
        table, row_numbers = _table(parts, word_, corner)
        if table is None:
            form += "/"
            continue
        np.savetxt(file, table, f"{keyword} {parts.digits(table)}")
        index.append(row_numbers + 1)
        form += "/%d"
    np.savetxt(
        file,
        np.stack(index, 1).reshape(-1, 3 * len(index)),
        "f " + " ".join([form.rstrip("/")] * 3),
    )
    if lines is not None:
        np.savetxt(file, lines + 1, "l %d %d")


def _table(parts: Parts, word_: str, corner: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Rows of a table of texture coordinates or normals, and the row of each corner."""
    name = OF_CORNERS[word_]
    if name not in parts.faces:
        return parts.points.get(word_), corner
    values = parts.text(name, parts.faces[name])
    width = {"uv": 2, "normal": 3}[word_]
    if values.shape[1:] != (3 * width,):
        parts.refuse(f"{name} of shape (F, {3 * width})", f"{values.shape}", f"rename {name}")
        return parts.points.get(word_), corner
    values = values.reshape(-1, width)
    if word_ in parts.points:
        if word_ == "normal":
            mean = mean_normals(corner, values, len(parts.pos))
        else:
            mean = None
        if mean is None or not np.allclose(mean, parts.points[word_], atol=1e-6):
            parts.refuse(f"{word_} or {name}", "both, and they differ", f"leave {word_} out")
    rows_, index = np.unique(values, axis=0, return_inverse=True)
    return rows_, index.reshape(-1)
