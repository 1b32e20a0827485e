"""Expressions of builders as text: ``sliding_window(64, 9) | global_tokens(64, (0,))``; names are looked up, nothing is
executed."""

import ast
import difflib
from collections.abc import Callable
from typing import Any

from ..errors import GraphAttnError, GraphError, OptionError
from ..graph import AttentionGraph
from ..graph.expression import METHODS, SIGNS, builders
from .catalogue import inputs

_SIGNS: dict[type, str] = {ast.BitOr: "|", ast.BitAnd: "&", ast.Sub: "-", ast.MatMult: "@"}
_LONGEST = 120  # characters of an expression that an error repeats


def from_expression(text: str) -> AttentionGraph:
    """The graph that an expression of builders describes.

    Calls of builders, ``| & - @ ~``, and the methods reverse, k_hop, with_self_loops, without_self_loops,
    with_global_tokens, subgraph and relabel; arguments are numbers, words, tuples and lists of them.

    Raises:
        OptionError: If the text is no such expression; the message says where.
        GraphAttnError: If a builder refuses its arguments.

    Example:
        >>> from_expression("sliding_window(5, 2) | global_tokens(5, (0,))").num_edges
        16
    """
    try:
        found = _value(ast.parse(text.strip(), mode="eval").body, text)
    except (SyntaxError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
        raise OptionError(f"{_short(text)!r} is no expression: {_short(reason)}") from None
    if not isinstance(found, AttentionGraph):
        raise OptionError(f"{_short(text)!r} gives {_short(repr(found))}; an expression gives a graph")
    return found


def _value(node: ast.AST, text: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value(each, text) for each in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
        return _signed(node, text)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        sign = _SIGNS[type(node.op)]
        sides = [_value(side, text) for side in (node.left, node.right)]
        for side, part in zip(sides, (node.left, node.right), strict=True):
            if not isinstance(side, AttentionGraph):
                raise OptionError(f"{sign} joins graphs, got {_source(part, text)}")
        return SIGNS[sign](*sides)
    if isinstance(node, ast.Call):
        return _call(node, text)
    if isinstance(node, ast.Name) and node.id in inputs.__all__:
        return getattr(inputs, node.id)
    raise OptionError(
        f"{_source(node, text)} does not belong in an expression of builders, such as "
        "'sliding_window(64, 9) | global_tokens(64, (0,))'"
    )


def _signed(node: ast.UnaryOp, text: str) -> Any:
    value = _value(node.operand, text)
    if isinstance(node.op, ast.Invert) and isinstance(value, AttentionGraph):
        return ~value
    if isinstance(node.op, ast.USub) and isinstance(value, int | float):
        return -value
    raise OptionError(f"{_source(node, text)}: ~ is for graphs, - for numbers")


def _call(node: ast.Call, text: str) -> Any:
    known = _functions()
    what = _source(node.func, text)
    arguments = [_value(each, text) for each in node.args]
    if any(each.arg is None for each in node.keywords):
        raise OptionError(f"{_source(node, text)}: ** does not belong in an expression")
    options = {str(each.arg): _value(each.value, text) for each in node.keywords}
    if len(options) < len(node.keywords):
        names = [each.arg for each in node.keywords]
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"{_source(node, text)}: keyword argument repeated: {twice}")
    if isinstance(node.func, ast.Name):
        if node.func.id not in known:
            close = difflib.get_close_matches(node.func.id, known, 1)
            hint = f"did you mean {close[0]}?" if close else "graphattn.graphs.BUILDERS holds them all"
            raise OptionError(f"no builder is called {what}; {hint}")
        function: Callable[..., Any] = known[node.func.id]
    elif isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        owner = _value(node.func.value, text)
        if not isinstance(owner, AttentionGraph):
            raise OptionError(f"{what}: only a graph has {node.func.attr}")
        function = getattr(owner, node.func.attr)
    else:
        raise OptionError(f"{what} is no builder, nor one of the methods {', '.join(METHODS)}")
    try:
        return function(*arguments, **options)
    except GraphAttnError:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        raise GraphError(f"{_source(node, text)}: {error}") from error


def _functions() -> dict[str, Callable[..., Any]]:
    """What may be called: the builders, and the functions beside them."""
    from .. import graphs

    beside = {name: getattr(graphs, name) for name in graphs.__all__ if name.islower() and name != "zoo"}
    return {name: function for name, function in beside.items() if callable(function)} | builders()


def _source(node: ast.AST, text: str) -> str:
    return _short(ast.get_source_segment(text.strip(), node) or text)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
