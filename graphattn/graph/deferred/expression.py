"""Expressions: the calls that made a graph, of builders, methods and operators."""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from types import EllipsisType
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..edges import Edges
from ..immutable import Immutable
from ..modes import unwrapped, without_modes

P = ParamSpec("P")
G = TypeVar("G", bound="Operand")
SIGNS: dict[str, Callable[..., Any]] = {
    "|": operator.or_,
    "&": operator.and_,
    "-": operator.sub,
    "@": operator.matmul,
    "~": operator.invert,
}
JOINS = tuple(sign for sign in SIGNS if sign != "~")  # of two graphs
METHODS = (
    "reverse",
    "k_hop",
    "with_self_loops",
    "without_self_loops",
    "with_global_tokens",
    "subgraph",
    "relabel",
)
_BUILDERS: dict[str, Callable[..., Any]] = {}
#: Where builders are defined; each registers itself when it is imported.
_ROOMS = ("graphattn.graphs", "graphattn.models")
# limits of the tensors and of the calls of an expression; beyond them a graph keeps only its edges
_MOST_BYTES = 1 << 28
MOST_CALLS = 256
# the same limit for tensors that are larger than the listed edges
_FEW_BYTES = 1 << 16
_BYTES_PER_EDGE = 64
_PLAIN = bool | int | float | str | EllipsisType | None


class NotPlain(Exception):
    """An argument that is not plain data, such as a function."""


class Operand(Immutable):
    """A graph, or a pattern that becomes one: what expressions join, and what they make."""

    expression: "Expression | None"

    @property
    def name(self) -> str:
        """The name that ``repr`` shows."""
        return str(self.expression)

    def _made_by(self, function: str, *args: Any, **options: Any) -> Self:
        """The operand with this call as its expression unless that is fixed."""
        return self

    def _as_operand(self) -> "Expression | Operand":
        """The expression, or the graph itself where only its edges are known."""
        if self.expression is None:
            return self
        return self.expression


