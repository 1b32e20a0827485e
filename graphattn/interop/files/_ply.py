"""PLY, ascii and binary, read here and not by trimesh, which cannot read triangles mixed with quads in a binary file,
drops pentagons, and returns one vertex for a header that declares 10**12.

What is kept: x, y, z of each vertex and the list ``vertex_indices`` (or ``vertex_index``) of each face.
"""

from collections.abc import Mapping

import numpy as np

from ._formats import reads
from ._guard import Blob
from ._npy import doubles
from ._ply_ascii import read_ascii
from ._ply_binary import read_binary
from ._ply_header import Element, read_header
from ._polygons import Polygons, check
from ._text import clean

_LISTS = ("vertex_indices", "vertex_index")


@reads("mesh", ".ply")
def read_ply(blob: Blob, allow_nonfinite: bool) -> Polygons:
    """The polygons of a PLY file; a point cloud has none."""
    header = read_header(blob)
    named = {element.name: element for element in header.elements}
    lists = [item.name for item in named["face"].properties if item.length] if "face" in named else []
    wanted = next((name for name in _LISTS if name in lists), "")
    _refuse(blob, named, wanted)
    lines: dict[str, np.ndarray] = {}
    if header.ascii:
        blob = clean(blob)
        columns, lines = read_ascii(blob, header.elements, header.body, allow_nonfinite)
    else:
        columns = read_binary(blob, header.elements, header.body)
    xyz = np.stack([doubles(np.asarray(columns["vertex"][axis])) for axis in "xyz"], axis=1)
    size, corner = columns["face"][wanted] if wanted else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    skipped = sum(element.num for element in header.elements if element.name not in ("vertex", "face"))
    mesh = Polygons(xyz, np.append(0, np.cumsum(size, dtype=np.int64)), corner, skipped)
    return check(blob, mesh, allow_nonfinite, lines.get("vertex"), lines.get("face"))


def _refuse(blob: Blob, named: Mapping[str, Element], wanted: str) -> None:
    """Raise unless the header describes vertices with x, y, z and, if faces, a list of vertices for each."""
    vertex = named.get("vertex", Element("vertex", 0, ()))
    scalars = [item.name for item in vertex.properties if not item.length]
    if not set("xyz") <= set(scalars) or len(scalars) < len(vertex.properties):
        got = ", ".join(item.name for item in vertex.properties)[:80] or "none"
        raise blob.fault("an element vertex with the numbers x, y, z", got, "export it again as a plain PLY")
    if "face" in named and named["face"].num and not wanted:
        raise blob.fault("a list vertex_indices in element face", "none", "export it again as a plain PLY")
    if "tristrips" in named:
        raise blob.fault("faces", "triangle strips", "export it with plain faces")
