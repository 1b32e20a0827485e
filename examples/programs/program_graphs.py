"""Python programs as graphs over the nodes of their syntax trees."""

import ast
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

import graphattn as ga

from .scopes import Scope, occurrences

Pairs = set[tuple[int, int]]  # (target, source)


@dataclass(frozen=True, eq=False, repr=False)
class ProgramGraphs:
    """The graphs of a program, all over the nodes of one syntax tree; made by
    :func:`program_graphs`.

    Args:
        labels: What each node is, as ``"Name x"``; nodes are numbered depth first, so the module is
            node 0.
        parent: (N,) int64, the parent of each node, -1 for the module: what ``ga.graphs.tree`` and
            ``ancestors`` take.
        relations: Graphs by name.
    """

    labels: tuple[str, ...]
    parent: Tensor
    relations: dict[str, ga.AttentionGraph]

    @cached_property
    def typed(self) -> ga.graphs.Relations:
        """All relations as one graph whose edges know theirs; an edge of several belongs to the
        first.
        """
        return ga.graphs.Relations(**self.relations)

    def __repr__(self) -> str:
        return f"ProgramGraphs({len(self.labels)} nodes, {', '.join(self.relations)})"


def program_graphs(source: str) -> ProgramGraphs:
    """The relations between the nodes of a Python program's syntax tree, a graph for each.

    * ``parent``, ``child``: a node reads the node above it, or those below it.
    * ``next_sibling``, ``previous_sibling``: it reads the one after it, or before it, under the
      same parent.
    * ``next_token``, ``previous_token``: a leaf (a name, a constant, a parameter, ...) reads the
      leaf after it, or before it, in the text.
    * ``last_use``: an occurrence of a variable reads its occurrence before.
    * ``definition``: a use of a variable reads the definition that it gets its value from.

    Args:
        source: The text of a module, for the Python that runs this.
    Returns:
        Labels, parents, and a dict of listed graphs by the names above.
    Raises:
        GraphError: If ``source`` is not Python; the line is named.
    Source:
        Allamanis et al. 2018, "Learning to Represent Programs with Graphs" (Child, NextToken,
        LastUse, LastWrite); Hellendoorn et al. 2020 (GREAT) for such edges as biases of attention.
        *What differs:* variables are followed in the order of evaluation with every branch and
        every loop body once, not along all paths of control, so a use after an ``if`` reads the
        last of its branches' definitions only. Variables are told apart by Python's scopes. Nodes
        are those of Python's ``ast``, without the contexts Load, Store and Del; operators and
        keywords are no leaves of the text, for ``ast`` does not say where they stand.
    Example:
        >>> found = program_graphs("x = 1\\nprint(x)")
        >>> found.labels
        ('Module', 'Assign', 'Name x', 'Constant 1', 'Expr', 'Call', 'Name print', 'Name x')
        >>> found.relations["definition"].edge_index.tolist()  # the last x reads the first
        [[2], [7]]
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ga.errors.GraphError(
            f"source must be the text of a Python module, got an error{where}: {error}"
        ) from None
    nodes, parent = _nodes(module)
    up = torch.tensor(parent, dtype=torch.int64)
    sides, tokens = _siblings(parent), _in_a_row(_leaves(nodes))
    last, definition = _data_flow(module, {id(node): number for number, node in enumerate(nodes)})
    relations = {
        "parent": ga.graphs.tree(up, read="parent"),
        "child": ga.graphs.tree(up, read="children"),
        "next_sibling": _graph("next_sibling", sides, len(nodes)),
        "previous_sibling": _graph("previous_sibling", {(b, a) for a, b in sides}, len(nodes)),
        "next_token": _graph("next_token", tokens, len(nodes)),
        "previous_token": _graph("previous_token", {(b, a) for a, b in tokens}, len(nodes)),
        "last_use": _graph("last_use", last, len(nodes)),
        "definition": _graph("definition", definition, len(nodes)),
    }
    return ProgramGraphs(tuple(map(_label, nodes)), up, relations)


def _nodes(module: ast.AST) -> tuple[list[ast.AST], list[int]]:
    """All nodes depth first, and the number of each one's parent."""
    nodes: list[ast.AST] = []
    parents: list[int] = []
    waiting = [(module, -1)]
    while waiting:
        node, above = waiting.pop()
        below = [
            child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)
        ]
        waiting += [(child, len(nodes)) for child in reversed(below)]
        nodes.append(node)
        parents.append(above)
    return nodes, parents


def _siblings(parent: list[int]) -> Pairs:
    """(node, the one after it under the same parent)."""
    last: dict[int, int] = {}
    pairs: Pairs = set()
    for node, above in enumerate(parent):
        if above in last:
            pairs.add((last[above], node))
        last[above] = node
    return pairs


def _leaves(nodes: list[ast.AST]) -> list[int]:
    """The nodes that have a place in the text and none below them, in the order of the text."""

    def is_leaf(node: ast.AST) -> bool:
        below = (
            child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)
        )
        return hasattr(node, "lineno") and next(below, None) is None

    places = [(node.lineno, node.col_offset, i) for i, node in enumerate(nodes) if is_leaf(node)]  # type: ignore[attr-defined]
    return [number for _, _, number in sorted(places)]


def _in_a_row(numbers: list[int]) -> Pairs:
    return set(pairwise(numbers))


def _data_flow(module: ast.AST, number: dict[int, int]) -> tuple[Pairs, Pairs]:
    """(occurrence, the one before), (use, its definition)."""
    last: dict[tuple[Scope, str], int] = {}
    defined: dict[tuple[Scope, str], int] = {}
    uses: Pairs = set()
    definitions: Pairs = set()
    for each in occurrences(module):
        variable, node = (each.scope.owner(each.name), each.name), number[id(each.node)]
        if last.get(variable, node) != node:
            uses.add((node, last[variable]))
        if not each.defines and variable in defined:
            definitions.add((node, defined[variable]))
        last[variable] = node
        if each.defines:
            defined[variable] = node
    return uses, definitions


def _graph(name: str, pairs: Pairs, size: int) -> ga.AttentionGraph:
    target, source = torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2).unbind(1)
    return ga.from_edge_index(torch.stack((source, target)), num_nodes=size, name=name)


def _label(node: ast.AST) -> str:
    fields = ("id", "name", "arg", "attr", "value")
    text = next(
        (
            value
            for each in fields
            if isinstance(value := getattr(node, each, None), str | int | float)
        ),
        None,
    )
    return type(node).__name__ if text is None else f"{type(node).__name__} {text}"
