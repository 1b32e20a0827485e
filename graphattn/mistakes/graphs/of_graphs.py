"""Mistakes about any graph and any operator: edges reversed, masks shifted, parts left out."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ...convert.rule import trusted_rule
from ...graph import AttentionGraph
from ...graph.deferred.expression import JOINS, SIGNS, Expression
from ...graphs import causal, cross, full
from .mutant import MOVED, REMOTE, Grown, Mutant, Node, Padding, quoted, replaced

_ROWS = 1 << 20  # targets of a graph whose empty rows are looked for
# signs that are taken for each other; composing is costly
_SWITCHED = {
    "|": "&",
    "&": "|-",
    "-": "|&",
    "@": "|&",
}


def of_any(part: Node, graph: AttentionGraph, is_root: bool) -> Iterator[Mutant]:
    """Mistakes about any graph: rows swapped, extra edges, self-loops, another node order."""
    if is_root:
        where = ""
    else:
        where = f", in {quoted(part)}"

    def mutant(rank: int, words: str, changed: Node) -> Mutant:
        return Mutant(words + where, part, changed, rank=rank if is_root else rank + REMOTE)

    if is_root:
        yield from (mutant(1, words, changed) for words, changed in _of_empty_rows(part, graph))
    back = Expression("reverse", (part,))
    if graph.is_square:
        yield mutant(
            1,
            "edge_index rows swapped: targets read along reversed edges (a transposed mask)",
            back,
        )
        past = causal(graph.num_nodes)
        diagonal = "self-loops"
        strict = Expression("without_self_loops", (part,))
        yield mutant(0, f"{diagonal} missing", strict)
        if is_root:
            first = torch.where(torch.arange(graph.num_nodes) == 0, 0, 1)
            one_loop = Expression("|", (strict, Expression("cross_documents", (first, 2 * first))))
            yield mutant(
                1, f"{diagonal} missing, but for target 0, which else reads nothing", one_loop
            )
        yield mutant(1, f"{diagonal} added", Expression("with_self_loops", (part,)))
        yield mutant(
            1, "nothing ahead of the target is read: causal", Expression("&", (part, past))
        )
        yield mutant(
            REMOTE, "nothing before the target is read", Expression("&", (part, past.reverse()))
        )
        yield mutant(REMOTE, "edges made symmetric: read both ways", Expression("|", (part, back)))
    inverse = Expression("~", (part,))
    yield mutant(
        1, "inverted mask: True taken as blocked, the polarity of nn.MultiheadAttention", inverse
    )
    if is_root:
        T = graph.num_targets
        S = graph.num_sources
        yield mutant(
            2, "mask ignored: every target reads every source", full(T) if T == S else cross(T, S)
        )
        yield mutant(2, "an empty mask: no edge is there, no target reads anything", none_of(graph))
        yield from (mutant(MOVED, words, changed) for words, changed in _moved(graph))


def none_of(graph: AttentionGraph) -> AttentionGraph:
    """A graph of the same nodes without an edge."""
    every = cross(graph.num_targets, graph.num_sources).to(graph.device)
    return replace((every - every), name="nothing", expression=None)


def _moved(graph: AttentionGraph) -> Iterator[tuple[str, AttentionGraph]]:
    """Masks that are rolled, or padded and cut, by one place."""
    T, S = sizes = graph.num_targets, graph.num_sources
    for side, size, dim in (("source", S, 1), ("target", T, 0)):
        for by, cut in (
            (1, ("(1, 0))[:, :-1]", "(0, 0, 1, 0))[:-1]")),
            (-1, ("(0, 1))[:, 1:]", "(0, 0, 0, 1))[1:]")),
        ):
            for rolled in (True, False):

                def inside(
                    t: Tensor, s: Tensor, by: int = by, dim: int = dim, rolled: bool = rolled
                ) -> Tensor:
                    moved = (t, s)[dim] - by
                    place = moved % sizes[dim]
                    if dim:
                        ends = (t, place)
                    else:
                        ends = (place, s)
                    return graph.edges.contains(*ends) & (rolled | (moved == place))

                text = f"rolled by one {side}: mask.roll({by}, {dim})"
                if rolled:
                    words = text
                else:
                    words = f"shifted by one {side}: F.pad(mask, {cut[1 - dim]}"
                if size > 1:
                    yield f"mask {words}", trusted_rule(inside, T, S)


def _of_empty_rows(part: Node, graph: AttentionGraph) -> Iterator[tuple[str, Node]]:
    """Padding, and other targets without a source, that read something after all."""
    if graph.num_targets > _ROWS or graph.edges.num_runs > _ROWS << 6:
        return
    empty = graph.in_degree == 0
    if bool(empty.any()) and not bool(empty.all()):
        number = torch.where(empty, 0, 1).cpu()
        every = Expression(
            "cross_documents", (number, torch.zeros(graph.num_sources, dtype=torch.int64))
        )
        text = "targets without a source, such as padding, read"
        yield f"{text} everything", Expression("|", (part, every))
        if graph.is_square:
            alone = Expression("cross_documents", (number, number))
            yield f"{text} one another", Expression("|", (part, alone))
            loops = Expression("&", (Expression("self_loops", (graph.num_nodes,)), every))
            yield f"{text} themselves", Expression("|", (part, loops))


def of_joined(part: Node, graph: AttentionGraph, grow: Grown) -> Iterator[Mutant]:
    """Mistakes about joining graphs: a missing part, another operator, precedence or order."""
    if not isinstance(part, Expression):
        return
    sign = part.function
    children = list(dict.fromkeys(part.children()))
    for child in children:
        child_graph = grow(child)
        if sign in JOINS:
            others = [sibling for sibling in children if sibling is not child]
        else:
            others = []
        if any(isinstance(sibling, Padding) for sibling in others):
            continue
        if (child_graph.num_targets, child_graph.num_sources) == (
            graph.num_targets,
            graph.num_sources,
        ):
            left_out = " and ".join(map(quoted, others)) or ("~" if sign == "~" else f"{sign}(...)")
            yield Mutant(f"{left_out} left out of {quoted(part)}", part, child, rank=0)
        if sign not in SIGNS and len(children) > 1:
            yield Mutant(
                f"{quoted(child)} left out of {quoted(part)}",
                part,
                replaced(part, child, none_of(child_graph)),
            )
    if sign in _SWITCHED:
        left, right = part.args
        for other in _SWITCHED[sign]:
            words = f"{other} where {sign} was meant, in {quoted(part)}"
            yield Mutant(words, part, Expression(other, (left, right)), rank=1)
        if sign in "-@":
            turned = Expression(sign, (right, left))
            yield Mutant(f"{quoted(turned)} where {quoted(part)} was meant", part, turned)
        for turned in _regrouped(sign, left, right):
            yield Mutant(
                f"parentheses: {quoted(turned)} where {quoted(part)} was meant",
                part,
                turned,
                rank=REMOTE,
            )


def _regrouped(sign: str, left: Node, right: Node) -> Iterator[Expression]:
    """``(a | b) & c`` as ``a | b & c``, and so on."""
    for inner, outer, first in ((left, right, True), (right, left, False)):
        if isinstance(inner, Expression) and inner.function in _SWITCHED and inner.function != sign:
            for near, far in (inner.args, inner.args[::-1]):
                joined = Expression(sign, (near, outer) if first else (outer, near))
                yield Expression(
                    inner.function, (far, joined) if near is inner.args[1] else (joined, far)
                )
