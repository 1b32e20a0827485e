"""A mask in text: targets are rows, sources are columns."""

from ..edges import Edges
from .near_view import ORDER, degrees, in_near_order

_MOST_PAIRS = 64  # targets or sources that are drawn one by one: lines of 127 columns
_MOST_CELLS = 32  # of a larger graph, to a side
_MOST_RUNS = 1 << 24


def draw(edges: Edges) -> str:
    """The rows of the mask in text, ``█`` for an edge and ``·`` for none.

    A cell of a large graph shows the share of its pairs that are edges, and the last lines say so.
    Large listed graphs are drawn with neighbours together where that shows more, with their
    degrees.

    Raises:
        Nothing: a graph that is too costly to walk is described instead.
    """
    T = edges.num_targets
    S = edges.num_sources
    if 0 in (T, S):
        return f"(no pairs: {T} targets, {S} sources)"
    if not drawable(edges):
        return f"({T:,} x {S:,} pairs: too many to draw)\n{_part(T, S)}"
    side = 1
    if max(T, S) > _MOST_PAIRS:
        side = cell_side(edges, _MOST_CELLS)
    near = in_near_order(edges, side)
    lines = mask_rows(near or edges, side)
    if side > 1:
        lines.append(f"(each cell is {side} targets x {side} sources; · none, ░ ▒ ▓ some, █ all)")
        if near is not None:
            lines.append(ORDER)
        lines.append(_part(T, S))
        lines.append(degrees(edges))
    return "\n".join(filter(None, lines))


def cell_side(edges: Edges, most: int) -> int:
    """Pairs along a cell, so that there are at most so many cells to a side."""
    return -(-max(edges.num_targets, edges.num_sources) // most)


def mask_rows(edges: Edges, side: int) -> list[str]:
    """The mask in cells of ``side`` by ``side`` pairs, a text for each row of cells."""
    counts = edges.block_counts(side, side).tolist()
    areas = edges.block_areas(side, side).tolist()
    return [" ".join(map(_shade, *rows)) for rows in zip(counts, areas, strict=True)]


def _part(T: int, S: int) -> str:
    """The call that shows the first pairs of a large graph."""
    if T == S:
        part = f"range({_MOST_CELLS})"
    else:
        part = f"targets=range({min(T, _MOST_CELLS)}), sources=range({min(S, _MOST_CELLS)})"
    return f"(the pairs of a part, one by one: graph.subgraph({part}))"


def drawable(edges: Edges) -> bool:
    """True if a walk over all rows is quick."""
    if edges.is_listed:
        return edges.num_targets <= _MOST_RUNS
    return edges.num_targets * edges.runs_per_row <= _MOST_RUNS


def _shade(count: int, area: int) -> str:
    if count == 0:
        return "·"
    if count == area:
        return "█"
    return "░▒▓"[min(2, 3 * count // area)]
