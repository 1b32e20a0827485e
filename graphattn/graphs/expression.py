"""Expressions of builders as text: ``sliding_window(64, 9) | global_tokens(64, (0,))``; names are looked up, nothing is
executed."""

import ast
import difflib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ..arguments import clipped
from ..errors import GraphAttnError, GraphError, OptionError
from ..graph import AttentionGraph, Pattern
from ..graph.expression import METHODS, SIGNS, builders
from .catalogue import inputs, zoo

_SIGNS: dict[type, str] = {ast.BitOr: "|", ast.BitAnd: "&", ast.Sub: "-", ast.MatMult: "@"}
_LONGEST = 120  # characters of an expression that an error repeats
_LITERALS = bool | int | float | str | type(...) | None
_EXAMPLE = "'sliding_window(64, 9) | global_tokens(64, (0,))'"


class Deferred(ABC):
    """A value that depends on the argument that takes it, as a file does: positions for ``pos``, triangles for
    ``faces``."""

    @abstractmethod
    def graph(self) -> AttentionGraph | Pattern:
        """What it is where a graph belongs."""

    @abstractmethod
    def arguments(self, name: str, function: Callable[..., Any]) -> dict[str, Any]:
        """What it is as the argument ``name`` of a function, with other arguments that follow from it, by name."""


def from_expression(text: str, functions: Mapping[str, Callable[..., Any]] | None = None) -> AttentionGraph | Pattern:
    """The graph that an expression of builders describes; a pattern where ``...`` stands for its size.

    Calls of builders, ``| & - @ ~``, and the methods reverse, k_hop, with_self_loops, without_self_loops,
    with_global_tokens, subgraph and relabel; arguments are numbers, ``inf``, words, tuples and lists of them.

    Args:
        text: The expression.
        functions: Others that may be called, by name; they may return a :class:`Deferred`.

    Raises:
        OptionError: If the text is no such expression; the message says where.
        GraphAttnError: If a builder refuses its arguments.

    Example:
        >>> from_expression("sliding_window(5, 2) | global_tokens(5, (0,))").num_edges
        16
    """
    source = text.strip()
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, UnicodeError, RecursionError, MemoryError) as error:
        reasons = {SyntaxError: getattr(error, "msg", ""), UnicodeEncodeError: "it holds bytes that are no text"}
        reason = _short(reasons.get(type(error), "it is nested too deeply"))
        raise OptionError(f"{_short(text)!r} is no expression: {reason}") from None
    try:
        value = _settled(_Reader(source, callables() | dict(functions or {})).value(node))
    except RecursionError:
        raise OptionError(f"{_short(text)!r} is no expression: it is nested too deeply") from None
    if not isinstance(value, AttentionGraph | Pattern):
        raise OptionError(f"{_short(text)!r} gives {_short(repr(value))}; an expression gives a graph")
    return value


def callables() -> dict[str, Callable[..., Any]]:
    """What an expression may call: the builders, and the functions beside them."""
    from .. import graphs

    beside = {name: getattr(graphs, name) for name in graphs.__all__ if name.islower() and name != "zoo"}
    named = graphs.BUILDERS | {name: function for name, function in beside.items() if callable(function)}
    return named | {name: function for name, function in builders().items() if name not in named}


def signature_of(function: Callable[..., Any]) -> str:
    """The arguments of a function as its documentation shows them.

    Example:
        >>> from graphattn.graphs import knn
        >>> signature_of(knn).partition(", *")[0]
        '(pos: Tensor, k: int'
    """
    text = str(inspect.signature(function).replace(return_annotation=inspect.Signature.empty))
    text = text.replace("torch.Tensor | numpy.ndarray", "Tensor").replace("collections.abc.", "")
    return text.replace("graphattn.graph.graph.", "").replace("torch.", "")


