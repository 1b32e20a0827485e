"""The body of an ascii PLY file: one line for each row, all rows of an element side by side."""

import numpy as np

from ....io.numbers import Rows, rows
from ....io.reading import Blob
from ..polygons import spans, typed
from .header import Column, Element


def read_ascii(
    blob: Blob, elements: tuple[Element, ...], body: int
) -> tuple[dict[str, dict[str, Column]], dict[str, np.ndarray]]:
    """The columns of every element, and the byte offsets of its lines."""
    # CloudCompare has NaN where a scalar is unknown
    table = rows(blob, b" " * body + blob.data[body:], nonfinite=True)
    have = len(table.ptr) - 1
    want = sum(element.num for element in elements)
    if have != want:
        fault = "some are too many"
        if have < want:
            fault = "truncated"
        got = f"{have} ({fault})"
        raise blob.fault(
            f"{want} lines after the header, as it says", got, "get the whole file", offset=body - 1
        )
    columns = {}
    lines = {}
    low = 0
    for element in elements:
        columns[element.name] = _columns(blob, table, element, low)
        lines[element.name] = table.start[table.ptr[low : low + element.num]]
        low += element.num
    return columns, lines


def _columns(blob: Blob, table: Rows, element: Element, low: int) -> dict[str, Column]:
    """Walk the properties once, all rows side by side."""
    position = table.ptr[low : low + element.num]
    end = table.ptr[low + 1 : low + 1 + element.num]
    out: dict[str, Column] = {}
    for item in element.properties:
        _stop(blob, table, element, low, position >= end, f"a number for {item.name}")
        number = table.value[position]
        position = position + 1
        if not item.length:
            out[item.name] = typed(
                blob, item.name, number, np.dtype(item.type), table.start[position - 1]
            )
            continue
        wrong = ~((number >= 0) & (number <= end - position) & (number == np.trunc(number)))
        _stop(blob, table, element, low, wrong, f"the length of {item.name}, then as many numbers")
        size = number.astype(np.int64)
        at = spans(position, size)
        out[item.name] = (
            size,
            typed(blob, item.name, table.value[at], np.dtype(item.type), table.start[at]),
        )
        position = position + size
    _stop(blob, table, element, low, position != end, "the end of the line")
    return out


def _stop(
    blob: Blob, table: Rows, element: Element, low: int, wrong: np.ndarray, expected: str
) -> None:
    """Raise for the first row that is wrong."""
    bad = np.flatnonzero(wrong)
    if len(bad):
        row = int(bad[0])
        got = str(table.value[table.ptr[low + row] : table.ptr[low + row + 1]][:8].tolist())
        raise blob.fault(
            expected,
            got,
            "correct the line",
            offset=table.offset(low + row),
            at=f"{element.name} {row}",
        )
