"""OBJ, read here and not by trimesh, which takes the index 0 and opens the files that ``mtllib`` names.

Only ``v`` and ``f`` lines matter: a vertex's first three numbers, a corner's first number. Other statements of the
format are skipped, and a line that is no statement of the format is an error.
"""

import re

import numpy as np

from ._formats import reads
from ._guard import Blob, show
from ._polygons import Polygons, check, coordinates
from ._text import KIND, SPACE, clean, first_words, keep, line_ends, rows, tokens, word

_GEOMETRY = {b"l", b"p", b"curv", b"curv2", b"surf", b"cstype", b"fo"}
_KNOWN = _GEOMETRY | set(
    b"vt vn vp g o s mg usemtl mtllib usemap maplib deg bmat step parm trim hole scrv sp end con bevel c_interp "
    b"d_interp lod shadow_obj trace_obj ctech stech call csh".split()
)


@reads("mesh", ".obj")
def read_obj(blob: Blob, allow_nonfinite: bool) -> Polygons:
    """The polygons of an OBJ file."""
    blob = clean(blob, "#")
    joined = re.sub(rb"\\[ \t]*\n", lambda mesh: b" " * len(mesh[0]), blob.data)  # a line goes on after a backslash
    byte = np.frombuffer(joined + b" ", np.uint8)
    begin = first_words(byte)
    letter, alone = byte[begin], KIND[byte[begin + 1]] == SPACE
    is_vertex, is_face = (letter == ord("v")) & alone, (letter == ord("f")) & alone
    other = ~(is_vertex | is_face | _texture(byte, begin))
    skipped = _skipped(blob, joined, begin[other])

    points = rows(blob, _numbers(byte, begin[is_vertex]), nonfinite=allow_nonfinite)
    vertices = coordinates(blob, points, 0, len(points.ptr) - 1, skip=1)
    face_ptr, corner, start = _corners(blob, _numbers(byte, begin[is_face]))
    before = np.cumsum(is_vertex)[is_face]  # (P,) vertices above each face
    face = np.repeat(np.arange(len(before)), np.diff(face_ptr))
    index = np.where(corner < 0, before[face] + corner, corner - 1)
    bad = np.flatnonzero((index < 0) | (index >= len(vertices)))
    if len(bad):
        here = int(bad[0])
        at = f"face {face[here]}: vertex {corner[here]} of {len(vertices)}"
        expected = f"1 to {len(vertices)}, or -{before[face[here]]} to -1 counting back from here"
        raise blob.fault(expected, f"{corner[here]}", "count vertices from 1", offset=int(start[here]), at=at)
    mesh = Polygons(vertices, face_ptr, index, skipped)
    return check(blob, mesh, allow_nonfinite, begin[is_vertex], begin[is_face])


def _numbers(byte: np.ndarray, begin: np.ndarray) -> bytes:
    """The text with all other lines blank and these lines' keyword turned into the number 0."""
    out = keep(byte, begin + 1, line_ends(byte, begin))
    out[begin] = ord("0")
    return out.tobytes()


def _corners(blob: Blob, text: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ptr (P + 1,), the number before the first slash of each corner (K,), and its byte offset (K,)."""
    byte = np.frombuffer(text, np.uint8)
    start, ptr = tokens(byte)
    table = rows(blob, text.replace(b"/", b" "), np.int64)
    own = byte[table.start - 1] != ord("/")
    position = table.start[own]
    if len(position) != len(start):
        here = int(start[np.isin(start, position, invert=True)][0])
        raise blob.fault(
            "a vertex number before the slash", show(word(text, here)), "write 1/2/3, 1//3 or 1", offset=here
        )
    faces = np.arange(len(ptr) - 1)
    keep = np.ones(len(start), bool)
    keep[ptr[:-1]] = False  # the keyword
    return ptr - np.append(faces, len(faces)), table.value[own][keep], position[keep]


def _texture(byte: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Which lines are ``vt`` or ``vn``: there may be millions, so they are told apart all at once."""
    second = byte[begin + 1]
    third = KIND[byte[np.minimum(begin + 2, len(byte) - 1)]] == SPACE
    return (byte[begin] == ord("v")) & ((second == ord("t")) | (second == ord("n"))) & third


def _skipped(blob: Blob, text: bytes, begin: np.ndarray) -> int:
    """How many of these lines hold geometry that a mesh of polygons has no place for."""
    count = 0
    for offset in map(int, begin):
        name = word(text, offset)
        if name not in _KNOWN:
            raise blob.fault("v, f or another OBJ statement", show(name), "check the line", offset=offset)
        count += name in _GEOMETRY
    return count
