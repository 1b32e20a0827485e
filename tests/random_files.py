"""Files with random headers, written number by number, beside what they hold.

They are written here and not by a library: plyfile writes numbers beside a list in this machine's order of bytes.
"""

import struct
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
        others = {name: self._columns(draw, int(draw.integers(0, 4))) for name in ("edge", "material")}
        groups = {"vertex": self._vertices(draw), "face": self._faces(draw)}
        groups |= {name: columns for name, columns in others.items() if columns and draw.random() < 0.5}
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
        columns = self._columns(draw, self.count) | {axis: numbers(draw, kind, self.count) for axis in "xyz"}
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
                    words = [str(draw.choice(PLY_TYPES[kind])) for kind in (column.length, column.type)]
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
