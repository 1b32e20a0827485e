"""Files with random headers, written number by number, beside what they hold.

They are written here and not by a library: plyfile writes numbers beside a list in this machine's
order of bytes.
"""

import json
import struct
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

#: The names that PLY has for a type.
PLY_TYPES = {
    "i1": ("char", "int8"),
    "u1": ("uchar", "uint8"),
    "i2": ("short", "int16"),
    "u2": ("ushort", "uint16"),
    "i4": ("int", "int32"),
    "u4": ("uint", "uint32"),
    "f4": ("float", "float32"),
    "f8": ("double", "float64"),
}
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


class Listed(NamedTuple):
    """A list of numbers in each row."""

    length: str
    type: str
    rows: list[np.ndarray]

    def table(self) -> np.ndarray:
        """Lists of one length as (n, k)."""
        if self.rows:
            return np.array(self.rows, self.type)
        return np.zeros((0, 0), self.type)


def numbers(draw: np.random.Generator, kind: str, shape: Any) -> np.ndarray:
    """Numbers of a type over its whole range, floats of many sizes."""
    if kind[0] == "f":
        values = draw.normal(size=shape) * 10.0 ** draw.integers(-6, 7, shape)
        return np.asarray(values, kind)
    span = np.iinfo(kind)
    return draw.integers(span.min, span.max, shape, dtype=kind, endpoint=True)


def _one(draw: np.random.Generator, kinds: str) -> str:
    return str(draw.choice(kinds.split()))


