"""OFF, read here and not by trimesh, which drops pentagons silently and finds its header anywhere in the text.

The letters before OFF (ST, C, N: texture, colour, normals) only add numbers behind x y z; those are left out, as are
colours behind a face's corners.
"""

import re

import numpy as np

from ._formats import reads
from ._guard import Blob, show
from ._polygons import Polygons, check, coordinates, spans
from ._text import clean, rows

_HEADER = re.compile(rb"\s*(?:ST)?C?N?OFF(?=[\s\d]|$)")


@reads("mesh", ".off")
def read_off(blob: Blob, allow_nonfinite: bool) -> Polygons:
    """The polygons of an OFF file: a header word, the counts, a line for each vertex, a line for each face."""
    blob = clean(blob, "#")
    header = _HEADER.match(blob.data)
    if header is None:
        expected, fix = "OFF, COFF, NOFF or STOFF", "put OFF on a line of its own (4OFF and nOFF are not 3-D)"
        raise blob.fault(expected, show(blob.data.lstrip()[:12]), fix, offset=0)
    if re.match(rb"\s+BINARY", blob.data[header.end() :]):
        raise blob.fault(
            "the text form of OFF", "OFF BINARY", "convert it to text OFF or to PLY", offset=header.start()
        )
    table = rows(blob, b" " * header.end() + blob.data[header.end() :], nonfinite=allow_nonfinite)
    width, have = table.width, len(table.ptr) - 1
    counts = table.value[: table.ptr[1]] if have else np.zeros(0)
    if not 2 <= len(counts) <= 3 or not ((counts >= 0) & (counts < 2**53) & (counts == np.trunc(counts))).all():
        offset = table.offset(0) if have else header.end()
        raise blob.fault(
            "the numbers of vertices, faces and edges", str(counts[:4].tolist()), "add them", offset=offset
        )
    num_vertices, num_faces = int(counts[0]), int(counts[1])
    if have - 1 != num_vertices + num_faces:
        expected = f"{num_vertices} vertex lines and {num_faces} face lines, as its header says"
        got = f"{have - 1} lines ({'truncated' if have - 1 < num_vertices + num_faces else 'some are too many'})"
        raise blob.fault(expected, got, "correct the counts or get the whole file", offset=table.offset(0))
    first = 1 + num_vertices
    size = table.value[table.ptr[first:have]]
    bad = np.flatnonzero(~((size >= 0) & (size < width[first:]) & (size == np.trunc(size))))
    if len(bad):
        row = int(bad[0])
        got = f"{size[row]:g} followed by {width[first + row] - 1} numbers"
        fix, at = "put one face on each line", f"face {row}"
        raise blob.fault("a count and as many corners", got, fix, offset=table.offset(first + row), at=at)
    corners = size.astype(np.int64)
    mesh = Polygons(
        vertices=coordinates(blob, table, 1, first),
        ptr=np.append(0, np.cumsum(corners)),
        corner=table.value[spans(table.ptr[first:have] + 1, corners)],
    )
    lines = table.start[table.ptr[1:have]]
    return check(blob, mesh, allow_nonfinite, lines[:num_vertices], lines[num_vertices:])
