"""PLY, ascii and both binaries, with every property of every element.

Read here and not by plyfile, which fails 4 of 24 awkward files (tests/awkward_files.py): it passes
over rows and bytes beyond those of the header, and stumbles over blank lines and a late
``obj_info``. It takes 6 microseconds for each row with a list and 15 for each row of text, and
writes numbers beside a list in this machine's order of bytes.
"""

import io
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from ....io.numbers import clean
from ....io.reading import Blob, PathLike, open_regular, read
from ..curves.lines import ENDS
from ..parts import Parts
from ..raw import NO_FACES, Contents, Raw, reads, writes
from .ascii import read_ascii
from .binary import read_binary
from .header import HEADER_BYTES, TYPES, Column, Element, Header, read_header

_LEFT = re.compile(rb"^(?:obj_info|comment[ \t]+TextureFile)\b[^\r\n]*", re.MULTILINE)
_ORDER = ("i4", "u4", "u1", "i1", "u2", "i2", "f4", "f8")
_LISTS = ("vertex_indices", "vertex_index")


@reads(
    ".ply",
    contents=Contents(
        read="every property of every element; faces of two corners as edges",
        noted="`obj_info` and texture files; faces of one corner",
        refused="triangle strips, lists of several lengths, vertices without x, y, z",
    ),
)
def read_ply(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """Vertices under their names, faces as ``face_...``, other elements likewise under theirs."""
    blob = read(path, max_bytes, head=HEADER_BYTES)
    header = read_header(blob)
    left = _LEFT.findall(blob.data[: header.body])
    notes = tuple(f"left out: {line.decode('utf-8', 'replace').strip()}"[:200] for line in left)
    lines: dict[str, np.ndarray] = {}
    if header.ascii:
        blob = clean(read(path, max_bytes))
        columns, lines = read_ascii(blob, header.elements, header.body)
    else:
        columns = read_binary(_body(path, blob, header, max_bytes), header.elements)
    vertex = columns.pop("vertex", {})
    face = columns.pop("face", {})
    ptr, corner = _corners(blob, header, face)
    cut = [name for name in face if _of_corners(name, face[name], ptr)]
    corners = {f"face_{name}": face.pop(name)[1].reshape(len(corner), -1) for name in cut}
    points = {name: _rectangular(blob, name, column) for name, column in vertex.items()}
    faces = {f"face_{name}": _rectangular(blob, name, column) for name, column in face.items()}
    others = {
        f"{element}_{name}": _rectangular(blob, name, column)
        for element, group in columns.items()
        for name, column in group.items()
    }
    at = (lines.get("vertex"), lines.get("face"))
    return Raw(
        blob,
        points,
        ptr,
        corner,
        faces,
        others,
        corners=corners,
        notes=notes,
        point_lines=at[0],
        face_lines=at[1],
        has_lines=True,
    )


def _body(path: PathLike, blob: Blob, header: Header, max_bytes: int) -> Blob:
    """The bytes behind the header, in writable memory: rows of x, y, z alone become ``pos``."""
    with open_regular(path, max_bytes) as file:
        body = np.fromfile(file, np.uint8, offset=header.body)
        if os.fstat(file.fileno()).st_size != blob.size or len(body) != blob.size - header.body:
            raise blob.fault(
                f"{blob.size} bytes",
                "another size: the file changed while it was read",
                "read it again",
            )
    data: Any = memoryview(body)  # type: ignore[arg-type] # it is bytes in all but name
    return replace(blob, data=data)


def _corners(blob: Blob, header: Header, face: dict[str, Column]) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the faces; the list is taken out of ``face``."""
    named = {element.name: element for element in header.elements}
    if not {"x", "y", "z"} <= {
        item.name for item in named.get("vertex", Element("", 0, ())).properties
    }:
        raise blob.fault(
            "an element vertex with the numbers x, y, z", "none", "export it again as a plain PLY"
        )
    if "tristrips" in named:
        raise blob.fault("faces", "triangle strips", "export it with plain faces")
    lists = next((face.pop(name) for name in _LISTS if isinstance(face.get(name), tuple)), None)
    if isinstance(lists, tuple):
        return np.append(0, np.cumsum(lists[0], dtype=np.int64)), lists[1]
    if "face" in named and named["face"].num:
        raise blob.fault(
            "a list vertex_indices in element face", "none", "export it again as a plain PLY"
        )
    return NO_FACES


def _of_corners(name: str, column: Column, ptr: np.ndarray) -> bool:
    """True of a list with a fixed number of values per corner, such as texture coordinates."""
    if not isinstance(column, tuple) or not len(column[1]):
        return False
    size = column[0]
    corners = np.diff(ptr)
    return (name == "texcoord" or (size != size[0]).any()) and (
        size == size[0] // corners[0] * corners
    ).all()


def _rectangular(blob: Blob, name: str, column: Column) -> np.ndarray:
    """(n,) numbers, or (n, k) where all lists have k numbers."""
    if not isinstance(column, tuple):
        return column
    size, items = column
    if len(size) and (size != size[0]).any():
        raise blob.fault(
            f"lists {name} of one length",
            f"{size.min()} to {size.max()} numbers",
            "export without it",
        )
    if len(size):
        return items.reshape(len(size), -1)
    return items.reshape(0, 0)


@writes(".ply")
def write_ply(file: BinaryIO, parts: Parts) -> None:
    """Binary, little endian: all numbers as they are."""
    lines = parts.lines()
    if lines is not None:
        parts.others.update(zip(ENDS, lines.T, strict=True))
    if parts.of_shape:
        parts.refuse(
            "a row for each point or face", f"{next(iter(parts.of_shape))} of the shape itself"
        )
    points = parts.columns(parts.points)
    faces = parts.columns(parts.faces, "face_", _LISTS)
    elements = {
        "vertex": [(name, parts.fit(name, column, _ORDER)) for name, column in points.items()]
    }
    if parts.face is not None:
        corners = ("vertex_indices", parts.fit("face", parts.face.T, ("i4", "u4")))
        elements["face"] = [
            corners,
            *((name, parts.fit(name, column, _ORDER)) for name, column in faces.items()),
        ]
    for name, column in parts.others.items():
        element, _, plain = name.partition("_")
        rows = {
            len(values) for values in [column, *(values for _, values in elements.get(element, ()))]
        }
        if element in ("vertex", "face") or len(rows) > 1 or not plain:
            parts.refuse(
                "tensors with a row for each point or face, or for each of something else", name
            )
            continue
        elements.setdefault(element, []).append((plain, parts.fit(name, column, _ORDER)))
    head = io.StringIO()
    body = []
    head.write("ply\nformat binary_little_endian 1.0\n")
    for element, columns in elements.items():
        body.append(_table(columns))
        head.write(f"element {element} {len(body[-1])}\n")
        head.writelines(_properties(columns))
    file.write(f"{head.getvalue()}end_header\n".encode())
    for table in body:
        file.write(table.tobytes())


def _table(columns: Iterable[tuple[str, np.ndarray]]) -> np.ndarray:
    """All columns in rows; one of k > 1 numbers is a list, with its length before it."""
    fields: list[tuple[str, np.dtype, tuple[int, ...]]] = []
    for name, column in columns:
        if column.ndim > 1:
            dtype = "<i4"
            if column.shape[1] < 256:
                dtype = "u1"
            fields.append((f"{name}\n", np.dtype(dtype), ()))
        fields.append((name, column.dtype.newbyteorder("<"), column.shape[1:]))
    table = np.empty(len(next(iter(columns))[1]), fields)
    for name, column in columns:
        table[name] = column
        if column.ndim > 1:
            table[f"{name}\n"] = column.shape[1]
    return table


def _properties(columns: Iterable[tuple[str, np.ndarray]]) -> Iterable[str]:
    for name, column in columns:
        if column.ndim > 1:
            counter = "int"
            if column.shape[1] < 256:
                counter = "uchar"
            size = f"list {counter} "
        else:
            size = ""
        yield f"property {size}{TYPES[column.dtype]} {name}\n"