class Ply:
    """A PLY file: ``elements`` of columns by name, which ``data`` holds."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.form = str(draw.choice(list(ORDERS)))
        self.count = int(draw.integers(3, 12))
        others = {
            name: self._columns(draw, int(draw.integers(0, 4))) for name in ("edge", "material")
        }
        groups = {"vertex": self._vertices(draw), "face": self._faces(draw)}
        groups |= {
            name: columns for name, columns in others.items() if columns and draw.random() < 0.5
        }
        names = list(groups)
        draw.shuffle(names)
        self.elements = {name: groups[name] for name in names}
        self.data = self._written(draw)

    def _columns(self, draw: np.random.Generator, rows: int) -> dict[str, Any]:
        """Random numbers, and lists of one length."""
        out: dict[str, Any] = {}
        for place in range(int(draw.integers(0, 4))):
            kind = _one(draw, " ".join(PLY_TYPES))
            if draw.random() < 0.3:
                width = int(draw.integers(1, 4))
                rows_ = list(numbers(draw, kind, (rows, width)))
                out[f"list_{place}"] = Listed(_one(draw, "u1 i1 u2 i4 u4"), kind, rows_)
            else:
                out[f"number_{place}"] = numbers(draw, kind, rows)
        return out

    def _vertices(self, draw: np.random.Generator) -> dict[str, Any]:
        kind = _one(draw, "f4 f8")
        columns = self._columns(draw, self.count) | {
            axis: numbers(draw, kind, self.count) for axis in "xyz"
        }
        if draw.random() < 0.5:
            columns |= {name: numbers(draw, "u1", self.count) for name in ("red", "green", "blue")}
        return self._mixed(draw, columns)

    def _faces(self, draw: np.random.Generator) -> dict[str, Any]:
        """Polygons of one size or of several, with numbers before and after their corners."""
        rows = int(draw.integers(1, 8))
        largest = 4 if draw.random() < 0.3 else 7
        sizes = draw.integers(3, largest, rows)
        kind = _one(draw, "i4 u4 u2 u1")
        corners = [draw.integers(0, self.count, size).astype(kind) for size in sizes]
        columns = self._columns(draw, rows)
        columns["vertex_indices"] = Listed(_one(draw, "u1 u2 i4"), kind, corners)
        if draw.random() < 0.4:
            pairs = [numbers(draw, "f4", 2 * size) for size in sizes]
            columns["texcoord"] = Listed("u1", "f4", pairs)
        return self._mixed(draw, columns)

    @staticmethod
    def _mixed(draw: np.random.Generator, columns: dict[str, Any]) -> dict[str, Any]:
        """The same columns in another order."""
        names = list(columns)
        draw.shuffle(names)
        return {name: columns[name] for name in names}

    def _written(self, draw: np.random.Generator) -> bytes:
        lines = ["ply", f"format {self.form} 1.0", "comment by hand"]
        body = b""
        for element, columns in self.elements.items():
            first = next(iter(columns.values()))
            count = len(first.rows) if isinstance(first, Listed) else len(first)
            lines.append(f"element {element} {count}")
            for name, column in columns.items():
                if isinstance(column, Listed):
                    words = [
                        str(draw.choice(PLY_TYPES[kind])) for kind in (column.length, column.type)
                    ]
                    lines.append(f"property list {words[0]} {words[1]} {name}")
                else:
                    lines.append(f"property {draw.choice(PLY_TYPES[column.dtype.str[1:]])} {name}")
            for row in range(count):
                body += self._row(columns, row)
        return "\n".join([*lines, "end_header\n"]).encode() + body

    def _row(self, columns: dict[str, Any], row: int) -> bytes:
        words, packed = [], b""
        for column in columns.values():
            values = column.rows[row] if isinstance(column, Listed) else column[row : row + 1]
            if isinstance(column, Listed):
                words.append(str(len(values)))
                packed += self._packed(column.length, np.array([len(values)]))
            words += [repr(value.item()) if value.dtype != "f4" else str(value) for value in values]
            packed += self._packed(values.dtype.str[1:], values)
        return f"{' '.join(words)}\n".encode() if self.form == "ascii" else packed

    def _packed(self, kind: str, values: np.ndarray) -> bytes:
        letter = dict(zip(PLY_TYPES, "bBhHiIfd", strict=True))[kind]
        return struct.pack(f"{ORDERS[self.form]}{len(values)}{letter}", *values.tolist())


class Pcd:
    """A PCD file: ``columns`` (N,) or (N, k) by name; fields are scattered, some are padding."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.form = _one(draw, "ascii binary binary_compressed")
        self.count = int(draw.integers(1, 30))
        kind = _one(draw, "f4 f8")
        columns: list[tuple[str, np.ndarray]] = [
            (axis, numbers(draw, kind, self.count)) for axis in "xyz"
        ]
        for place in range(int(draw.integers(0, 5))):
            kind = _one(draw, "u1 i1 u2 i2 u4 i4 u8 i8 f4 f8")
            shape = (self.count, int(draw.integers(2, 4))) if draw.random() < 0.3 else (self.count,)
            columns.append((f"field_{place}", numbers(draw, kind, shape)))
        if draw.random() < 0.3:
            columns.append(("_", np.zeros((self.count, 4), "u1")))
        if draw.random() < 0.5:
            draw.shuffle(columns)
        self.columns = dict(columns)
        self.data = self._head(draw) + self._body()

    def _head(self, draw: np.random.Generator) -> bytes:
        kinds = [column.dtype for column in self.columns.values()]
        counts = [column[0].size for column in self.columns.values()]
        height = 2 if self.count % 2 == 0 and draw.random() < 0.5 else 1
        lines = [
            "# .PCD v0.7",
            f"VERSION {_one(draw, '0.7 .7')}",
            f"FIELDS {' '.join(self.columns)}",
        ]
        lines.append(f"SIZE {' '.join(str(kind.itemsize) for kind in kinds)}")
        lines.append(f"TYPE {' '.join(kind.kind.upper() for kind in kinds)}")
        lines.append(f"COUNT {' '.join(map(str, counts))}")
        lines += [f"WIDTH {self.count // height}", f"HEIGHT {height}", "VIEWPOINT 0 0 0 1 0 0 0"]
        return "\n".join([*lines, f"POINTS {self.count}", f"DATA {self.form}\n"]).encode()

    def _body(self) -> bytes:
        table = np.zeros(
            self.count, [(name, x.dtype, x.shape[1:]) for name, x in self.columns.items()]
        )
        for name, column in self.columns.items():
            table[name] = column
        if self.form == "binary":
            return table.tobytes()
        if self.form == "ascii":
            rows = (
                np.concatenate([[str(v) for v in np.ravel(cell)] for cell in row]) for row in table
            )
            return "".join(" ".join(row) + "\n" for row in rows).encode()
        plain = b"".join(np.ascontiguousarray(column).tobytes() for column in self.columns.values())
        packed = b"".join(bytes([len(part) - 1]) + part for part in _pieces(plain, 32))
        return struct.pack("<II", len(packed), len(plain)) + packed


