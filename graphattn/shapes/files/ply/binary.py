"""The body of a binary PLY file: rows of fixed size at once, of varying size one by one."""

import struct
from array import array

import numpy as np

from ....errors import LoaderError
from ....io.reading import Blob
from .header import Column, Element, Property

_ROW_BYTES = 1 << 30  # a numpy type must stay below 2**31 bytes
_CODE = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}


def read_binary(blob: Blob, elements: tuple[Element, ...]) -> dict[str, dict[str, Column]]:
    """The columns of every element in the bytes of ``blob``, checked against the header."""
    out: dict[str, dict[str, Column]] = {}
    start = 0
    for element in elements:
        least = element.num * sum(item.least for item in element.properties)
        if least > len(blob.data) - start:
            raise _short(blob, element, least, len(blob.data) - start)
        uniform = _uniform(blob, element, start)
        out[element.name], start = uniform or _ragged(blob, element, start)
    if start != len(blob.data):
        got = f"{len(blob.data) - start} more"
        expected = f"the end of the file {start} bytes after its header"
        raise blob.fault(expected, got, "check the counts in the header")
    return out


def _uniform(blob: Blob, element: Element, start: int) -> tuple[dict[str, Column], int] | None:
    """All rows in one view, if all lists are as long as those of the first row."""
    if not element.num:
        none: dict[str, Column] = {}
        for item in element.properties:
            values = np.zeros(0, item.type)
            none[item.name] = values
            if item.length:
                none[item.name] = (np.zeros(0, np.int64), values)
        return none, start
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = []
    position = start
    sizes: dict[str, int] = {}
    for item in element.properties:
        if item.length:
            sizes[item.name] = size = _count(blob, element, 0, item, position)
            fields.append((f"{item.name}\n", item.length))  # no property's name has a line end
            fields.append((item.name, item.type, (size,)))
            position += item.least + size * item.width
        else:
            fields.append((item.name, item.type))
            position += item.width
    end = start + element.num * (position - start)
    if end > len(blob.data) or position - start > _ROW_BYTES:
        return None
    view = np.frombuffer(blob.data, np.dtype(fields), element.num, start)
    if any((view[f"{name}\n"] != size).any() for name, size in sizes.items()):
        return None
    columns: dict[str, Column] = {}
    for item in element.properties:
        column = view[item.name]
        if item.length:
            columns[item.name] = (np.full(element.num, sizes[item.name]), column.reshape(-1))
        else:
            columns[item.name] = column
    return columns, end


def _ragged(blob: Blob, element: Element, position: int) -> tuple[dict[str, Column], int]:
    """The lists of each row, read one by one: only its own length locates the end of a list."""
    data, total = blob.data, len(blob.data)
    sizes = {item.name: array("q") for item in element.properties if item.length}
    joined = {item.name: bytearray() for item in element.properties}
    steps = []
    for item in element.properties:
        if item.length:
            unpack = struct.Struct(item.length[0] + _CODE[item.length[1:]]).unpack_from
        else:
            unpack = None
        steps.append(
            (item, unpack, item.least, item.width, sizes.get(item.name), joined[item.name])
        )
    for row in range(element.num):
        for item, unpack, least, width, lengths, items in steps:
            if unpack is None or lengths is None:
                items += data[position : position + width]
                position += width
                continue
            if position + least <= total:
                size = unpack(data, position)[0]
            else:
                size = -1
            if not 0 <= size * width <= total - position - least:
                _count(blob, element, row, item, position)  # says what is wrong
            begin = position + least
            position = begin + size * width
            lengths.append(size)
            items += data[begin:position]
        if position > total:
            raise _short(blob, element, position - total, 0, row)
    columns: dict[str, Column] = {}
    for item in element.properties:
        values = np.frombuffer(joined[item.name], item.type)
        if item.length:
            columns[item.name] = (np.frombuffer(sizes[item.name], np.int64), values)
        else:
            columns[item.name] = values
    return columns, position


def _count(blob: Blob, element: Element, row: int, item: Property, position: int) -> int:
    """The length of a list, once it is known to fit into the bytes that are left."""
    left = len(blob.data) - position - item.least
    if left < 0:
        raise _short(blob, element, item.least, left + item.least, row)
    size = int(struct.unpack_from(item.length[0] + _CODE[item.length[1:]], blob.data, position)[0])
    if not 0 <= size <= left // item.width:
        expected = f"a list {item.name} of 0 to {left // item.width} numbers"
        raise blob.fault(expected, str(size), "get the whole file", at=f"{element.name} {row}")
    return size


def _short(
    blob: Blob, element: Element, need: int, left: int, row: int | None = None
) -> LoaderError:
    if row is None:
        at = f"element {element.name}"
    else:
        at = f"{element.name} {row}"
    got = f"{max(left, 0)} (truncated)"
    return blob.fault(f"{need} bytes", got, "get the whole file, or correct the header", at=at)
