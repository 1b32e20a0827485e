"""The simplest call with the same edges as a graph, which is easy to miss in a long expression."""

import torch

from ...graph import AttentionGraph
from ...graph.deferred.expression import SIGNS, Expression
from ...graph.forms import band
from ...graph.runs import canonical
from ...plans.cache import cached


def band_of(graph: AttentionGraph) -> tuple[int, int] | None:
    """``(lo, hi)`` if the edges are all pairs with ``lo <= t - s <= hi``.

    An end that no target reaches is None.
    """
    return cached(graph, "band_of", lambda: _band_of(graph))


def _band_of(graph: AttentionGraph) -> tuple[int, int] | None:
    T = graph.num_targets
    S = graph.num_sources
    if graph.has_repeated_edges or graph.num_edges == 0:
        return None
    few = canonical(graph.edges.rows(torch.tensor([T // 2, T - 1])))
    if torch.unique(few.row, return_counts=True)[1].gt(1).any():
        return None  # most graphs: a row of a band is one run
    lo = T
    hi = -S
    for first, _, chunk in graph.edges.chunks():
        row, start, end = canonical(chunk)
        if row.numel():
            lo = min(lo, int((row + first - end + 1).min()))
            hi = max(hi, int((row + first - start).max()))
    if band(T, S, lo, hi).count() == graph.num_edges:
        return (lo, hi)
    return None


def simple_expression(graph: AttentionGraph) -> Expression | None:
    """The call of full, cross, causal or a window with these edges; None if there is none."""
    band = band_of(graph)
    if band is None:
        return None
    T = graph.num_targets
    S = graph.num_sources
    square, (lo, hi) = graph.is_square, band
    if lo <= 1 - S and hi >= T - 1:
        if square:
            return Expression("full", (T,))
        return Expression("cross", (T, S))
    if square:
        return _square(T, lo, hi)
    aligned: list[tuple[int, dict[str, str]]] = [(S - T, {}), (0, {"align": "start"})]
    for offset, word in aligned:
        if hi >= T - 1 and lo + offset == 0:
            return Expression("causal", (T, S), word)
    for offset, word in aligned:
        left = hi + offset
        right = -lo - offset
        if left >= 0 and right >= 0:
            return Expression("sliding_window", (T, (left, right)), {"num_sources": S, **word})
    return None


def _square(n: int, lo: int, hi: int) -> Expression | None:
    past = Expression("causal", (n,))
    if lo == hi == 0:
        return Expression("self_loops", (n,))
    if hi == n - 1 and lo in (0, 1):
        if lo:
            return Expression("without_self_loops", (past,))
        return past
    if lo == 1 - n and hi == 0:
        return Expression("reverse", (past,))
    if lo == 0 or lo == -hi:
        return Expression("sliding_window", (n, hi - lo + 1), {"causal": lo == 0})
    if lo <= 0 <= hi:
        return Expression("sliding_window", (n, (hi, -lo)))
    return None


def remark(graph: AttentionGraph) -> str:
    """``equals ...``: the simpler call with the edges of a joined graph; "" if none is known."""
    expression = graph.expression
    if (
        expression is None
        or expression.function not in SIGNS
        or not graph.is_rule
        or graph.edges.stored() is None
    ):
        return ""
    simple = simple_expression(graph)
    if simple is not None and simple.num_calls == 1:
        return f"equals {simple}"
    return ""