def _pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def fan_of(places):
    """Triangles (k - 2, 3) of a polygon's corners (k, 3): a fan from the first that folds none."""
    count = len(places)
    for start in range(count):
        numbers_ = [(start + i) % count for i in range(count)]
        sides = places[numbers_[1:]].astype("f8") - places[start]
        areas = np.cross(sides[:-1], sides[1:])
        normal = areas.sum(0)
        if all(area @ normal >= -1e-9 * normal @ normal for area in areas):
            break
    else:
        numbers_ = list(range(count))
    return [[numbers_[0], numbers_[i], numbers_[i + 1]] for i in range(1, count - 1)]


class Mesh:
    """Vertices, polygons, and a number of texture coordinates and normals of corners, all as
    float32.
    """

    def __init__(self, seed: int, largest: int = 6) -> None:
        self.draw = draw = np.random.default_rng(seed)
        self.pos = numbers(draw, "f4", (int(draw.integers(4, 12)), 3))
        most = 3 if draw.random() < 0.4 else largest
        sizes = draw.integers(3, most, int(draw.integers(1, 8)), endpoint=True)
        num = len(self.pos)
        self.polygons = [draw.permutation(num)[: min(size, num)] for size in sizes]
        self.corner = np.concatenate(self.polygons)
        self.ptr = np.cumsum([0, *map(len, self.polygons)])
        self.color = draw.integers(0, 256, (num, 3))

    def fans(self, values: np.ndarray) -> np.ndarray:
        """Values (K, ...) of corners at those of triangles, (F, 3, ...)."""
        rows = [
            np.array(fan_of(self.pos[self.corner[first:end]])) + first
            for first, end in pairwise(self.ptr)
        ]
        return values[np.concatenate(rows)]

    def off(self) -> tuple[bytes, set[str]]:
        """OFF, and the words that it has: of vertices normal, color, uv, of faces face_color."""
        draw, lines = self.draw, []
        words = {word for word in ("uv", "color", "normal", "face_color") if draw.random() < 0.4}
        self.normal = numbers(draw, "f4", (len(self.pos), 3))
        self.uv = numbers(draw, "f4", (len(self.pos), 2))
        self.face_color = draw.integers(0, 256, (len(self.polygons), 3))
        head = f"{'ST' * ('uv' in words)}{'C' * ('color' in words)}{'N' * ('normal' in words)}OFF"
        gap = _one(draw, "space line")
        lines.append(
            f"{head}{' ' if gap == 'space' else chr(10)}{len(self.pos)} {len(self.polygons)} 0"
        )
        for row in range(len(self.pos)):
            cells = [*self.pos[row]]
            for word in ("normal", "color", "uv"):
                cells += [*getattr(self, word)[row]] if word in words else []
            lines.append(self._joined(cells))
        for polygon, color in zip(self.polygons, self.face_color, strict=True):
            lines.append(
                self._joined([len(polygon), *polygon, *(color if "face_color" in words else ())])
            )
        return self._text(lines), words

    def obj(self) -> tuple[bytes, set[str]]:
        """OBJ with tables before or between its faces, indices from the start or the end."""
        draw = self.draw
        words = {word for word in ("uv", "normal", "color") if draw.random() < 0.5}
        self.back = False
        many = len(self.corner)
        self.tables = {"uv": numbers(draw, "f4", (5, 2)), "normal": numbers(draw, "f4", (7, 3))}
        self.at = {"uv": draw.integers(0, 5, many), "normal": draw.integers(0, 7, many)}
        cells = self.pos
        if "color" in words:
            cells = np.concatenate((self.pos, (self.color / 255).astype("f4")), axis=1)
        lines = [f"v {self._joined(cell)}" for cell in cells]
        for word, keyword in (("uv", "vt"), ("normal", "vn")):
            lines += (
                [f"{keyword} {self._joined(row)}" for row in self.tables[word]]
                if word in words
                else []
            )
        draw.shuffle(lines)
        order = [line.partition(" ")[2] for line in lines if line.startswith("v ")]
        rank = np.array([order.index(self._joined(cell)) for cell in cells])
        self.pos = self.pos[np.argsort(rank)]
        self.color = self.color[np.argsort(rank)]
        self.corner = rank[self.corner]
        for word, keyword in (("uv", "vt"), ("normal", "vn")):
            own = [line.partition(" ")[2] for line in lines if line.startswith(f"{keyword} ")]
            if word in words:
                found = np.array([own.index(self._joined(row)) for row in self.tables[word]])
                self.tables[word] = self.tables[word][np.argsort(found)]
                self.at[word] = found[self.at[word]]
        lines.insert(int(draw.integers(len(lines))), "o a thing")
        for a, b in pairwise(self.ptr):
            back = draw.random() < 0.3
            cells = []
            for k in range(a, b):
                parts = [self.corner[k] - (len(self.pos) if back else -1)]
                for word in ("uv", "normal"):
                    given = self.at[word][k] - (len(self.tables[word]) if back else -1)
                    parts.append(given if word in words else "")
                cells.append("/".join(map(str, parts)).rstrip("/"))
            self.back |= back
            lines.append(f"f {' ' * int(draw.integers(2))}{' '.join(cells)}")
            if draw.random() < 0.2:
                lines.append("s off")
        return self._text(lines), words

    def stl(self) -> bytes:
        """STL of its triangles, text or binary."""
        corners = self.fans(self.pos[self.corner])
        if self.draw.random() < 0.5:
            self.attribute = self.draw.integers(0, 1 << 16, len(corners)).astype("<u2")
            facets = [
                np.append(np.zeros(3), corner).astype("<f4").tobytes() + number.tobytes()
                for corner, number in zip(corners, self.attribute, strict=True)
            ]
            return bytes(80) + struct.pack("<I", len(facets)) + b"".join(facets)
        self.attribute = np.zeros(len(corners), "u2")
        lines = ["solid a"]
        for corner in corners:
            lines += [
                "facet normal 0 0 0",
                "outer loop",
                *(f"  vertex {self._joined(row)}" for row in corner),
            ]
            lines += ["endloop", "endfacet"]
        return self._text([*lines, "endsolid a"], gaps=False)

    def glb(self) -> tuple[bytes, dict[str, np.ndarray]]:
        """A GLB of its triangles, and its attributes as they are: of several types, rows side by
        side or not.
        """
        draw, num = self.draw, len(self.pos)
        faces = self.fans(self.corner)
        attributes = {"POSITION": self.pos}
        for word, width in (
            ("NORMAL", 3),
            ("TEXCOORD_0", 2),
            ("COLOR_0", int(draw.integers(3, 5))),
            ("_HEAT", 1),
        ):
            kind = _one(
                draw,
                {"COLOR_0": "u1 u2 f4", "TEXCOORD_0": "f4 u1 u2", "_HEAT": "f4 u1 u2 i2"}.get(
                    word, "f4"
                ),
            )
            if draw.random() < 0.6:
                values = (
                    draw.random((num, width)).astype("f4")
                    if kind == "f4"
                    else numbers(draw, kind, (num, width))
                )
                attributes[word] = values
        indices = faces.reshape(-1, 1).astype(_one(draw, "u1 u2 u4"))
        views, accessors, body = [], [], b""
        types = {"i1": 5120, "u1": 5121, "i2": 5122, "u2": 5123, "u4": 5125, "f4": 5126}
        for name, values in [*attributes.items(), ("", indices)]:
            step = 4 * -(-values[0].nbytes // 4) if name else values.itemsize
            step += 4 * int(draw.integers(0, 3)) if name else 0
            table = np.zeros((len(values), step), "u1")
            table[:, : values[0].nbytes] = (
                np.ascontiguousarray(values).view("u1").reshape(len(values), -1)
            )
            view = {"buffer": 0, "byteOffset": len(body), "byteLength": table.size}
            views.append(view | ({"byteStride": step} if name else {}))
            width = ("SCALAR", "VEC2", "VEC3", "VEC4")[values.shape[1] - 1]
            accessor = {"bufferView": len(views) - 1, "componentType": types[values.dtype.str[1:]]}
            accessor |= {"count": len(values), "type": width}
            if values.dtype.kind == "u" and name in ("COLOR_0", "TEXCOORD_0"):
                accessor["normalized"] = True
            accessors.append(accessor)
            body += table.tobytes() + bytes(-table.size % 4)
        primitive = {
            "attributes": {name: at for at, name in enumerate(attributes)},
            "indices": len(attributes),
        }
        tree = {
            "asset": {"version": "2.0"},
            "scene": 0,
            "scenes": [{"nodes": [0]}],
            "nodes": [{"mesh": 0}],
        }
        tree |= {
            "meshes": [{"primitives": [primitive]}],
            "accessors": accessors,
            "bufferViews": views,
        }
        tree["buffers"] = [{"byteLength": len(body)}]
        text = json.dumps(tree).encode()
        text += b" " * (-len(text) % 4)
        head = struct.pack("<4sII", b"glTF", 2, 28 + len(text) + len(body))
        chunks = (
            struct.pack("<I4s", len(text), b"JSON")
            + text
            + struct.pack("<I4s", len(body), b"BIN\0")
            + body
        )
        return head + chunks, attributes

    def _joined(self, cells: Any) -> str:
        return " ".join(str(cell) for cell in cells)

    def _text(self, lines: list[str], *, gaps: bool = True) -> bytes:
        """Lines with one of the three ends of lines, comments and blank lines between them."""
        out = []
        for line in lines:
            out.append(line)
            if gaps and self.draw.random() < 0.1:
                out.append(_one(self.draw, "# #x"))
        end = str(self.draw.choice(["\n", "\r\n"]))
        return (end.join(out) + end).encode()


class Table:
    """A text of points: columns with names or without, between one of several marks."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.named = bool(draw.random() < 0.5)
        mark = str(draw.choice([" ", "  ", "\t", ",", ", ", ";"]))
        names = ["x", "y", "z"] + [f"c{place}" for place in range(int(draw.integers(0, 4)))]
        if self.named:
            draw.shuffle(names)
        self.names = names
        self.mark = mark.strip() or None
        whole = draw.random(len(names)) < 0.3
        kinds = [
            "i4" if w and name not in "xyz" else "f4" for name, w in zip(names, whole, strict=True)
        ]
        rows = int(draw.integers(2, 12))
        self.columns = {
            name: numbers(draw, kind, rows) for name, kind in zip(names, kinds, strict=True)
        }
        lines = [mark.join(str(self.columns[name][row]) for name in names) for row in range(rows)]
        head = f"# {' '.join(names)}" if draw.random() < 0.5 else mark.join(names)
        self.head = int(self.named)
        end = str(draw.choice(["\n", "\r\n"]))
        self.data = (end.join(([head] if self.named else []) + lines) + end).encode()
