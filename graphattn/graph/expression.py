"""Expressions: the calls of builders, methods and signs that made a graph, to be saved and audited."""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from importlib import import_module
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
import torch
from torch import Tensor

from .edges import Edges

if TYPE_CHECKING:
    from .graph import AttentionGraph

P = ParamSpec("P")
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
_MOST_BYTES = 1 << 28  # of the tensors of an expression; a graph of larger ones is known by its edges alone,
_FEW_BYTES, _BYTES_PER_EDGE = 1 << 16, 64  # and so is one whose tensors outweigh its listed edges
MOST_CALLS = 256  # of one expression; a graph that grew in more steps is known by its edges alone
_PLAIN = bool | int | float | str | EllipsisType | None


class NotPlain(Exception):
    """An argument that is no plain data, such as a function."""


@dataclass(frozen=True, eq=False)
class Expression:
    """A call that makes a graph, or a pattern where ``...`` stands for a size.

    Args:
        function: A builder, a method of :class:`AttentionGraph`, or one of the signs ``| & - @ ~``.
        args: Numbers, words, tensors, arrays, tuples of these, and the graphs that it joins: an Expression each, or an
            AttentionGraph where only the edges are known.
        options: The same by name.
        is_listed: Whether the graph that it was written for lists its edges.

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

    def build(self) -> "AttentionGraph":
        """The graph, made anew."""
        function = function_of(self.function, self.args)
        return function(*map(built, self.args), **{name: built(value) for name, value in self.options.items()})

    def children(self) -> "Iterator[Expression | AttentionGraph]":
        """The graphs that this call joins."""
        for value in (*self.args, *self.options.values()):
            yield from _graphs_in(value)

    @property
    def is_open(self) -> bool:
        """Whether a size is left open, here or in a graph that it joins."""
        children = (child for child in self.children() if isinstance(child, Expression))
        return any(arg is ... for arg in self.args) or any(child.is_open for child in children)

    @property
    def num_calls(self) -> int:
        """How many calls there are, this one and those inside it."""
        return 1 + sum(child.num_calls for child in self.children() if isinstance(child, Expression))

    @property
    def num_bytes(self) -> int:
        """What the tensors of all calls take."""
        return sum(map(_bytes, (*self.args, *self.options.values())))

    def __str__(self) -> str:
        return self.text()

    def text(self, held: list[Any] | None = None) -> str:
        """The calls as they would be written.

        Args:
            held: Takes the tensors, arrays and listed graphs, which the text then names ``_0``, ``_1``, ... By default
                they are shown by their shapes and names.
        """
        if self.function == "~":
            return f"~{_wrapped(self.args[0], '~', held)}"
        if self.function in SIGNS:
            left, right = self.args
            first = _wrapped(left, self.function, held, first=True)
            return f"{first} {self.function} {_wrapped(right, self.function, held)}"
        args = self.args
        owner = ""
        if self.function in METHODS:
            owner, args = f"{_wrapped(args[0], '.', held)}.", args[1:]
        inside = [shown(value, held) for value in args]
        inside += [f"{name}={shown(value, held)}" for name, value in self.options.items()]
        return f"{owner}{self.function}({', '.join(inside)})"


def function_of(name: str, args: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """What a name in an expression calls; a KeyError where it is no such name."""
    if name in SIGNS:
        return SIGNS[name]
    if name in METHODS:
        return lambda graph, *args, **options: getattr(graph, name)(*args, **options)
    for room in ("graphattn.graphs", "graphattn.models"):  # it came with a file, before anybody used a builder
        if name not in _BUILDERS:
            import_module(room)  # let those of the room register, then all
    return _BUILDERS[name]


def builders() -> dict[str, Callable[..., Any]]:
    """Every function that was made a builder, by name."""
    return dict(_BUILDERS)


def expression_of(graph: "AttentionGraph") -> "Expression | AttentionGraph":
    """How the graph was written, or the graph itself where only its edges are known."""
    return graph.expression or replace(graph)  # without what was derived from it


def written(edges: Edges, function: str, *args: Any, **options: Any) -> Expression | None:
    """The expression of a call, with copies of its tensors; None where an argument is no plain data, or a large one.

    Args:
        edges: What the call made. Beside listed edges nothing is kept that lists edges itself, or outweighs them.
    """
    try:
        options = {name: frozen(value) for name, value in options.items()}
        made = Expression(function, tuple(map(frozen, args)), options, edges.is_listed)
    except NotPlain:
        return None
    if edges.is_listed and any(not isinstance(child, Expression) for child in made.children()):
        return None
    limit = _MOST_BYTES if not edges.is_listed else min(_MOST_BYTES, _FEW_BYTES + _BYTES_PER_EDGE * edges.count())
    return made if made.num_calls <= MOST_CALLS and made.num_bytes <= limit else None


def builder(make: "Callable[P, AttentionGraph]") -> "Callable[P, AttentionGraph]":
    """A builder whose graphs keep the call that made them, and copies of its tensors."""
    name = make.__name__

    @wraps(make)
    def build(*args: P.args, **options: P.kwargs) -> "AttentionGraph":
        args, options = tuple(map(copied, args)), {key: copied(value) for key, value in options.items()}  # type: ignore[assignment]
        graph = make(*args, **options)
        return graph.written_as(written(graph.edges, name, *args, **options))

    _BUILDERS[name] = build
    return build


def copied(value: Any) -> Any:
    """A tensor or array that nobody else can write to; anything else as it is."""
    if isinstance(value, Tensor) and _is_stored(value):
        return value.detach().clone()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.array(value)
    if type(value) in (list, tuple) and any(isinstance(item, Tensor | np.ndarray) for item in value):
        return type(value)(map(copied, value))
    return value


def frozen(value: Any) -> Any:
    """A value as plain data that an expression can hold: tensors as copies, lists as tuples, graphs as calls."""
    if isinstance(value, _PLAIN | Expression):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor | np.ndarray):
        stored = _is_stored(value) if isinstance(value, Tensor) else value.dtype != object
        if not stored or value.nbytes > _MOST_BYTES:
            raise NotPlain
        return copied(value)
    if isinstance(value, list | tuple | range):
        return tuple(map(frozen, value))
    if hasattr(value, "expression"):
        return expression_of(value)
    raise NotPlain


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor | np.ndarray):
        return value.nbytes
    if isinstance(value, Expression):
        return value.num_bytes
    return sum(map(_bytes, value)) if isinstance(value, tuple) else 0


def _is_stored(x: Tensor) -> bool:
    """Whether it stores its numbers one by one."""
    return not x.is_nested and x.layout == torch.strided and x.device.type != "meta"


def built(value: Any) -> Any:
    """An argument with its graphs made."""
    if isinstance(value, Expression):
        return value.build()
    return tuple(map(built, value)) if isinstance(value, tuple) else value


def _graphs_in(value: Any) -> "Iterator[Expression | AttentionGraph]":
    if isinstance(value, tuple):
        for item in value:
            yield from _graphs_in(item)
    elif isinstance(value, Expression) or hasattr(value, "expression"):
        yield value


def _wrapped(value: Any, sign: str, held: list[Any] | None, first: bool = False) -> str:
    """A side of a sign, in parentheses where it could be misread."""
    text = shown(value, held)
    value = getattr(value, "expression", None) or value
    if not isinstance(value, Expression) or value.function not in SIGNS or text.startswith("_"):
        return text
    fits = value.function == sign and (first or sign in "|&@")
    tight = value.function == "~" and sign in SIGNS
    return text if fits or tight else f"({text})"


def shown(value: Any, held: list[Any] | None = None) -> str:
    """An argument as the text of a call shows it; see :meth:`Expression.text`."""
    if isinstance(value, tuple):
        inside = ", ".join(shown(item, held) for item in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if held is not None and isinstance(value, Expression) and value.is_listed and not value.is_open:
        value = value.build()  # another machine may find other neighbours
    if isinstance(value, Expression):
        return value.text(held)
    if held is not None and (isinstance(value, Tensor | np.ndarray) or hasattr(value, "expression")):
        held.append(value)
        return f"_{len(held) - 1}"
    if isinstance(value, Tensor | np.ndarray):
        return f"<{tuple(value.shape)}>" if value.ndim != 1 or len(value) > 8 else repr(value.tolist())
    if hasattr(value, "expression"):
        return str(value.name)
    return "..." if value is ... else repr(value)
