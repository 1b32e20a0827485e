"""Mutants of a graph: the calls that made it with one thing wrong. Mistakes are known by what they
do to an expression.

A part of the expression is replaced by another one; ``audit`` and ``verify`` name the mutants that
are what they were given, those first that people make most. Here is what can be wrong about any
graph and any sign.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..arguments import clipped
from ..convert.rule import trusted_rule
from ..graph import AttentionGraph
from ..graph.expression import JOINS, METHODS, SIGNS, Expression, Operand, built, function_of
from ..graphs import causal, cross, full
from .simple import simple_expression

Node = Expression | Operand
Grown = Callable[[Node], AttentionGraph]
_ROWS = 1 << 20  # targets of a graph whose empty rows are looked for
_NAMED = 6  # nodes of padding that are named
_LONGEST = 100  # characters of an expression that is quoted
MOVED = 3  # rank of masks that are rolled or shifted
REMOTE = 6  # rank of mistakes that are not named where another explains the same
# signs that are taken for each other; composing is costly
_SWITCHED = {
    "|": "&",
    "&": "|-",
    "-": "|&",
    "@": "|&",
}


@dataclass(frozen=True, eq=False)
class Mutant:
    """A mistake about a part of an expression.

    Args:
        words: What is wrong.
        part: What was meant.
        changed: What was made instead; it may hold the part.
        argument: Name and value, where an argument of the call is another one.
        counted: Whether to say how many sources a target reads too many or too few.
        rank: How rare it is: 0 of what people do most; from ``REMOTE`` on it is named where nothing
            else explains.
    """

    words: str
    part: Node
    changed: Node
    argument: tuple[str, Any] | None = None
    counted: bool = False
    rank: int = 2

    @property
    def remote(self) -> bool:
        """True if it is not to be named where a simpler mistake explains the same."""
        return self.rank >= REMOTE


class Mutants:
    """Every single mistake about a graph that is known, and the graphs that they make of it.

    Args:
        graph: What was meant. Listed edges are taken for a band where they are one.
    """

    def __init__(self, graph: AttentionGraph) -> None:
        from .mutants_of_builders import of_builder
        from .mutants_of_calls import of_call

        self._known: dict[Node, AttentionGraph] = {}
        self.device = graph.device
        self.root = _recognised(graph.as_operand())
        self.all: list[Mutant] = []
        for part in reversed(list(parts(self.root))):
            self._known[part] = self.grow(part)
        for part, made in reversed(self._known.items()):
            whole = part is self.root
            self.all += [*of_builder(part, made), *_of_joined(part, made, self.grow)]
            if not isinstance(part, Padding):
                self.all += of_call(part)
            if whole or not isinstance(part, Padding):
                self.all += _of_any(part, made, whole)
        self.all.sort(key=lambda mutant: mutant.rank)

    @property
    def num_listed(self) -> int:
        """Edges that are listed by the parts: what it takes to make a mutant."""
        return sum(made.num_edges for made in self._known.values() if not made.is_rule)

    def grow(self, node: Node) -> AttentionGraph:
        """The graph of an expression; the parts of the root are made once.

        Raises:
            GraphAttnError: If a builder refuses what a mutant asks of it.
        """
        if node in self._known:
            return self._known[node]
        made: AttentionGraph
        if isinstance(node, Expression):
            args = self._grown(node.args)
            options = {name: self._grown(value) for name, value in node.options.items()}
            made = function_of(node.function, node.args)(*args, **options)
        else:
            made = built(node)
        if made.device == self.device:
            return made
        return made.to(self.device)

    def _grown(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._grown, value))
        if isinstance(value, Node):
            return self.grow(value)
        return value

    def whole(self, mutant: Mutant) -> Node:
        """The root with the mistake made."""
        made: Node = replaced(self.root, mutant.part, mutant.changed)
        return made

    def both(self, first: Mutant, second: Mutant) -> Node | None:
        """The root with two mistakes made; None where one leaves nothing to make the other
        about.
        """
        if first.part is second.part and first.argument and second.argument:
            name, value = second.argument
            changed = with_argument(first.changed, name, value)
            if name == first.argument[0]:
                return None
            return replaced(self.root, first.part, changed)
        for one, other in ((first, second), (second, first)):
            tree = self.whole(one)
            made: Node = replaced(tree, other.part, other.changed)
            if made is not tree:
                return made
        return None


def parts(node: Node) -> Iterator[Node]:
    """A node and all inside it, each once."""
    seen = set()
    waiting = [node]
    while waiting:
        here = waiting.pop(0)
        if here not in seen:
            seen.add(here)
            yield here
            waiting += here.children() if isinstance(here, Expression) else ()


def replaced(value: Any, part: Node, changed: Node) -> Any:
    """The expression with one of its parts replaced; the same object where it has no such part."""
    if value is part:
        return changed
    if isinstance(value, tuple):
        items = tuple(replaced(each, part, changed) for each in value)
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return items
    if not isinstance(value, Expression):
        return value
    args = replaced(value.args, part, changed)
    options = {name: replaced(each, part, changed) for name, each in value.options.items()}
    same = args is value.args and all(options[name] is value.options[name] for name in options)
    if same:
        return value
    return Expression(value.function, args, options)


def with_argument(call: Node, name: str, value: Any) -> Expression:
    """A call with one argument given another value."""
    assert isinstance(call, Expression)
    place = list(parameters(call)).index(name)
    if place >= len(call.args):
        return Expression(call.function, call.args, {**call.options, name: value})
    return Expression(
        call.function, (*call.args[:place], value, *call.args[place + 1 :]), call.options
    )


def parameters(call: Expression) -> dict[str, inspect.Parameter]:
    """The parameters of the function of a call, by name."""
    if call.function in METHODS:
        method = getattr(AttentionGraph, call.function)
    else:
        method = None
    return dict(inspect.signature(method or function_of(call.function)).parameters)


def arguments(call: Expression) -> dict[str, Any]:
    """The arguments of a call by name, with the defaults of those that are not given."""
    given = zip(parameters(call), call.args, strict=False)
    return (
        {name: each.default for name, each in parameters(call).items()}
        | dict(given)
        | dict(call.options)
    )


def quoted(node: Node) -> str:
    """An expression as text that fits a line."""
    if isinstance(node, Expression):
        text = str(node)
    else:
        text = node.name
    return clipped(text, _LONGEST)


class Padding(Expression):
    """The pairs of real tokens of a listed graph: a call that its author did not write, and so is
    not quoted.
    """

    def text(self, held: list[Any] | None = None) -> str:
        return "padding"

    @property
    def nodes(self) -> str:
        """The nodes that are padding: ``sources 20 to 23``."""
        nodes = torch.nonzero(self.args[1]).flatten().tolist()
        if len(nodes) > 1 and nodes[-1] - nodes[0] + 1 == len(nodes):
            return f"sources {nodes[0]} to {nodes[-1]}"
        return (
            f"sources {', '.join(map(str, nodes[:_NAMED]))}{', ...' if len(nodes) > _NAMED else ''}"
        )


def _recognised(node: Node) -> Node:
    """The expression with listed edges as the simple call that has them."""
    for leaf in [each for each in parts(node) if isinstance(each, AttentionGraph)]:
        node = replaced(node, leaf, simple_expression(leaf) or _padded(leaf) or leaf)
    return node


def _padded(leaf: AttentionGraph) -> Expression | None:
    """A simple graph of the nodes that are read, beside padding: ``causal(64) & padding``."""
    if not leaf.is_square or leaf.has_repeated_edges:
        return None
    reads = leaf.in_degree.cpu() > 0
    read = leaf.out_degree.cpu() > 0
    if bool(read.all()):
        inside = None
    else:
        inside = simple_expression(leaf.subgraph(read.nonzero().flatten().to(leaf.device)))
    if inside is None or inside.function == "without_self_loops":
        return None
    tokens: Expression = Padding(
        "cross_documents", (torch.where(reads, 0, 1), torch.where(read, 0, 2))
    )
    if inside.function != "full":
        tokens = Expression(
            "&",
            (
                Expression(inside.function, (leaf.num_nodes, *inside.args[1:]), inside.options),
                tokens,
            ),
        )
    if tokens.build().to(leaf.device).equals(leaf):
        return tokens
    return None


def _of_any(part: Node, graph: AttentionGraph, whole: bool) -> Iterator[Mutant]:
    """Mistakes about any graph: rows swapped, reading too much, self-loops, another order of
    nodes.
    """
    if whole:
        where = ""
    else:
        where = f", in {quoted(part)}"

    def mutant(rank: int, words: str, changed: Node) -> Mutant:
        return Mutant(words + where, part, changed, rank=rank if whole else rank + REMOTE)

    if whole:
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
        if whole:
            first = torch.where(torch.arange(graph.num_nodes) == 0, 0, 1)
            kept = Expression("|", (strict, Expression("cross_documents", (first, 2 * first))))
            yield mutant(1, f"{diagonal} missing, but for target 0, which else reads nothing", kept)
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
    if whole:
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

                how = f"rolled by one {side}: mask.roll({by}, {dim})"
                if rolled:
                    words = how
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


def _of_joined(part: Node, graph: AttentionGraph, grow: Grown) -> Iterator[Mutant]:
    """Mistakes about joining graphs: a part left out, another sign, other parentheses, another
    order.
    """
    if not isinstance(part, Expression):
        return
    sign = part.function
    children = list(dict.fromkeys(part.children()))
    for child in children:
        made = grow(child)
        if sign in JOINS:
            others = [each for each in children if each is not child]
        else:
            others = []
        if any(isinstance(each, Padding) for each in others):
            continue
        if (made.num_targets, made.num_sources) == (graph.num_targets, graph.num_sources):
            left_out = " and ".join(map(quoted, others)) or ("~" if sign == "~" else f"{sign}(...)")
            yield Mutant(f"{left_out} left out of {quoted(part)}", part, child, rank=0)
        if sign not in SIGNS and len(children) > 1:
            yield Mutant(
                f"{quoted(child)} left out of {quoted(part)}",
                part,
                replaced(part, child, none_of(made)),
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
