"""OBJ with texture coordinates and normals: a vertex for each different corner v/vt/vn, so that seams stay.

Read here and not by trimesh, which takes the index 0 for the last vertex and opens the files that ``mtllib`` names,
nor by meshio, which reads an index from the end as one from the start. Materials, curves and surfaces are left out.
"""

import re
from typing import BinaryIO

import numpy as np

from ...convert.files._guard import Blob, PathLike, read, show
from ...convert.files._text import KIND, SPACE, clean, first_words, keep, line_ends, rows, tokens, word
from .parts import Parts
from .polygons import coordinates
from .raw import Raw, reads, writes

_GEOMETRY = {b"l", b"p", b"curv", b"curv2", b"surf", b"cstype", b"fo"}
_KNOWN = _GEOMETRY | set(
    b"vp g o s mg usemtl mtllib usemap maplib deg bmat step parm trim hole scrv sp end con bevel c_interp "
    b"d_interp lod shadow_obj trace_obj ctech stech call csh".split()
)


_WIDTH = {"v": 3, "vt": 2, "vn": 3}
_NONE = np.iinfo(np.int64).min  # a corner without texture coordinates, or without a normal


@reads(".obj")
def read_obj(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The polygons of an OBJ file."""
    blob = clean(read(path, max_bytes), "#")
    joined = re.sub(rb"\\[ \t]*\n", lambda mesh: b" " * len(mesh[0]), blob.data)  # a line goes on after a backslash
    byte = np.frombuffer(joined + b"   ", np.uint8)
    begin = first_words(byte)
    line = {name: _starts(byte, begin, name.encode()) for name in ("v", "vt", "vn", "f")}
    skipped = _skipped(blob, joined, begin[~np.any([*line.values()], axis=0)])
    table = {
        name: rows(blob, _numbers(byte, begin[line[name]], len(name)), nonfinite=allow_nonfinite) for name in _WIDTH
    }
    values = {name: coordinates(blob, table[name], width, skip=1) for name, width in _WIDTH.items()}
    ptr, corner, start = _corners(blob, _numbers(byte, begin[line["f"]], 1))
    for column, name in enumerate(_WIDTH):
        before = np.repeat(np.cumsum(line[name])[line["f"]], np.diff(ptr))
        _resolve(blob, corner[:, column], name, before, len(values[name]), start, ptr)
    if len(table["v"].width) and table["v"].width.min() >= 7:  # the keyword, x y z, red green blue
        values["color"] = table["v"].value[table["v"].ptr[:-1, None] + np.arange(4, 7)]
    points, index, notes = _points(values, corner)
    if skipped:
        notes = (*notes, f"{skipped:,} curves, surfaces, lines or points left out")
    lines = begin[line["v"]] if len(points["pos"]) == len(values["v"]) else None
    return Raw(blob, points, ptr, index, notes=notes, point_lines=lines, face_lines=begin[line["f"]], text=True)


def _starts(byte: np.ndarray, begin: np.ndarray, name: bytes) -> np.ndarray:
    """The lines that start with the word ``name``."""
    follows = KIND[byte[begin + len(name)]] == SPACE
    for place, letter in enumerate(name):
        follows &= byte[begin + place] == letter
    return follows


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
    blob: Blob, index: np.ndarray, name: str, before: np.ndarray, count: int, start: np.ndarray, ptr: np.ndarray
) -> None:
    """Indices from 0 in the place of those from 1, and of those that count back from their line."""
    given, own = index != _NONE, index.copy()
    index[:] = np.where(given, np.where(own < 0, before + own, own - 1), -1)
    bad = np.flatnonzero(given & ((index < 0) | (index >= count)))
    if len(bad):
        here = int(bad[0])
        what = "vertex" if name == "v" else name
        at = f"face {np.searchsorted(ptr, here, side='right') - 1}: {what} {own[here]} of {count}"
        expected = f"1 to {count}, or -{before[here]} to -1 counting back from here"
        raise blob.fault(expected, f"{own[here]}", "count from 1", offset=int(start[here]), at=at)


def _points(
    values: dict[str, np.ndarray], corner: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray, tuple[str, ...]]:
    """A point for each different v/vt/vn, in the order of the vertices; those of no face stay."""
    num = len(values["v"])
    notes: tuple[str, ...] = ()
    if (corner[:, 1:] < 0).all():
        key, index = np.stack((np.arange(num), *np.full((2, num), -1)), 1), corner[:, 0]
    else:
        unused = np.flatnonzero(np.bincount(corner[:, 0], minlength=num) == 0)
        every = np.concatenate((corner, np.stack((unused, *np.full((2, len(unused)), -1)), 1)))
        place, key = _unique(every)
        index = place[: len(corner)]
        if len(key) > num:
            notes = (f"{len(key) - num:,} vertices repeated, on seams of uv or normals",)
    points = {"pos": values["v"][key[:, 0]]}
    for word_, name, column in (("uv", "vt", 1), ("normal", "vn", 2)):
        if (key[:, column] >= 0).any():
            points[word_] = np.append(values[name], np.zeros((1, values[name].shape[1])), 0)[key[:, column]]
            missing = int((key[:, column] < 0).sum())
            notes = (*notes, f"{missing:,} vertices without {word_}, which is 0 there") if missing else notes
    if "color" in values:
        points["color"] = values["color"][key[:, 0]]
    return points, index, notes


def _unique(rows_: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place of each row (K, 3) among the different ones, and those, in order."""
    order = np.lexsort(rows_.T[::-1])
    new = np.append(True, (rows_[order[1:]] != rows_[order[:-1]]).any(1))
    place = np.empty(len(rows_), np.int64)
    place[order] = np.cumsum(new) - 1
    return place, rows_[order[new]]


def _skipped(blob: Blob, text: bytes, begin: np.ndarray) -> int:
    """The number of these lines with geometry that a mesh of polygons cannot hold."""
    count = 0
    for offset in map(int, begin):
        name = word(text, offset)
        if name not in _KNOWN:
            raise blob.fault("v, f or another OBJ statement", show(name), "check the line", offset=offset)
        count += name in _GEOMETRY
    return count


@writes(".obj")
def write_obj(file: BinaryIO, parts: Parts) -> None:
    """Vertices with their normals and texture coordinates under one number."""
    parts.holds("normal", "uv", "color", face=True)
    for name in {"pos", "uv", "normal", "color"} & set(parts.points):
        parts.text(name, parts.points[name])
    tables = {"v": parts.pos, "vt": parts.points.get("uv"), "vn": parts.points.get("normal")}
    if "color" in parts.points:
        tables["v"] = np.concatenate((parts.pos, parts.points["color"]), axis=1)
    for name, table in tables.items():
        if table is not None:
            np.savetxt(file, table, f"{name} {parts.digits(table)}")
    if parts.face is not None:
        slots = {
            (False, False): "{0}",
            (True, False): "{0}/{0}",
            (False, True): "{0}//{0}",
            (True, True): "{0}/{0}/{0}",
        }
        corner = slots["uv" in parts.points, "normal" in parts.points].replace("{0}", "%d")
        repeats = corner.count("%d")
        np.savetxt(file, np.repeat(parts.face.T + 1, repeats, axis=1), "f " + " ".join([corner] * 3))
