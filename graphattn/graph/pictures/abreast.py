"""Several graphs in text: a line each, and the first masks side by side."""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from .draw import cell_side, drawable, mask_rows

_MOST_LINES = 6  # of graphs that differ, and of numbers of equal ones
_MOST_MASKS = 3
_MOST_ROWS = 16  # of a mask


def abreast(noun: str, graphs: Iterable[Any]) -> str:
    """The first of several graphs, a line each with their numbers, and their masks side by side.

    Args:
        noun: What has a number: "head", "example".
        graphs: One for each; an object that comes again has one line.
    """
    numbers: dict[Any, list[int]] = {}
    for number, graph in enumerate(graphs):
        numbers.setdefault(graph, []).append(number)
    lines = [f"{noun} {_few(places)}: {graph!r}" for graph, places in numbers.items()]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"and {len(lines) - _MOST_LINES} more"]
    masks = [_mask(graph) for graph in list(numbers)[:_MOST_MASKS]]
    widths = [max(map(len, mask), default=0) for mask in masks]
    for row in zip_longest(*masks, fillvalue=""):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("   ".join(cells).rstrip())
    return "\n".join(lines)


def _few(numbers: list[int]) -> str:
    if len(numbers) <= _MOST_LINES:
        return ", ".join(map(str, numbers))
    first = ", ".join(map(str, numbers[:_MOST_LINES]))
    return f"{first} and {len(numbers) - _MOST_LINES} more"


def _mask(graph: Any) -> list[str]:
    """The rows of a graph's mask; none of an open size, of several heads, or of too many pairs."""
    edges = getattr(graph, "edges", None)
    if edges is None or 0 in (edges.num_targets, edges.num_sources) or not drawable(edges):
        return []
    return mask_rows(edges, cell_side(edges, _MOST_ROWS))
