"""Mutants of a graph: the calls that made it with one thing wrong.

A part of the expression is replaced by another one; ``audit`` and ``verify`` name the mutants that
have the edges of a mask, the commonest first.
"""

from collections.abc import Iterator
from typing import Any

import torch

from ...errors import without_warnings
from ...graph import AttentionGraph
from ...graph.deferred.expression import Expression, built, function_of
from ...graphs import causal
from .mutant import REFUSED, Mutant, Node, Padding, parts, replaced, with_argument
from .of_builders import of_builder
from .of_calls import of_call
from .of_graphs import of_any, of_joined
from .simple import simple_expression

_NAMED = 4  # mistakes that explain the same
_COUNTED = 1 << 20  # runs or edges that are walked over to count sources


class Mutants:
    """Every single mistake about a graph that is known, and the graphs that they make of it.

    Args:
        graph: What was meant. Listed edges are taken for a band where they are one.
    """

    def __init__(self, graph: AttentionGraph) -> None:
        self._graphs: dict[Node, AttentionGraph] = {}
        self.device = graph.device
        self.root: Node = graph._as_operand()
        for leaf in [part for part in parts(self.root) if isinstance(part, AttentionGraph)]:
            simple = simple_expression(leaf) or _padded(leaf)
            if simple is not None:
                self.root = replaced(self.root, leaf, simple)
        self.all: list[Mutant] = []
        for part in reversed(list(parts(self.root))):
            self._graphs[part] = self.grow(part)
        for part, part_graph in reversed(self._graphs.items()):
            is_root = part is self.root
            self.all += [*of_builder(part, part_graph), *of_joined(part, part_graph, self.grow)]
            if not isinstance(part, Padding):
                self.all += of_call(part)
            if is_root or not isinstance(part, Padding):
                self.all += of_any(part, part_graph, is_root)
        self.all.sort(key=lambda mutant: mutant.rank)

    @property
    def num_listed(self) -> int:
        """Edges that are listed by the parts: what it takes to make a mutant."""
        return sum(graph.num_edges for graph in self._graphs.values() if not graph.is_rule)

    def grow(self, node: Node) -> AttentionGraph:
        """The graph of an expression; the parts of the root are made once.

        Raises:
            Exception: One of ``REFUSED``, if a builder refuses what a mutant asks of it.
        """
        if node in self._graphs:
            return self._graphs[node]
        graph: AttentionGraph
        if isinstance(node, Expression):
            args = self._grown(node.args)
            options = {name: self._grown(value) for name, value in node.options.items()}
            with without_warnings():
                graph = function_of(node.function)(*args, **options)
        else:
            graph = built(node)
        if graph.device == self.device:
            return graph
        return graph.to(self.device)

    def _grown(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._grown, value))
        if isinstance(value, Node):
            return self.grow(value)
        return value

    def made(self, node: Node) -> AttentionGraph | None:
        """The graph of an expression; None where there is none, or one of other sizes."""
        try:
            graph = self.grow(node)
        except REFUSED:
            return None
        meant = self._graphs[self.root]
        if _sizes(graph) != _sizes(meant):
            return None
        return graph

    def singles(self) -> Iterator[tuple[Mutant, AttentionGraph]]:
        """Every single mistake that leaves the sizes as they are, and the graph that it makes."""
        for mutant in self.all:
            graph = self.made(self.mutated(mutant))
            if graph is not None:
                yield mutant, graph

    def described(self, chosen: list[Mutant]) -> tuple[str, ...]:
        """The commonest of mistakes that make the same graph, in words."""
        first = [mutant for mutant in chosen if mutant.rank <= chosen[0].rank + 1]
        return tuple(dict.fromkeys(self.in_words(mutant) for mutant in first[:_NAMED]))

    def in_words(self, mutant: Mutant) -> str:
        """The words of a mistake, behind the number of sources too many or too few."""
        if not mutant.counted:
            return mutant.words
        try:
            count = _counted(self.grow(mutant.part), self.grow(mutant.changed))
        except REFUSED:
            return mutant.words
        if count:
            return f"{count}: {mutant.words}"
        return mutant.words

    def mutated(self, mutant: Mutant) -> Node:
        """The root with the mistake made."""
        node: Node = replaced(self.root, mutant.part, mutant.changed)
        return node

    def mutated_twice(self, first: Mutant, second: Mutant) -> Node | None:
        """The root with two mistakes made; None where one leaves no place for the other."""
        if first.part is second.part and first.argument and second.argument:
            name, value = second.argument
            changed = with_argument(first.changed, name, value)
            if name == first.argument[0]:
                return None
            return replaced(self.root, first.part, changed)
        for one, other in ((first, second), (second, first)):
            tree = self.mutated(one)
            node: Node = replaced(tree, other.part, other.changed)
            if node is not tree:
                return node
        return None


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


def _sizes(graph: AttentionGraph) -> tuple[int, int]:
    return graph.num_targets, graph.num_sources


def _counted(meant: AttentionGraph, mutated: AttentionGraph) -> str:
    """The sources that a target reads too many or too few: "one source too many in the past"."""
    cost = sum(graph.edges.num_runs for graph in (meant, mutated))
    if cost > _COUNTED or _sizes(mutated) != _sizes(meant):
        return ""
    more = mutated - meant
    fewer = meant - mutated
    if bool(more.num_edges) == bool(fewer.num_edges):
        return ""
    if more.num_edges:
        wrong = more
        fault = "too many"
    else:
        wrong = fewer
        fault = "too few"
    if not meant.is_square:
        return _sources(int(wrong.in_degree.max()), fault)
    past = causal(meant.num_nodes).without_self_loops().to(wrong.device)
    sides = {" in the past": past, " in the future": past.reverse()}
    most = {where: int((wrong & side).in_degree.max()) for where, side in sides.items()}
    return " and ".join(_sources(number, fault) + where for where, number in most.items() if number)


def _sources(number: int, fault: str) -> str:
    if number == 1:
        return f"one source {fault}"
    return f"{number:,} sources {fault}"
