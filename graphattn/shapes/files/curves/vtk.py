"""VTK: lines and polygons of PolyData, in legacy files and in XML.

Read here and not by meshio, which refuses PolyData and drops lines of more than two points; nor by
vtk, which ends the process, by a segmentation fault, at some damaged files.
"""

import base64
import re
import zlib
from itertools import islice
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ....errors import LoaderError
from ....io.reading import Blob, PathLike, read
from ..foreign import FOREIGN
from ..raw import NO_FACES, Contents, Raw, reads
from .lines import ENDS, along

#: Legacy names of types, and those of XML.
_TYPES = {
    **{"unsigned_char": "u1", "char": "i1", "unsigned_short": "u2", "short": "i2"},
    **{"unsigned_int": "u4", "int": "i4", "unsigned_long": "u8", "long": "i8", "vtkidtype": "i4"},
    **{"float": "f4", "double": "f8", "vtktypeint64": "i8", "vtktypeint32": "i4"},
    **{f"int{size}": f"i{size // 8}" for size in (8, 16, 32, 64)},
    **{f"uint{size}": f"u{size // 8}" for size in (8, 16, 32, 64)},
    **{"float32": "f4", "float64": "f8"},
}
_PARTS = ("lines", "polygons", "vertices", "triangle_strips")
#: Numbers of a point of each kind of data; the file says that of others.
_WIDTHS = {"vectors": 3, "normals": 3, "tensors": 9}
_HEAD = re.compile(
    rb"# vtk DataFile Version (\d+)\.\d+[^\n]*\n[^\n]*\n\s*(ASCII|BINARY)\s+DATASET\s+(\w+)\s",
    re.IGNORECASE,
)
_WORD = re.compile(rb"\S+")
_LINE = re.compile(rb"\s*([^\n]+)\n?")
_RAW = re.compile(rb"(<AppendedData[^>]*>)\s*_(.*)(</AppendedData>)", re.DOTALL)
_FIX = "save it as PolyData, or get the whole file"
_CONTENTS = Contents(
    read="lines and polylines of PolyData as edges, or its polygons; normals and data of points",
    noted="vertices, strips, lines beside polygons; data of cells, of the whole, texts of .vtp",
    refused="texts and ids of .vtk; other data sets, such as grids, which meshio reads",
)


class _Parts:
    """The parts of PolyData: ``points`` by name, and offsets and numbers of lines and polygons."""

    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        self.points: dict[str, np.ndarray] = {}
        self.cells: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.left: list[str] = []

    def raw(self) -> Raw:
        """The shape: polygons, or lines where there are none."""
        for name, (ptr, corner) in self.cells.items():
            if not len(ptr) or ptr[0] != 0 or ptr[-1] != len(corner) or (np.diff(ptr) < 0).any():
                raise self.blob.fault(f"{name} whose offsets fit", str(ptr[-1:]), _FIX)
        count = len(self.points.get("pos", ()))
        for name, values in self.points.items():
            if len(values) != count:
                raise self.blob.fault(f"{name} of {count} points", f"{len(values)}", _FIX)
        cells = {name: pair for name, pair in self.cells.items() if len(pair[1])}
        faces = cells.pop("polygons", NO_FACES)
        others = {}
        if "lines" in cells and not len(faces[1]):
            ptr, number = cells.pop("lines")
            ptr = np.unique(ptr)  # without lines of no point
            others = dict(zip(ENDS, number[along(ptr)].T, strict=True))
        left = [*cells, *self.left]
        notes: tuple[str, ...] = ()
        if left:
            notes = (f"left out: {', '.join(left)}",)
        return Raw(self.blob, self.points, *faces, others=others, notes=notes)

    def keep(self, name: str, values: np.ndarray, width: int, of_points: bool) -> None:
        """Keep data of points, normals under the word of a shape; note others."""
        if name.lower() == "normals":
            name = "normal"
        if not of_points or name in self.points:
            self.left.append(name)
            return
        if width > 1:
            values = values.reshape(-1, width)
        self.points[name] = values


