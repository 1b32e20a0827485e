"""STL files, ascii and binary; repeated corners at one place become one vertex.

Read here and not by trimesh, which fails 1 of 24 awkward files (tests/awkward_files.py), and that
without a word: it passes over ascii facets that are not whole; nor by meshio, which fails 5. A
binary file is one numpy view. Normals are left out, because they follow from the corners.
"""

import re
from typing import BinaryIO

import numpy as np

from ...io.numbers import clean, not_finite, rows
from ...io.reading import Blob, PathLike, read, show
from .parts import Parts
from .polygons import coordinates, merge
from .raw import Contents, Raw, reads, writes

# 50 bytes
_FACET = np.dtype([("normal", "<f4", 3), ("corner", "<f4", (3, 3)), ("attribute", "<u2")])
_HEAD = 84  # 80 bytes of anything, then the number of facets as uint32
_FACET_TEXT = re.compile(
    rb"\bfacet[ \t]+normal[^\n]*\n\s*outer[ \t]+loop\s*\n"
    rb"(?:\s*vertex(?:[ \t]+[^\s]+){3}[ \t]*\n){3}\s*endloop\s+endfacet\b",
    re.IGNORECASE,
)
_NORMAL = re.compile(rb"\bfacet[ \t]+normal([^\n]*)", re.IGNORECASE)
_SOLID = re.compile(rb"^[ \t]*(?:end)?solid\b[^\n]*", re.IGNORECASE | re.MULTILINE)
_WORDS = re.compile(
    rb"\bfacet[ \t]+normal[^\n]*|\bouter[ \t]+loop\b|\b(?:vertex|endloop|endfacet)\b", re.IGNORECASE
)


@reads(
    ".stl",
    contents=Contents(
        read="triangles, attribute words",
        noted=(
            "joined corners, several solids, normals against the order of corners, colours of the"
            " header"
        ),
        refused="facets that are not whole",
    ),
)
def read_stl(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The triangles of an STL file; ascii if it begins with ``solid`` and soon has a facet."""
    blob = read(path, max_bytes)
    head = blob.data[:4096].lower()
    text = (
        head.lstrip().startswith(b"solid")
        and (b"facet" in head or b"endsolid" in head)
        and b"\0" not in head
    )
    faces: dict[str, np.ndarray] = {}
    notes = []
    if text:
        blob = clean(blob)
        solids = len(_SOLID.findall(blob.data)) // 2
        if solids > 1:
            notes.append(f"{solids:,} solids are one mesh, without their names")
        corner, lines, normal = _ascii(blob, allow_nonfinite)
    else:
        table = _binary(blob)
        corner = table["corner"].reshape(-1, 3)
        normal = table["normal"]
        if b"COLOR=" in blob.data[:80]:
            notes.append("colours left out: face_attribute has those of facets, in 15 bits")
        lines = None
        if table["attribute"].any():
            faces = {"face_attribute": table["attribute"]}
        else:
            faces = {}
    bad = np.flatnonzero(~np.isfinite(corner).all(1))
    if len(bad) and not allow_nonfinite:
        row = int(bad[0])
        if lines is None:
            line = None
        else:
            line = int(lines[row])
        raise not_finite(
            blob, str(corner[row].tolist()), offset=line, at=f"face {row // 3}, corner {row % 3}"
        )
    pos, index = merge(corner)
    merged = len(corner) - len(pos)
    if merged:
        notes.append(f"{merged:,} corners joined with a vertex at the same place")
    side = corner.reshape(-1, 3, 3).astype(np.float64)
    with np.errstate(all="ignore"):
        across = np.cross(side[:, 1] - side[:, 0], side[:, 2] - side[:, 0])
        turned = int(((across * normal).sum(1) < 0).sum())
    if turned:
        notes.append(f"{turned:,} normals point against the order of their corners, which is kept")
    return Raw(
        blob,
        {"pos": pos},
        np.arange(0, len(corner) + 1, 3),
        index,
        faces,
        notes=tuple(notes),
        text=text,
    )


def _binary(blob: Blob) -> np.ndarray:
    num = int.from_bytes(blob.data[80:_HEAD], "little")
    need = _HEAD + num * _FACET.itemsize
    if len(blob.data) < _HEAD or need != len(blob.data):
        if len(blob.data) >= _HEAD:
            size = f"{need} bytes for {num} facets"
        else:
            size = f"at least {_HEAD} bytes"
        raise blob.fault(f"a binary STL of {size}", f"{len(blob.data)} bytes", "get the whole file")
    return np.frombuffer(blob.data, _FACET, num, _HEAD)


def _normals(texts: list[bytes]) -> np.ndarray:
    """Normals (F, 3) of texts; zeros where one is no three numbers."""
    try:
        return np.array([text.split() for text in texts], dtype=np.float64).reshape(-1, 3)
    except ValueError:
        return np.zeros((len(texts), 3))


def _blank(match: re.Match[bytes]) -> bytes:
    return re.sub(rb"[^\n]", b" ", match[0])


def _ascii(blob: Blob, nonfinite: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners (3 F, 3), the byte offsets (3 F,) of their lines, and normals (F, 3); refuse all but
    whole facets.
    """
    solids = [match[0].strip()[:3].lower() for match in _SOLID.finditer(blob.data)]
    if solids != [b"sol", b"end"] * (len(solids) // 2):
        at = len(blob.data.rstrip()) - 1
        raise blob.fault(
            "solid and endsolid in turn",
            "none at the end (truncated)",
            "get the whole file",
            offset=at,
        )
    facets = _SOLID.sub(_blank, blob.data)
    rest = re.search(rb"\S[^\n]*", _FACET_TEXT.sub(_blank, facets))
    if rest:
        expected = "facet normal x y z, outer loop, 3 times vertex x y z, endloop, endfacet"
        raise blob.fault(expected, show(rest[0]), "correct the facet", offset=rest.start())
    table = rows(blob, _WORDS.sub(_blank, facets), nonfinite=nonfinite)
    normals = _normals(_NORMAL.findall(facets))
    return coordinates(blob, table), table.start[table.ptr[:-1]], normals


@writes(".stl")
def write_stl(file: BinaryIO, parts: Parts) -> None:
    """Binary; the normals are those of the triangles."""
    parts.holds(face=True, faces=("face_attribute",))
    pos = parts.fit("pos", parts.pos, ["f4"])
    if parts.face is None:
        face = np.zeros((3, 0), np.int64)
    else:
        face = parts.face
    if (
        parts.face is None
        or np.bincount(face.ravel(), minlength=len(pos)).min() == 0
        or len(merge(pos)[0]) < len(pos)
    ):
        parts.refuse(
            "vertices that all have faces and different places", "others, which STL does not keep"
        )
    table = np.zeros(face.shape[1], _FACET)
    table["corner"] = corner = pos[face.T]
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    table["normal"] = normal / np.maximum(
        np.linalg.norm(normal, axis=1, keepdims=True), np.finfo("f4").tiny
    )
    if "face_attribute" in parts.faces:
        table["attribute"] = parts.fit("face_attribute", parts.faces["face_attribute"], ["u2"])
    file.write(bytes(80) + len(table).to_bytes(4, "little") + table.tobytes())
