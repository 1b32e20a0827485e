"""Tables of comma-separated values, whose texts no spreadsheet runs."""

import csv
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def comma_separated(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as lines, with an apostrophe before text that a spreadsheet would read as a formula."""
    lines: list[str] = []
    sink = SimpleNamespace(write=lines.append)
    csv.writer(sink, lineterminator="\r\n").writerows(
        [_inert(cell) for cell in row] for row in rows
    )
    # the writer quotes what is in its own ends of lines alone
    return "".join(f"{line[:-2]}\n" for line in lines)


def _inert(cell: Any) -> Any:
    if not isinstance(cell, str) or not cell.startswith(_BEGINS_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
