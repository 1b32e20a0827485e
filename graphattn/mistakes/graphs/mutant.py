"""A mistake about a graph as a mutant of its calls: one part of the expression is another."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ...arguments import clipped
from ...errors import GraphAttnError
from ...graph import AttentionGraph
from ...graph.deferred.expression import METHODS, Expression, Operand, function_of

Node = Expression | Operand
Grown = Callable[[Node], AttentionGraph]
_NAMED = 6  # nodes of padding that are named
_LONGEST = 100  # characters of an expression that is quoted
MOVED = 3  # rank of masks that are rolled or shifted
REMOTE = 6  # rank of mistakes that are not named where another explains the same
# what a builder raises where it has no such graph, itself or from torch, or none that fits
REFUSED = (GraphAttnError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, eq=False)
class Mutant:
    """A mistake about a part of an expression.

    Args:
        words: What is wrong.
        part: What was meant.
        changed: What was made instead; it may hold the part.
        argument: Name and value, where an argument of the call is another one.
        counted: Whether to say how many sources a target reads too many or too few.
        rank: Rarity: 0 for the commonest; from ``REMOTE`` on, named where nothing else explains.
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


def parts(node: Node) -> Iterator[Node]:
    """A node and all inside it, each once."""
    visited = set()
    waiting = [node]
    while waiting:
        here = waiting.pop(0)
        if here not in visited:
            visited.add(here)
            yield here
            waiting += here.children() if isinstance(here, Expression) else ()


def replaced(value: Any, part: Node, changed: Node) -> Any:
    """The expression with one of its parts replaced; the same object where it has no such part."""
    if value is part:
        return changed
    if isinstance(value, tuple):
        items = tuple(replaced(item, part, changed) for item in value)
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return items
    if not isinstance(value, Expression):
        return value
    args = replaced(value.args, part, changed)
    options = {name: replaced(item, part, changed) for name, item in value.options.items()}
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
    positional = zip(parameters(call), call.args, strict=False)
    return (
        {name: parameter.default for name, parameter in parameters(call).items()}
        | dict(positional)
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
    """The pairs of real tokens of a listed graph, a call that its author did not write."""

    def text(self, operands: list[Any] | None = None) -> str:
        return "padding"

    @property
    def is_around(self) -> bool:
        """True if all padding is before or after the tokens, none among them."""
        read = torch.nonzero(self.args[1] == 0).flatten()
        return read.numel() == 0 or int(read[-1] - read[0]) + 1 == read.numel()

    @property
    def nodes(self) -> str:
        """The nodes that are padding: ``sources 20 to 23``."""
        nodes = torch.nonzero(self.args[1]).flatten().tolist()
        if len(nodes) > 1 and nodes[-1] - nodes[0] + 1 == len(nodes):
            return f"sources {nodes[0]} to {nodes[-1]}"
        return (
            f"sources {', '.join(map(str, nodes[:_NAMED]))}{', ...' if len(nodes) > _NAMED else ''}"
        )
