"""Expressions of graphs from text, ``causal(...) | full(...)``; nothing is executed."""

import ast
import math
from collections.abc import Mapping
from typing import Any

from ...arguments import clipped
from ...errors import OptionError
from .expression import METHODS, Expression

_JOINS: dict[type, str] = {ast.BitOr: "|", ast.BitAnd: "&", ast.Sub: "-", ast.MatMult: "@"}
_LITERALS = bool | int | float | str | type(...) | None
_LONGEST = 120  # characters of an expression that an error repeats
_TOO_DEEP = "it is nested too deeply"
_ROOMS = ("ga", "ga.graphs", "graphattn", "graphattn.graphs")  # of builders, as in Python
_LOAD = 'load: knn(load("scan.ply"), k=16)'
_EXAMPLE = "'sliding_window(64, 9, causal=False) | global_tokens(64, (0,))'"


class Reader:
    """Reads one expression; a subclass may do something else with its calls.

    Args:
        text: The expression.
        names: Values by the names that the expression may use.
    """

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self.text = text.strip()
        self.names = {"inf": math.inf, "nan": math.nan, **names}

    def read(self) -> Any:
        """The value of the expression.

        Raises:
            OptionError: If the text is not an expression; the message quotes the part.
        """
        try:
            node = ast.parse(self.text, mode="eval").body
        except (SyntaxError, UnicodeError, RecursionError, MemoryError) as error:
            reason = _TOO_DEEP
            if type(error) is SyntaxError:
                reason = error.msg
            elif type(error) is UnicodeEncodeError:
                reason = "it holds bytes that are not text"
            raise self._fault(reason) from None
        try:
            return self.value(node)
        except RecursionError:
            raise self._fault(_TOO_DEEP) from None

    def _fault(self, reason: str) -> OptionError:
        return OptionError(f"{short(self.text)!r} is not an expression: {short(reason)}")

    def call(
        self,
        function: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
        node: ast.AST,
    ) -> Any:
        """The value of a call: of a builder, an operator, or a method with its graph first."""
        return Expression(function, args, options)

    def value(self, node: ast.AST) -> Any:
        """The value of a part."""
        match node:
            case ast.Constant(value=literal) if isinstance(literal, _LITERALS):
                if isinstance(literal, int) and literal >= 1 << 63:  # of more digits than print
                    raise OptionError(f"{self.source(node)} must be below 2**63")
                return literal
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(map(self.value, parts))
            case ast.UnaryOp(op=ast.Invert(), operand=part):
                return self.call("~", (self.value(part),), {}, node)
            case ast.UnaryOp(op=ast.USub(), operand=part):
                number = self.value(part)
                if isinstance(number, int | float):
                    return -number
                raise OptionError(f"{self.source(node)}: ~ is for graphs, - for numbers")
            case ast.BinOp(op=sign, left=left, right=right) if type(sign) in _JOINS:
                return self.call(
                    _JOINS[type(sign)], (self.value(left), self.value(right)), {}, node
                )
            case ast.Call(func=ast.Name(id=name)):
                return self.call(name, *self.arguments(node), node)
            case ast.Call(func=ast.Attribute(value=room, attr=name)) if _is_room(room):
                return self.call(name, *self.arguments(node), node)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in METHODS:
                args, options = self.arguments(node)
                return self.call(name, (self.value(owner), *args), options, node)
            case ast.Call(func=function):
                raise OptionError(
                    f"{self.source(function)} is neither a builder nor a method "
                    f"({', '.join(METHODS)})"
                )
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
        quotes = ""
        if isinstance(node, ast.Name | ast.Attribute):
            quotes = "; words stand in quotes, and a file, of points, a mesh or ids, in " + _LOAD
        raise OptionError(
            f"{self.source(node)} does not belong in an expression of builders, such as "
            f"{_EXAMPLE}{quotes}"
        )

    def arguments(self, node: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments of a call."""
        names = [keyword.arg for keyword in node.keywords]
        if None in names:
            raise OptionError(f"{self.source(node)}: ** does not belong in an expression")
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        if twice:
            raise OptionError(f"{self.source(node)}: keyword argument repeated: {twice[0]}")
        options = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        return tuple(map(self.value, node.args)), options

    def source(self, node: ast.AST) -> str:
        """The text of a part, as errors quote it."""
        return short(ast.get_source_segment(self.text, node) or self.text)


def _is_room(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in _ROOMS


def short(text: str) -> str:
    """Text cut to a length that an error can quote."""
    return clipped(text, _LONGEST)
