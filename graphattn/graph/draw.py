"""A mask in text: targets are rows, sources are columns."""

from .edges import Edges

_MOST_CELLS = 32
_MOST_RUNS = 1 << 24


def draw(edges: Edges) -> str:
    """Rows of the mask, ``█`` for an edge and ``·`` for none; a cell of a large graph shows how
    full it is.

    Raises:
        Nothing: a graph that is too costly to walk is described instead.
    """
    T = edges.num_targets
    S = edges.num_sources
    if T == 0 or S == 0:
        return f"(no pairs: {T} targets, {S} sources)"
    if not drawable(edges):
        return f"({T:,} x {S:,} pairs: too many to draw; look at a subgraph)"
    side = max(1, -(-max(T, S) // _MOST_CELLS))
    rows = zip(
        edges.block_counts(side, side).tolist(), edges.block_areas(side, side).tolist(), strict=True
    )
    lines = [" ".join(map(_shade, counts, areas)) for counts, areas in rows]
    if side > 1:
        lines.append(f"(each cell is {side} targets x {side} sources; · none, ░ ▒ ▓ some, █ all)")
    return "\n".join(lines)


def drawable(edges: Edges) -> bool:
    """True if a walk over all rows is quick."""
    return edges.num_targets * (1 if edges.is_listed else edges.runs_per_row) <= _MOST_RUNS


def _shade(count: int, area: int) -> str:
    if count == 0 or count == area:
        if count:
            return "█"
        return "·"
    return "░▒▓"[min(2, 3 * count // area)]
