"""The simplest call that has the same edges: easy to miss in a graph that others were joined to."""

from functools import reduce
from typing import TYPE_CHECKING

import torch

from ..arguments import clipped
from .algebra import Intersection, Union
from .edge_set import EdgeSet
from .expression import SIGNS, Expression
from .listed import Listed
from .rules import Band

if TYPE_CHECKING:
    from .graph import AttentionGraph

_JOINED: dict[str, tuple[type[Union] | type[Intersection], str]] = {
    "|": (Union, "adds nothing"),
    "&": (Intersection, "takes nothing away"),
}
_LONGEST = 72  # characters of a part that a remark quotes


def band_of(graph: "AttentionGraph") -> tuple[int, int] | None:
    """``lo <= t - s <= hi`` if that is the graph, as computed from its edges; an end that no target reaches is open."""
    band: tuple[int, int] | None = graph._remember("band_of", lambda: _band_of(graph))
    return band


def _band_of(graph: "AttentionGraph") -> tuple[int, int] | None:
    T, S = graph.num_targets, graph.num_sources
    if graph.has_repeated_edges or graph.num_edges == 0:
        return None
    few = graph.edges.runs(torch.tensor([T // 2, T - 1]))
    if torch.unique(few.row[few.hi > few.lo], return_counts=True)[1].gt(1).any():
        return None  # most graphs: a row of a band is one run
    lo, hi = T, -S
    for first, _, chunk in graph.edges.walk():
        keep = chunk.hi > chunk.lo
        if bool(keep.any()):
            row = chunk.row[keep] + first
            lo = min(lo, int((row - chunk.hi[keep] + 1).min()))
            hi = max(hi, int((row - chunk.lo[keep]).max()))
    return (lo, hi) if Band(T, S, lo, hi).count() == graph.num_edges else None


def simple_expression(graph: "AttentionGraph") -> Expression | None:
    """The call of full, cross, causal or a window that has these edges; None where there is none."""
    band = band_of(graph)
    if band is None:
        return None
    T, S = graph.num_targets, graph.num_sources
    square, (lo, hi) = graph.is_square, band
    if lo <= 1 - S and hi >= T - 1:
        return Expression("full", (T,)) if square else Expression("cross", (T, S))
    if square:
        return _square(T, lo, hi)
    aligned: list[tuple[int, dict[str, str]]] = [(S - T, {}), (0, {"align": "start"})]
    for offset, word in aligned:
        if hi >= T - 1 and lo + offset == 0:
            return Expression("causal", (T, S), word)
    for offset, word in aligned:
        left, right = hi + offset, -lo - offset
        if left >= 0 and right >= 0:
            return Expression("asymmetric_window", (T, left, right), {"num_sources": S, **word})
    return None


def _square(n: int, lo: int, hi: int) -> Expression | None:
    past = Expression("causal", (n,))
    if lo == hi == 0:
        return Expression("self_loops", (n,))
    if hi == n - 1 and lo in (0, 1):
        return Expression("without_self_loops", (past,)) if lo else past
    if lo == 1 - n and hi == 0:
        return Expression("reverse", (past,))
    if lo == 0 or lo == -hi:
        return Expression("sliding_window", (n, hi - lo + 1), {"causal": False} if lo else {})
    return Expression("asymmetric_window", (n, hi, -lo)) if lo <= 0 <= hi else None


def remark(graph: "AttentionGraph", most_runs: int) -> str:
    """Which simpler graph a joined one equals, or which of its parts changes nothing; "" where that costs too much.

    Args:
        graph: Of any expression; no remark on what no sign joined.
        most_runs: Runs of sources that may be walked over.
    """
    made = graph.expression
    if made is None or made.function not in SIGNS or isinstance(graph.edges, Listed):
        return ""
    if graph.edges.runs_per_row * graph.num_targets > most_runs or graph.num_edges == 0:
        return ""
    simple = simple_expression(graph)
    return f"equals {simple}" if simple is not None and simple.num_calls == 1 else _idle(graph, made, most_runs)


def _idle(graph: "AttentionGraph", made: Expression, most_runs: int) -> str:
    """The last part that could be left out, by counts alone."""
    if made.function not in _JOINED:
        return ""
    joined, words = _JOINED[made.function]
    parts = _parts(made, graph.edges, made.function, joined)
    runs = sum(edges.runs_per_row for _, edges in parts) * len(parts) * graph.num_targets
    if runs > most_runs or any(isinstance(edges, Listed) for _, edges in parts):
        return ""
    for place in reversed(range(len(parts))):
        rest = [edges for other, (_, edges) in enumerate(parts) if other != place]
        if reduce(joined, rest).count() == graph.num_edges:
            text = parts[place][0]
            return f"{clipped(text, _LONGEST)} {words}"
    return ""


def _parts(
    made: "Expression | AttentionGraph", edges: EdgeSet, sign: str, joined: type[Union] | type[Intersection]
) -> list[tuple[str, EdgeSet]]:
    """What is joined by one sign, however nested."""
    if isinstance(made, Expression) and made.function == sign and isinstance(edges, joined):
        left, right = made.args
        return [*_parts(left, edges.a, sign, joined), *_parts(right, edges.b, sign, joined)]
    return [(str(made) if isinstance(made, Expression) else made.name, edges)]