@dataclass(frozen=True)
class _Reader:
    """The values of the nodes of one expression."""

    text: str
    functions: Mapping[str, Callable[..., Any]]

    def value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, _LITERALS):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(map(self.value, node.elts))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
            return self._signed(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
            return self._joined(node, _SIGNS[type(node.op)])
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.Name) and node.id in inputs.__all__:
            return getattr(inputs, node.id)
        if isinstance(node, ast.Name) and node.id == "inf":
            return math.inf
        quotes = "; words and names of files stand in quotes" if isinstance(node, ast.Name | ast.Attribute) else ""
        raise OptionError(
            f"{self._source(node)} does not belong in an expression of builders, such as {_EXAMPLE}{quotes}"
        )

    def _signed(self, node: ast.UnaryOp) -> Any:
        value = _settled(self.value(node.operand))
        if isinstance(node.op, ast.Invert) and isinstance(value, AttentionGraph | Pattern):
            return ~value
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        raise OptionError(f"{self._source(node)}: ~ is for graphs, - for numbers")

    def _joined(self, node: ast.BinOp, sign: str) -> Any:
        sides = [_settled(self.value(side)) for side in (node.left, node.right)]
        for side, part in zip(sides, (node.left, node.right), strict=True):
            if not isinstance(side, AttentionGraph | Pattern):
                raise OptionError(f"{sign} joins graphs, got {self._source(part)}")
        return SIGNS[sign](*sides)

    def _called(self, node: ast.Call) -> Any:
        arguments = [self.value(argument) for argument in node.args]
        names = [keyword.arg for keyword in node.keywords]
        if None in names:
            raise OptionError(f"{self._source(node)}: ** does not belong in an expression")
        options = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        if len(options) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise OptionError(f"{self._source(node)}: keyword argument repeated: {twice}")
        function = self._function(node.func)
        try:
            bound = inspect.signature(function).bind(*arguments, **options)
        except TypeError as error:
            takes = f"{self._source(node.func)}{signature_of(function)}"
            raise GraphError(f"{self._source(node)}: {error}; the call is {takes}") from None
        try:
            if any(isinstance(value, Deferred) for value in bound.arguments.values()):
                _settle(bound, function)
                return function(*bound.args, **bound.kwargs)
            return function(*map(_settled, arguments), **options)  # as it was written
        except GraphAttnError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise GraphError(f"{self._source(node)}: {error}") from error

    def _function(self, node: ast.AST) -> Callable[..., Any]:
        if isinstance(node, ast.Name) and node.id in self.functions:
            return self.functions[node.id]
        if isinstance(node, ast.Name):
            raise OptionError(f"no builder is called {self._source(node)}; {_meant(node.id, self.functions)}")
        if not (isinstance(node, ast.Attribute) and node.attr in METHODS):
            raise OptionError(f"{self._source(node)} is no builder, nor one of the methods {', '.join(METHODS)}")
        owner = _settled(self.value(node.value))
        if not hasattr(owner, node.attr) or not isinstance(owner, AttentionGraph | Pattern):
            raise OptionError(f"{self._source(node)}: only a graph has {node.attr}")
        method: Callable[..., Any] = getattr(owner, node.attr)
        return method

    def _source(self, node: ast.AST) -> str:
        return _short(ast.get_source_segment(self.text, node) or self.text)


def _meant(name: str, known: Mapping[str, Callable[..., Any]]) -> str:
    """A hint for an unknown ``name``: the pattern that papers call so, or a builder that is spelled like it."""
    if name in zoo():
        return f"the zoo's {zoo()[name].name} is {zoo()[name].code}"
    close = [builder for builder in known if name in builder] or difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]}{signature_of(known[close[0]])}?" if close else "graphattn patterns lists them all"


def _settle(bound: inspect.BoundArguments, function: Callable[..., Any]) -> None:
    """Put what they are for this function in the place of deferred values."""
    for name, value in dict(bound.arguments).items():
        hint = bound.signature.parameters[name].annotation
        if isinstance(value, Deferred) and AttentionGraph not in (hint, *get_args(hint)):
            given = {key: known for key, known in bound.arguments.items() if key != name}
            bound.arguments.update({**value.arguments(name, function), **given})
        else:
            bound.arguments[name] = _settled(value)


def _settled(value: Any) -> Any:
    """A value with the graphs of what is deferred."""
    if isinstance(value, Deferred):
        return value.graph()
    return tuple(map(_settled, value)) if isinstance(value, tuple) else value


def _short(text: str) -> str:
    return clipped(text, _LONGEST)
