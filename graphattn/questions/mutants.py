"""Mutants of a graph: the calls that made it with one thing wrong. Mistakes are known by what they do to an expression.

A part of the expression is replaced by another one; ``audit`` and ``verify`` name the mutants that are what they were
given. Nothing here depends on a builder: what can be wrong about a call follows from its arguments and its edges.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..arguments import clipped
from ..graph import AttentionGraph
from ..graph.expression import JOINS, METHODS, SIGNS, Expression, expression_of, function_of
from ..graph.rules import Rectangle
from ..graph.simple import simple_expression

Node = Expression | AttentionGraph
Grown = Callable[[Node], AttentionGraph]
_LONGEST = 100  # characters of an expression that is quoted
_SWITCHED = {"|": "&", "&": "|-", "-": "|&", "@": "|&"}  # signs that are taken for each other; composing is costly


@dataclass(frozen=True, eq=False)
class Mutant:
    """A mistake about a part of an expression.

    Args:
        words: What is wrong.
        part: What was meant.
        changed: What was made instead; it may hold the part.
        argument: Name and value, where an argument of the call is another one.
        counted: Whether to say how many sources a target reads too many or too few.
        remote: Not to be named where a simpler mistake explains the same.
    """

    words: str
    part: Node
    changed: Node
    argument: tuple[str, Any] | None = None
    counted: bool = False
    remote: bool = False


class Mutants:
    """Every single mistake about a graph that is known, and the graphs that they make of it.

    Args:
        graph: What was meant. Edges that somebody listed are taken for a band where they are one.
    """

    def __init__(self, graph: AttentionGraph) -> None:
        from .mutants_of_calls import of_call
        from .mutants_of_rules import of_rule

        self._known: dict[Node, AttentionGraph] = {}
        self.device = graph.device
        self.root = _told(expression_of(graph))
        self.all: list[Mutant] = []
        for part in reversed(list(parts(self.root))):
            self._known[part] = self.grow(part)
        for part, made in reversed(self._known.items()):
            whole = part is self.root
            self.all += [*_of_any(part, made, whole), *of_call(part), *_of_joined(part, made, self.grow)]
            self.all += of_rule(part, made)
        self.all.sort(key=lambda mutant: mutant.remote)

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
        if isinstance(node, AttentionGraph):
            return node.to(self.device)
        args, options = self._grown(node.args), {name: self._grown(value) for name, value in node.options.items()}
        made: AttentionGraph = function_of(node.function, node.args)(*args, **options)
        return made if made.device == self.device else made.to(self.device)

    def _grown(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._grown, value))
        return self.grow(value) if isinstance(value, Node) else value

    def whole(self, mutant: Mutant) -> Node:
        """The root with the mistake made."""
        made: Node = replaced(self.root, mutant.part, mutant.changed)
        return made

    def both(self, first: Mutant, second: Mutant) -> Node | None:
        """The root with two mistakes made; None where one leaves nothing to make the other about."""
        if first.part is second.part and first.argument and second.argument:
            name, value = second.argument
            changed = with_argument(first.changed, name, value)
            return None if name == first.argument[0] else replaced(self.root, first.part, changed)
        for one, other in ((first, second), (second, first)):
            tree = self.whole(one)
            made: Node = replaced(tree, other.part, other.changed)
            if made is not tree:
                return made
        return None


def parts(node: Node) -> Iterator[Node]:
    """A node and all inside it, each once."""
    seen, waiting = set(), [node]
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
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if not isinstance(value, Expression):
        return value
    args = replaced(value.args, part, changed)
    options = {name: replaced(each, part, changed) for name, each in value.options.items()}
    same = args is value.args and all(options[name] is value.options[name] for name in options)
    return value if same else Expression(value.function, args, options)


def with_argument(call: Node, name: str, value: Any) -> Expression:
    """A call with one argument given another value."""
    assert isinstance(call, Expression)
    place = list(parameters(call)).index(name)
    if place >= len(call.args):
        return Expression(call.function, call.args, {**call.options, name: value})
    return Expression(call.function, (*call.args[:place], value, *call.args[place + 1 :]), call.options)


def parameters(call: Expression) -> dict[str, Any]:
    """What the function of a call takes, by name: ``inspect.Parameter``."""
    import inspect

    method = getattr(AttentionGraph, call.function) if call.function in METHODS else None
    return dict(inspect.signature(method or function_of(call.function)).parameters)


def quoted(node: Node) -> str:
    """An expression as text that fits a line."""
    text = str(node) if isinstance(node, Expression) else node.name
    return clipped(text, _LONGEST)


def _told(node: Node) -> Node:
    """The expression with edges that somebody listed as the call that they could be of."""
    for leaf in [each for each in parts(node) if isinstance(each, AttentionGraph)]:
        node = replaced(node, leaf, simple_expression(leaf) or leaf)
    return node


def _of_any(part: Node, graph: AttentionGraph, whole: bool) -> Iterator[Mutant]:
    """What can be wrong about any graph: who reads whom, reading too much, itself, or another one's side."""
    where = "" if whole else f", in {quoted(part)}"

    def mutant(words: str, changed: Node, remote: bool = False) -> Mutant:
        return Mutant(words + where, part, changed, remote=remote or not whole)

    T, S = graph.num_targets, graph.num_sources
    back = Expression("reverse", (part,))
    if graph.is_square:
        yield mutant("edge_index rows swapped: targets read along reversed edges (a transposed mask)", back)
    yield mutant(
        "inverted mask: True taken as blocked, the polarity of nn.MultiheadAttention", Expression("~", (part,))
    )
    if whole:
        yield mutant("mask ignored: every target reads every source", Expression("cross", (T, S)))
        yield mutant("an empty mask: no edge is there, no target reads anything", _none(graph))
    if graph.is_square:
        past = Expression("causal", (T,))
        yield mutant("self-loops missing", Expression("without_self_loops", (part,)))
        yield mutant("self-loops added", Expression("with_self_loops", (part,)))
        yield mutant("nothing ahead of the target is read: causal", Expression("&", (part, past)))
        yield mutant("nothing before the target is read", Expression("&", (part, Expression("reverse", (past,)))), True)
        yield mutant("edges made symmetric: read both ways", Expression("|", (part, back)), True)


