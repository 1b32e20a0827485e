"""The header of a PLY file: what follows it, in which order and in which types."""

import re
from typing import NamedTuple

import numpy as np

from ....io.reading import Blob, show

# (n,) numbers, or the lengths (n,) and the items of lists
Column = np.ndarray | tuple[np.ndarray, np.ndarray]
HEADER_BYTES = 1 << 16  # 64 KiB

_TYPES = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("int64",), "i8"),
    **dict.fromkeys(("uint64",), "u8"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}
#: The words of the format, by numpy's type.
TYPES = {np.dtype(kind): name for name, kind in _TYPES.items() if name.isalpha()}
_COUNTS = [name for name, kind in _TYPES.items() if kind[0] != "f"]
_ORDER = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_END = re.compile(rb"[\r\n][ \t]*end_header[ \t]*(\r\n|\n|\r)")


class Property(NamedTuple):
    """One number of each row, or a list of numbers when ``length`` has a type."""

    name: str
    type: str  # numpy's, with byte order
    length: str = ""

    @property
    def width(self) -> int:
        """Bytes of one number (of a list: of one item)."""
        return int(self.type[-1])

    @property
    def least(self) -> int:
        """The least bytes of the property: its length if it is a list."""
        return int((self.length or self.type)[-1])


class Element(NamedTuple):
    """``num`` rows of the same properties."""

    name: str
    num: int
    properties: tuple[Property, ...]


class Header(NamedTuple):
    """The parsed header; ``body`` is the byte at which the data begins."""

    ascii: bool
    elements: tuple[Element, ...]
    body: int


def read_header(blob: Blob) -> Header:
    """Read the header, of which at most 64 KiB are looked at."""
    end = _END.search(blob.data, 0, HEADER_BYTES)
    if not blob.data.startswith(b"ply") or end is None:
        if blob.data.startswith(b"ply"):
            got = "none in its first 64 KiB"
        else:
            got = show(blob.data[:8])
        raise blob.fault(
            "a header from 'ply' to 'end_header'",
            got,
            "check that this is a whole PLY file",
            offset=0,
        )
    order: str | None = None
    rows: dict[str, int] = {}
    properties: dict[str, list[Property]] = {}
    element = ""
    for line in re.finditer(rb"[^\r\n]+", blob.data[: end.start()]):
        match line[0].decode("utf-8", "backslashreplace").split():
            case ["ply"] | ["comment" | "obj_info", *_] | []:
                pass
            case ["format", kind, "1.0"] if kind in _ORDER and order is None:
                order = _ORDER[kind]
            case ["element", element, num] if (
                re.fullmatch("[0-9]{1,18}", num) and element not in rows and order is not None
            ):
                rows[element] = int(num)
                properties[element] = []
            case ["property", "list", num, kind, name] if (
                element in rows and kind in _TYPES and num in _COUNTS
            ):
                properties[element].append(
                    Property(name, f"{order}{_TYPES[kind]}", f"{order}{_TYPES[num]}")
                )
            case ["property", kind, name] if element in rows and kind in _TYPES:
                properties[element].append(Property(name, f"{order}{_TYPES[kind]}"))
            case _:
                expected = "format, then each element once with properties of known types"
                raise blob.fault(expected, show(line[0]), "correct the header", offset=line.start())
    if order is None:
        raise blob.fault(
            "format ascii, binary_little_endian or binary_big_endian 1.0",
            "none",
            "add it",
            offset=0,
        )
    for element, entries in properties.items():
        names = [item.name for item in entries]
        if (rows[element] and not names) or len(set(names)) < len(names):
            got = f"the properties {names[:9]}"
            at = f"element {element[:40]}"
            raise blob.fault("properties, each once", got, "correct the header", at=at)
    elements = tuple(
        Element(name, rows[name], tuple(entries)) for name, entries in properties.items()
    )
    return Header(order == "", elements, end.end())
