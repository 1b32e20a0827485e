"""Mutants of a graph: the calls that made it with one thing wrong.

A part of the expression is replaced by another one; ``audit`` and ``verify`` name the mutants that
are what they were given, those first that people make most.
"""

from typing import Any

import torch

from ..graph import AttentionGraph
from ..graph.expression import Expression, built, function_of
from .mutant import Mutant, Node, Padding, parts, replaced, with_argument
from .mutants_of_builders import of_builder
from .mutants_of_calls import of_call
from .mutants_of_graphs import of_any, of_joined
from .simple import simple_expression


class Mutants:
    """Every single mistake about a graph that is known, and the graphs that they make of it.

    Args:
        graph: What was meant. Listed edges are taken for a band where they are one.
    """

    def __init__(self, graph: AttentionGraph) -> None:
        self._known: dict[Node, AttentionGraph] = {}
        self.device = graph.device
        self.root = _recognised(graph.as_operand())
        self.all: list[Mutant] = []
        for part in reversed(list(parts(self.root))):
            self._known[part] = self.grow(part)
        for part, made in reversed(self._known.items()):
            whole = part is self.root
            self.all += [*of_builder(part, made), *of_joined(part, made, self.grow)]
            if not isinstance(part, Padding):
                self.all += of_call(part)
            if whole or not isinstance(part, Padding):
                self.all += of_any(part, made, whole)
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
            made = function_of(node.function)(*args, **options)
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
        """The root with two mistakes made; None where one leaves no place for the other."""
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
