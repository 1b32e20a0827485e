"""The header of a PLY file: what follows it, in which order and in which types."""

import re
from typing import NamedTuple

from graphattn.interop.files._guard import Blob, show

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
_ORDER = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_END = re.compile(rb"[\r\n][ \t]*end_header[ \t]*(\r\n|\n|\r)")


class Property(NamedTuple):
    """One number of each row, or a list of numbers when ``count`` has a type."""

    name: str
    type: str  # numpy's, with byte order
    count: str = ""


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
        got = "none in its first 64 KiB" if blob.data.startswith(b"ply") else show(blob.data[:8])
        raise blob.fault("a header from 'ply' to 'end_header'", got, "check that this is a whole PLY file", offset=0)
    order, elements, offset = None, [], 0
    for raw in re.split(rb"\r\n|\n|\r", blob.data[: end.start()]):
        match raw.decode("latin-1").split():
            case ["ply"] | ["comment" | "obj_info", *_] | []:
                pass
            case ["format", kind, "1.0"] if kind in _ORDER and order is None:
                order = _ORDER[kind]
            case ["element", name, num] if re.fullmatch("[0-9]{1,18}", num) and name not in dict(elements):
                elements.append((name, (int(num), [])))
            case ["property", "list", count, kind, name] if elements and _TYPES.get(count, "f")[0] != "f" and kind in _TYPES:
                elements[-1][1][1].append(Property(name, f"{order}{_TYPES[kind]}", f"{order}{_TYPES[count]}"))
            case ["property", kind, name] if elements and kind in _TYPES:
                elements[-1][1][1].append(Property(name, f"{order}{_TYPES[kind]}"))
            case _:
                expected = "format, comment, element or property of a known type, each element once"
                raise blob.fault(expected, show(raw), "correct the header", offset=offset)
        offset = min(blob.data.find(raw, offset) + len(raw) + 1, end.start())
    if order is None:
        raise blob.fault("format ascii, binary_little_endian or binary_big_endian 1.0", "none", "add it", offset=0)
    found = tuple(Element(name, num, tuple(properties)) for name, (num, properties) in elements)
    for element in found:
        names = [item.name for item in element.properties]
        if (element.num and not names) or len(set(names)) < len(names):
            got = f"the properties {names}"
            raise blob.fault("different properties", got, "correct the header", at=f"element {element.name}"[:60])
    return Header(order == "", found, end.end())
