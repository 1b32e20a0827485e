"""Mutants of a graph: the calls that made it with one thing wrong.

A part of the expression is replaced by another one; ``audit`` and ``verify`` name the mutants that
have the edges of a mask, the commonest first.
"""

from typing import Any

import torch

from ...errors import without_warnings
from ...graph import AttentionGraph
from ...graph.deferred.expression import Expression, built, function_of
from .mutant import Mutant, Node, Padding, parts, replaced, with_argument
from .of_builders import of_builder
from .of_calls import of_call
from .of_graphs import of_any, of_joined
from .simple import simple_expression


class Mutants:
    """Every single mistake about a graph that is known, and the graphs that they make of it.

    Args:
        graph: What was meant. Listed edges are taken for a band where they are one.
    """

    def __init__(self, graph: AttentionGraph) -> None:
        self._graphs: dict[Node, AttentionGraph] = {}
        self.device = graph.device
        self.root = _recognised(graph._as_operand())
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
            GraphAttnError: If a builder refuses what a mutant asks of it.
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


def _recognised(node: Node) -> Node:
    """The expression with listed edges as the simple call that has them."""
    for leaf in [part for part in parts(node) if isinstance(part, AttentionGraph)]:
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
