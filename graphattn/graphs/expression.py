"""Expressions of builders as text, ``causal(64) | full(64)``; names are looked up, not executed."""

import ast
import difflib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, get_args

from ..errors import GraphAttnError, GraphError, OptionError
from ..graph import AttentionGraph, Pattern
from ..graph.deferred.expression import METHODS, SIGNS, builders
from ..graph.deferred.text import Reader, short
from ..missing import renamed
from .catalogue import inputs, zoo
from .points.sampling.farthest import farthest_points
from .points.voxels import voxel_ids

_SIZES = ("N", "T", "S")  # as the guide writes sizes, which stay open


class Deferred(ABC):
    """A value by argument, such as a file: positions for ``pos``, triangles for ``faces``."""

    @abstractmethod
    def graph(self) -> AttentionGraph | Pattern:
        """The value as a graph."""

    @abstractmethod
    def arguments(self, name: str, function: Callable[..., Any]) -> dict[str, Any]:
        """The value as the argument ``name``, with other arguments that follow from it, by name."""


def from_expression(
    text: str, functions: Mapping[str, Callable[..., Any]] | None = None
) -> AttentionGraph | Pattern:
    """The graph of an expression of builders; a pattern if ``...`` stands for its size.

    Calls of builders, ``| & - @ ~``, and the methods reverse, k_hop, with_self_loops,
    without_self_loops, with_global_tokens, subgraph and relabel; arguments are numbers, ``inf``,
    strings, tuples and lists of them.

    Args:
        text: The expression.
        functions: Other functions that may be called, by name; they may return a :class:`Deferred`.

    Raises:
        OptionError: If the text is not such an expression; the message quotes the part.
        GraphAttnError: If a builder refuses its arguments.

    Example:
        >>> from_expression("sliding_window(5, 3, causal=False) | global_tokens(5, (0,))").num_edges
        19
    """
    by_name = callables()
    if functions is not None:
        by_name = by_name | dict(functions)
    value = _settled(_Builder(text, by_name).read())
    if not isinstance(value, AttentionGraph | Pattern):
        raise OptionError(f"{short(text)!r} must give a graph, got {short(repr(value))}")
    return value


def callables() -> dict[str, Callable[..., Any]]:
    """The functions that an expression may call: builders, and two that choose points for them."""
    from .. import graphs

    public = {name: getattr(graphs, name) for name in graphs.__all__ if name.islower()}
    del public["zoo"]
    public |= {"farthest_points": farthest_points, "voxel_ids": voxel_ids}
    named = graphs.BUILDERS | {name: value for name, value in public.items() if callable(value)}
    for name, function in builders().items():
        named.setdefault(name, function)
    return named


def signature_of(function: Callable[..., Any]) -> str:
    """The signature of a function as its documentation shows it.

    Example:
        >>> from graphattn.graphs import knn
        >>> signature_of(knn).partition(", *")[0]
        '(pos: Tensor, k: int'
    """
    text = str(inspect.signature(function).replace(return_annotation=inspect.Signature.empty))
    text = text.replace("torch.Tensor | numpy.ndarray", "Tensor").replace("collections.abc.", "")
    return text.replace("graphattn.graph.graph.", "").replace("torch.", "")


class _Builder(Reader):
    """A reader that builds the graphs of an expression."""

    def __init__(self, text: str, functions: Mapping[str, Callable[..., Any]]) -> None:
        names = {name: getattr(inputs, name) for name in inputs.__all__}
        super().__init__(text, {**dict.fromkeys(_SIZES, ...), **names})
        self.functions = functions

    def call(
        self,
        function: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
        node: ast.AST,
    ) -> Any:
        if function in METHODS:
            owner = _settled(args[0])
            if not isinstance(owner, AttentionGraph | Pattern) or not hasattr(owner, function):
                raise OptionError(f"{self.source(node)}: only a graph has {function}")
            return self._called(getattr(owner, function), function, args[1:], options, node)
        if function in SIGNS:
            return self._called(SIGNS[function], function, tuple(map(_settled, args)), {}, node)
        if function not in self.functions:
            hint = renamed(function) or f"; {_meant(function, self.functions)}"
            raise OptionError(f"no builder is called {short(function)}{hint}")
        return self._called(self.functions[function], function, args, options, node)

    def _called(
        self,
        function: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
        node: ast.AST,
    ) -> Any:
        try:
            bound = inspect.signature(function).bind(*args, **options)
        except TypeError as error:
            raise GraphError(
                f"{self.source(node)}: {error}; the call is {name}{signature_of(function)}"
            ) from None
        try:
            if any(isinstance(value, Deferred) for value in bound.arguments.values()):
                _settle(bound, function)
                return function(*bound.args, **bound.kwargs)
            return function(*map(_settled, args), **options)  # as it was written
        except GraphAttnError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise GraphError(f"{self.source(node)}: {error}") from error


def _meant(name: str, by_name: Mapping[str, Callable[..., Any]]) -> str:
    """A hint for an unknown ``name``: a pattern of that name in papers, or a similar builder."""
    if name in zoo():
        return f"the zoo's {zoo()[name].name} is {zoo()[name].code}"
    close = [builder for builder in by_name if name in builder]
    if not close:
        close = difflib.get_close_matches(name, by_name, 1)
    if close:
        return f"did you mean {close[0]}{signature_of(by_name[close[0]])}?"
    return "graphattn builders lists them all"


def _settle(bound: inspect.BoundArguments, function: Callable[..., Any]) -> None:
    """Replace deferred values by their values for this function."""
    for name, value in dict(bound.arguments).items():
        hint = bound.signature.parameters[name].annotation
        if isinstance(value, Deferred) and AttentionGraph not in (hint, *get_args(hint)):
            others = {key: other for key, other in bound.arguments.items() if key != name}
            bound.arguments.update({**value.arguments(name, function), **others})
        else:
            bound.arguments[name] = _settled(value)


def _settled(value: Any) -> Any:
    """A value with deferred values as graphs."""
    if isinstance(value, Deferred):
        return value.graph()
    if isinstance(value, tuple):
        return tuple(map(_settled, value))
    return value
