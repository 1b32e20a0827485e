"""STL, ascii and binary. Its triangles repeat their corners; corners with equal coordinates become one vertex.

Read here and not by trimesh: a binary file is one numpy view, and trimesh skips an ascii facet that it cannot read.
"""

import numpy as np

from ._formats import reads
from ._guard import Blob, show
from ._npy import doubles
from ._polygons import Polygons, check, coordinates
from ._text import KIND, SPACE, clean, first_words, keep, line_ends, rows

_FACET = np.dtype([("normal", "<f4", 3), ("corner", "<f4", (3, 3)), ("attribute", "<u2")])  # 50 bytes
_HEAD = 84  # 80 bytes of anything, then the number of facets as uint32
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)  # odd numbers
_LINES = (b"facet", b"outer", b"vertex", b"vertex", b"vertex", b"endloop", b"endfacet")


@reads("mesh", ".stl")
def read_stl(blob: Blob, allow_nonfinite: bool) -> Polygons:
    """The triangles of an STL file; ascii if it begins with ``solid`` and has a facet near its beginning."""
    head = blob.data[:4096].lower()
    if head.lstrip().startswith(b"solid") and (b"facet" in head or b"endsolid" in head) and b"\0" not in head:
        blob = clean(blob)
        corner, lines = _ascii(blob, allow_nonfinite)
    else:
        corner, lines = _binary(blob), None
    one = np.arange(0, len(corner) + 1, 3)
    mesh = check(blob, Polygons(corner, one, np.arange(len(corner))), allow_nonfinite, lines)
    vertices, index = merge(mesh.vertices)
    return mesh._replace(vertices=vertices, corner=index, merged=len(corner) - len(vertices))


def _binary(blob: Blob) -> np.ndarray:
    """(3 F, 3) corners."""
    num = int.from_bytes(blob.data[80:_HEAD], "little")
    need = _HEAD + num * _FACET.itemsize
    if len(blob.data) < _HEAD or need != len(blob.data):
        what = f"{need} bytes for {num} facets" if len(blob.data) >= _HEAD else f"at least {_HEAD} bytes"
        raise blob.fault(f"a binary STL of {what}", f"{len(blob.data)} bytes", "get the whole file")
    return doubles(np.frombuffer(blob.data, _FACET, num, _HEAD)["corner"].reshape(-1, 3))


def _ascii(blob: Blob, nonfinite: bool) -> tuple[np.ndarray, np.ndarray]:
    """(3 F, 3) corners and the byte offsets (3 F,) of their lines."""
    byte = np.frombuffer(blob.data + b" " * 9, np.uint8)
    begin = first_words(byte)
    outside = _starts(byte, begin, b"solid") | _starts(byte, begin, b"endsolid")
    if not _starts(byte, begin[-1:], b"endsolid")[0]:
        raise blob.fault("endsolid at the end", "none (truncated)", "get the whole file", offset=int(begin[-1]))
    begin = begin[~outside]
    wanted = np.resize(np.arange(7), len(begin))
    wrong = np.ones(len(begin), bool)
    for place, name in enumerate(_LINES):
        here = wanted == place
        wrong[here] = ~_starts(byte, begin[here], name)
    bad = np.flatnonzero(wrong)
    if len(bad) or len(begin) % 7:
        row = int(bad[0]) if len(bad) else len(begin) - 1
        got, expected = show(blob.data[begin[row] :].split(b"\n")[0]), _LINES[row % 7].decode()
        if not len(bad):
            expected = "endloop and endfacet to finish the facet"
        raise blob.fault(expected, got, "correct the facet", offset=int(begin[row]), at=f"face {row // 7}")
    begin = begin[(wanted >= 2) & (wanted <= 4)]
    table = rows(blob, _numbers(byte, begin), nonfinite=nonfinite)
    bad = np.flatnonzero(table.width != 4)
    if len(bad):
        got = f"{table.width[bad[0]] - 1} numbers"
        raise blob.fault("vertex x y z", got, "correct the line", offset=int(begin[bad[0]]), at=f"face {bad[0] // 3}")
    return coordinates(blob, table, 0, len(begin), skip=1), begin


def _starts(byte: np.ndarray, begin: np.ndarray, name: bytes) -> np.ndarray:
    """Which lines start with the word ``name``, in any case."""
    follows = KIND[byte[begin + len(name)]] == SPACE
    for place, letter in enumerate(name):
        follows &= (byte[begin + place] | 32) == letter
    return follows


def _numbers(byte: np.ndarray, begin: np.ndarray) -> bytes:
    """The text with everything blank but what follows ``vertex`` on these lines; the word itself becomes 0."""
    out = keep(byte, begin + len(b"vertex"), line_ends(byte, begin))
    out[begin] = ord("0")
    return out.tobytes()


def merge(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of (N, 3) in order of first appearance, and the number (N,) of each row among them.

    Example:
        >>> merge(np.array([[5.0, 0, 0], [1, 0, 0], [5, 0, 0]]))[1].tolist()
        [0, 1, 0]
    """
    points = points + 0.0  # -0.0 and 0.0 are one place
    bits = np.ascontiguousarray(points).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(31))) * _MIX
    _, first, group = np.unique(mixed.sum(1, dtype=np.uint64), return_index=True, return_inverse=True)
    if not np.array_equal(points[first][group], points, equal_nan=True):  # two places with one hash
        _, first, group = np.unique(points, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return points[first[order]], rank[group.reshape(-1)]