@dataclass(frozen=True, eq=False)
class Expression:
    """A call that makes a graph, or a pattern where ``...`` stands for a size.

    Args:
        function: A builder, a method of :class:`AttentionGraph`, or one of the operators
            ``| & - @ ~``.
        args: Numbers, strings, tensors, arrays, tuples of these, and its operands: an Expression
            each, or a graph where only the edges are known.
        options: Keyword arguments, alike.
        is_listed: True if the graph of this expression lists its edges.

    Example:
        >>> from graphattn.graphs import global_tokens, sliding_window
        >>> longformer = sliding_window(64, 9, causal=False) | global_tokens(64, (0,))
        >>> print(longformer.expression)
        sliding_window(64, 9, causal=False) | global_tokens(64, (0,))
        >>> longformer.expression.build().equals(longformer)
        True
    """

    function: str
    args: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    is_listed: bool = False

    def build(self) -> Any:
        """A new graph from the calls, or a pattern where a size is open."""
        function = function_of(self.function)
        options = {name: built(value) for name, value in self.options.items()}
        return function(*map(built, self.args), **options)

    def children(self) -> "Iterator[Expression | Operand]":
        """The operands that are graphs."""
        for value in (*self.args, *self.options.values()):
            yield from _graphs_in(value)

    def calls(self) -> "Iterator[Expression]":
        """The operands that are calls."""
        return (child for child in self.children() if isinstance(child, Expression))

    @property
    def is_open(self) -> bool:
        """True if a size is open, here or in an operand."""
        if any(arg is ... for arg in self.args):
            return True
        return any(call.is_open for call in self.calls())

    @property
    def has_functions(self) -> bool:
        """True if an argument is a function, which no file holds."""
        if any(map(callable, (*self.args, *self.options.values()))):
            return True
        return any(call.has_functions for call in self.calls())

    @property
    def num_calls(self) -> int:
        """The number of calls, this one and those inside it."""
        return 1 + sum(call.num_calls for call in self.calls())

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors of all calls."""
        return sum(map(_bytes, (*self.args, *self.options.values())))

    def __str__(self) -> str:
        return self.text()

    def text(self, operands: list[Any] | None = None) -> str:
        """The calls as source text.

        Args:
            operands: A list that takes the tensors, arrays and listed graphs; the text names them
                ``_0``, ``_1``, ... By default the text shows their shapes and names.
        """
        if self.function == "~":
            return f"~{_wrapped(self.args[0], '~', operands)}"
        if self.function in SIGNS:
            left, right = self.args
            first = _wrapped(left, self.function, operands, first=True)
            return f"{first} {self.function} {_wrapped(right, self.function, operands)}"
        args = self.args
        owner = ""
        if self.function in METHODS:
            owner = f"{_wrapped(args[0], '.', operands)}."
            args = args[1:]
        inside = [shown(value, operands) for value in args]
        inside += [f"{name}={shown(value, operands)}" for name, value in self.options.items()]
        return f"{owner}{self.function}({', '.join(inside)})"


def function_of(name: str) -> Callable[..., Any]:
    """The function of a name in an expression; a KeyError for an unknown name."""
    if name in SIGNS:
        return SIGNS[name]
    if name in METHODS:
        return lambda graph, *args, **options: getattr(graph, name)(*args, **options)
    for room in _ROOMS:
        if name not in _BUILDERS:  # as of a file, before the builder is used
            getattr(import_module(room), name, None)
    return _BUILDERS[name]


def builders() -> dict[str, Callable[..., Any]]:
    """All registered builders, by name."""
    return dict(_BUILDERS)


def written(edges: Edges, function: str, *args: Any, **options: Any) -> Expression | None:
    """The expression of a call, with copies of its tensors.

    None if an argument is large or not plain data.

    Args:
        edges: The result of the call. If it is listed, arguments that list edges or are larger are
            not kept.
    """
    try:
        options = {name: frozen(value) for name, value in options.items()}
        call = Expression(function, tuple(map(frozen, args)), options, edges.is_listed)
    except NotPlain:
        return None
    limit = _MOST_BYTES
    if edges.is_listed:
        if not all(isinstance(child, Expression) for child in call.children()):
            return None
        limit = min(limit, _FEW_BYTES + _BYTES_PER_EDGE * edges.count())
    if call.num_calls > MOST_CALLS or call.num_bytes > limit:
        return None
    return call


def builder(make: Callable[P, G]) -> Callable[P, G]:
    """A decorator: graphs of the builder keep their call, with copies of its tensors."""
    name = make.__name__

    @wraps(make)
    def build(*args: P.args, **options: P.kwargs) -> G:
        args = tuple(map(copied, args))  # type: ignore[assignment]
        options = {key: copied(value) for key, value in options.items()}  # type: ignore[assignment]
        graph = without_modes(lambda: make(*args, **options))
        return graph._made_by(name, *args, **options)

    _BUILDERS[name] = build
    return build


def copied(value: Any) -> Any:
    """A private copy of a tensor or array; anything else as it is."""
    if isinstance(value, Tensor | np.ndarray):
        if not _is_stored(value):
            return value
        if isinstance(value, Tensor):
            return without_modes(unwrapped(value).detach().clone)
        return np.array(value)
    if type(value) not in (list, tuple):
        return value
    if any(isinstance(item, Tensor | np.ndarray) for item in value):
        return type(value)(map(copied, value))
    return value


def frozen(value: Any) -> Any:
    """A value as plain data: tensors as copies, lists as tuples, graphs as calls."""
    if isinstance(value, _PLAIN | Expression):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor | np.ndarray):
        if not _is_stored(value) or value.nbytes > _MOST_BYTES:
            raise NotPlain
        return copied(value)
    if isinstance(value, list | tuple | range):
        return tuple(map(frozen, value))
    if isinstance(value, Operand):
        return value._as_operand()
    raise NotPlain


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor | np.ndarray):
        return value.nbytes
    if isinstance(value, Expression):
        return value.num_bytes
    if isinstance(value, tuple):
        return sum(map(_bytes, value))
    return 0


def _is_stored(x: Tensor | np.ndarray) -> bool:
    """True if the tensor or array stores its numbers one by one."""
    if isinstance(x, np.ndarray):
        return x.dtype != object
    if x.is_nested or x.layout != torch.strided:
        return False
    return x.device.type != "meta"


def built(value: Any) -> Any:
    """An argument with its expressions built."""
    if isinstance(value, Expression):
        return value.build()
    if isinstance(value, tuple):
        return tuple(map(built, value))
    return value


def _graphs_in(value: Any) -> Iterator[Expression | Operand]:
    if isinstance(value, tuple):
        for item in value:
            yield from _graphs_in(item)
    elif isinstance(value, Expression | Operand):
        yield value


def _wrapped(
    value: Any,
    sign: str,
    operands: list[Any] | None,
    first: bool = False,
) -> str:
    """An operand of an operator, in parentheses where precedence needs them."""
    text = shown(value, operands)
    if isinstance(value, Operand):
        value = value.expression
    is_operand = operands is not None and text == f"_{len(operands) - 1}"
    if is_operand or not isinstance(value, Expression):
        return text
    if value.function not in SIGNS:
        return text
    is_loose = True
    if value.function == "~":
        is_loose = sign not in SIGNS
    elif value.function == sign:
        is_loose = sign == "-" and not first
    if is_loose:
        return f"({text})"
    return text


def shown(value: Any, operands: list[Any] | None = None) -> str:
    """The text of an argument of a call; see :meth:`Expression.text`."""
    if isinstance(value, tuple):
        inside = ", ".join(shown(item, operands) for item in value)
        if len(value) == 1:
            return f"({inside},)"
        return f"({inside})"
    if operands is not None:
        is_call = isinstance(value, Expression)
        # another machine may find other neighbours
        if is_call and value.is_listed and not value.is_open:
            value = value.build()
        if isinstance(value, Tensor | np.ndarray | Operand):
            operands.append(value)
            return f"_{len(operands) - 1}"
    if isinstance(value, Expression):
        return value.text(operands)
    if isinstance(value, Tensor | np.ndarray):
        if value.ndim == 1 and len(value) <= 8:
            return repr(value.tolist())
        return f"<{tuple(value.shape)}>"
    if isinstance(value, Operand):
        return value.name
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    if value is ...:
        return "..."
    return repr(value)