def _none(graph: AttentionGraph) -> AttentionGraph:
    return AttentionGraph(Rectangle(graph.num_targets, graph.num_sources, (), ()), "nothing", graph.device)


def _of_joined(part: Node, graph: AttentionGraph, grow: Grown) -> Iterator[Mutant]:
    """What can be wrong about joining graphs: a part left out, another sign, other parentheses, another order."""
    if not isinstance(part, Expression):
        return
    sign, children = part.function, list(dict.fromkeys(part.children()))
    for child in children:
        made = grow(child)
        others = [each for each in children if each is not child] if sign in JOINS else []
        if (made.num_targets, made.num_sources) == (graph.num_targets, graph.num_sources):
            left_out = " and ".join(map(quoted, others)) or ("~" if sign == "~" else f"{sign}(...)")
            yield Mutant(f"{left_out} left out of {quoted(part)}", part, child)
        if sign not in SIGNS and len(children) > 1:
            yield Mutant(f"{quoted(child)} left out of {quoted(part)}", part, replaced(part, child, _none(made)))
    if sign in _SWITCHED:
        left, right = part.args
        for other in _SWITCHED[sign]:
            yield Mutant(f"{other} where {sign} was meant, in {quoted(part)}", part, Expression(other, (left, right)))
        if sign in "-@":
            turned = Expression(sign, (right, left))
            yield Mutant(f"{quoted(turned)} where {quoted(part)} was meant", part, turned)
        for turned in _regrouped(sign, left, right):
            yield Mutant(f"parentheses: {quoted(turned)} where {quoted(part)} was meant", part, turned, remote=True)


def _regrouped(sign: str, left: Node, right: Node) -> Iterator[Expression]:
    """``(a | b) & c`` as ``a | b & c``, and so on."""
    for inner, outer, first in ((left, right, True), (right, left, False)):
        if isinstance(inner, Expression) and inner.function in _SWITCHED and inner.function != sign:
            for near, far in (inner.args, inner.args[::-1]):
                joined = Expression(sign, (near, outer) if first else (outer, near))
                yield Expression(inner.function, (far, joined) if near is inner.args[1] else (joined, far))