@reads(".vtk", contents=_CONTENTS)
def read_vtk(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """A legacy file, of text or binary."""
    blob = read(path, max_bytes)
    head = _HEAD.match(blob.data)
    if head is None:
        raise blob.fault("a legacy VTK file", "another head", _FIX, offset=0)
    version, form, kind = head.groups()
    if kind.lower() != b"polydata":
        got = kind.decode("latin-1")
        raise blob.fault("DATASET POLYDATA", got, FOREIGN[".vtu"], offset=head.start(3))
    return _Legacy(blob, head.end(), form.lower() == b"binary", int(version)).parts().raw()


class _Legacy:
    """A place in a legacy file."""

    def __init__(self, blob: Blob, at: int, is_binary: bool, version: int) -> None:
        self.blob = blob
        self.at = at
        self.is_binary = is_binary
        self.version = version

    def line(self) -> list[str]:
        """The words of the next line that has some."""
        match = _LINE.match(self.blob.data, self.at)
        if match is None:
            return []
        self.at = match.end()
        return match[1].decode("latin-1").split()

    def array(self, size: int, kind: str) -> np.ndarray:
        """The next numbers."""
        start = self.at
        code = _TYPES.get(kind.lower())
        if code is None:
            raise self.blob.fault("numbers", kind, _FIX, offset=start)
        if self.is_binary:
            self.at += size * int(code[1])
            values = np.frombuffer(self.blob.data[start : self.at], f">{code}")
            values = values.astype(code)
        else:
            words = list(islice(_WORD.finditer(self.blob.data, start), size))
            if words:
                self.at = words[-1].end()
            values = np.array([float(word[0]) for word in words])
            if code[0] != "f":
                values = values.astype(code)
        if len(values) != size:
            raise self.blob.fault(f"{size} numbers", f"{len(values)}", _FIX, offset=start)
        return values

    def parts(self) -> _Parts:
        """All parts of the file."""
        parts = _Parts(self.blob)
        of_points = False
        size = 0
        while words := self.line():
            start = self.at
            try:
                name = words[0].lower()
                if name == "points":
                    parts.points["pos"] = self.array(3 * int(words[1]), words[2]).reshape(-1, 3)
                elif name in _PARTS:
                    parts.cells[name] = self._cells(int(words[1]), int(words[2]))
                elif name in ("point_data", "cell_data"):
                    of_points = name == "point_data"
                    size = int(words[1])
                elif name == "field":
                    for _ in range(int(words[2])):
                        label, columns, rows, kind = self.line()
                        table = self.array(int(columns) * int(rows), kind)
                        parts.keep(label, table, int(columns), of_points and int(rows) == size)
                elif name == "metadata":
                    while self.blob.data[self.at : self.at + 1] not in (b"\n", b"\r", b""):
                        self.line()
                else:
                    values, width = self._attribute(name, words, size)
                    label = words[1]
                    if name == "normals":
                        label = "normal"
                    parts.keep(label, values, width, of_points and name != "lookup_table")
            except LoaderError:
                raise
            except (ValueError, IndexError) as error:
                got = f"{' '.join(words)[:80]}: {error}"
                raise self.blob.fault("a part of PolyData", got, _FIX, offset=start) from None
        return parts

    def _cells(self, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        if self.version >= 5:
            ptr = self.array(count, self.line()[1])
            return ptr, self.array(size, self.line()[1])
        values = self.array(size, "int")
        starts = []
        at = 0
        for _ in range(count):
            starts.append(at)
            at += 1 + max(0, int(values[at]))
        if at != size:
            raise ValueError(f"{size} numbers for {count} cells")
        ptr = np.append(starts, size).astype(np.int64) - np.arange(count + 1)
        return ptr, np.delete(values, starts)

    def _attribute(self, name: str, words: list[str], size: int) -> tuple[np.ndarray, int]:
        kind = words[-1]
        width = _WIDTHS.get(name, 0)
        if name == "scalars":
            kind = words[2]
            width = int((*words, "1")[3])
            self.line()  # LOOKUP_TABLE default
        elif name == "texture_coordinates":
            width = int(words[2])
        elif name in ("color_scalars", "lookup_table"):
            width = int(words[2])
            if name == "lookup_table":
                width, size = 4, width
            kind = "float"
            if self.is_binary:
                kind = "unsigned_char"
        if not width:
            raise ValueError("an unknown word")
        return self.array(size * width, kind), width


@reads(".vtp", contents=_CONTENTS)
def read_vtp(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """A file of XML, whose arrays are text, base64 or appended, as they are or compressed by zlib."""
    blob = read(path, max_bytes)
    data = blob.data
    appended = b""
    match = _RAW.search(data)
    if match is not None:
        appended = match[2]
        data = data[: match.end(1)] + data[match.start(3) :]
    if b"<!" in re.sub(rb"<!--.*?-->", b"", data, flags=re.DOTALL):
        raise blob.fault("XML without entities", "a declaration", _FIX)
    try:
        root = ElementTree.fromstring(data)
        return _of_xml(blob, root, _Arrays(root, appended, max_bytes)).raw()
    except LoaderError:
        raise
    except (ElementTree.ParseError, LookupError, ValueError, TypeError, zlib.error) as error:
        got = f"{type(error).__name__}: {str(error)[:200]}"
        raise blob.fault("a .vtp file", got, _FIX) from None


def _of_xml(blob: Blob, root: Any, arrays: "_Arrays") -> _Parts:
    parts = _Parts(blob)
    pieces = root.findall("PolyData/Piece")
    if len(pieces) != 1:
        raise ValueError(f"{len(pieces)} pieces of PolyData, expected one")
    for section in pieces[0]:
        items = [item for item in section if item.tag == "DataArray"]
        name = {"Lines": "lines", "Polys": "polygons", "Verts": "vertices", "Strips": "strips"}.get(
            section.tag
        )
        if name is not None:
            ends = {item.attrib["Name"]: arrays.of(item) for item in items}
            ptr = np.append(0, ends["offsets"]).astype(np.int64)
            parts.cells[name] = ptr, ends["connectivity"]
        for item in items:
            width = int(item.get("NumberOfComponents", 1))
            if section.tag == "Points":
                parts.points["pos"] = arrays.of(item).reshape(-1, 3)
            elif section.tag in ("PointData", "CellData"):
                values = np.zeros(0)
                is_kept = section.tag == "PointData" and item.attrib["type"].lower() in _TYPES
                if is_kept:
                    values = arrays.of(item)
                label = item.attrib["Name"]
                if label == section.get("Normals"):
                    label = "normal"
                parts.keep(label, values, width, is_kept)
    return parts


class _Arrays:
    """Arrays of a file of XML."""

    def __init__(self, root: Any, appended: bytes, max_bytes: int) -> None:
        self.appended = appended
        self.max_bytes = max_bytes
        place = root.find("AppendedData")
        self.is_raw = place is not None and place.get("encoding") == "raw"
        self.order = "<"
        if root.get("byte_order") == "BigEndian":
            self.order = ">"
        self.header = np.dtype(self.order + _TYPES[root.get("header_type", "UInt32").lower()])
        self.compressor = root.get("compressor", "")

    def of(self, item: Any) -> np.ndarray:
        """The numbers of a DataArray."""
        code = _TYPES[item.attrib["type"].lower()]
        form = item.get("format", "ascii")
        text = (item.text or "").encode()
        if form == "ascii":
            values = np.array([float(word) for word in text.split()])
            return values.astype(code)
        is_raw = False
        text = text.strip()
        if form == "appended":
            text = self.appended[int(item.attrib["offset"]) :]
            is_raw = self.is_raw
        data = self._bytes(text, is_raw)
        return np.frombuffer(data, self.order + code).astype(code)

    def _bytes(self, text: bytes, is_raw: bool) -> bytes:
        size = self.header.itemsize
        if not self.compressor:
            begin, end = _piece(text, 0, size, is_raw)
            count = int(np.frombuffer(begin, self.header)[0])
            if is_raw:
                return text[end : end + count]
            return _piece(text, 0, size + count, is_raw)[0][size:]
        if "ZLib" not in self.compressor:
            raise ValueError(f"{self.compressor}, expected vtkZLibDataCompressor")
        count = int(np.frombuffer(_piece(text, 0, size, is_raw)[0], self.header)[0])
        head, end = _piece(text, 0, size * (3 + count), is_raw)
        _, whole, last, *packed = np.frombuffer(head, self.header).tolist()
        if len(packed) != count:
            raise ValueError(f"{count} blocks, of which {len(packed)} have a size")
        body, _ = _piece(text, end, sum(packed), is_raw)
        sizes = [whole] * count
        if count and last:
            sizes[-1] = last
        if sum(sizes) > self.max_bytes:
            raise ValueError(f"{sum(sizes)} bytes, expected at most max_bytes={self.max_bytes}")
        blocks = []
        at = 0
        for length, most in zip(packed, sizes, strict=True):
            blocks.append(zlib.decompressobj().decompress(body[at : at + length], most))
            at += length
        return b"".join(blocks)


def _piece(text: bytes, start: int, size: int, is_raw: bool) -> tuple[bytes, int]:
    """The next bytes of an encoded text, and where they end."""
    if is_raw:
        end = start + size
        return text[start:end], end
    end = start + 4 * -(-size // 3)
    return base64.b64decode(text[start:end], validate=True)[:size], end
