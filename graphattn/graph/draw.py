"""A mask in text: targets are rows, sources are columns."""

from .edges import Edges

_MOST_PAIRS = 64  # targets or sources that are drawn one by one: lines of 127 columns
_MOST_CELLS = 32  # of a larger graph, to a side
_MOST_RUNS = 1 << 24


def draw(edges: Edges) -> str:
    """The rows of the mask in text, ``█`` for an edge and ``·`` for none.

    A cell of a large graph shows the share of its pairs that are edges, and the last lines say so.

    Raises:
        Nothing: a graph that is too costly to walk is described instead.
    """
    T = edges.num_targets
    S = edges.num_sources
    if 0 in (T, S):
        return f"(no pairs: {T} targets, {S} sources)"
    if not drawable(edges):
        return f"({T:,} x {S:,} pairs: too many to draw)\n{_part(T, S)}"
    if max(T, S) <= _MOST_PAIRS:
        side = 1
    else:
        side = -(-max(T, S) // _MOST_CELLS)
    counts = edges.block_counts(side, side).tolist()
    areas = edges.block_areas(side, side).tolist()
    lines = [" ".join(map(_shade, *rows)) for rows in zip(counts, areas, strict=True)]
    if side > 1:
        lines.append(f"(each cell is {side} targets x {side} sources; · none, ░ ▒ ▓ some, █ all)")
        lines.append(_part(T, S))
    return "\n".join(lines)


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
