"""Patterns: graphs whose size comes later, from the tensors that they are used on."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from types import EllipsisType
from typing import Any, ParamSpec, Protocol, overload

from ..arguments import whole
from ..errors import GraphError
from .expression import SIGNS, Expression, NotPlain, built, copied, expression_of, frozen, function_of
from .graph import AttentionGraph
from .modes import not_compiled
from .pickles import Immutable

SIZES = ("num_nodes", "num_targets", "num_sources", "size")
_KEPT = 8  # sized graphs that a pattern remembers, with their plans
_DUNDERS = {sign: f"__{make.__name__.strip('_')}__" for sign, make in SIGNS.items()}
P = ParamSpec("P")
Size = int | tuple[int, ...]


def _forward(function: str, swapped: bool = False) -> "Callable[..., Pattern]":
    """A member of :class:`AttentionGraph` for patterns: the call waits for a size."""

    @wraps(getattr(AttentionGraph, _DUNDERS.get(function, function)))
    def call(self: "Pattern", *args: Any, **options: Any) -> "Pattern":
        if function in SIGNS and not all(isinstance(other, Pattern | AttentionGraph) for other in args):
            return NotImplemented
        return _called(function, *((*args, self) if swapped else (self, *args)), **options)

    return call


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class Pattern(Immutable):
    """A graph whose number of nodes is left open: call it with a size, or use it where a graph is expected.

    Made by a builder with ``...`` for its size, and by the algebra of graphs on patterns:
    ``sliding_window(..., 257, causal=False) | global_tokens(..., (0,))``. A pattern remembers the last graphs that it
    made, so that their plans are made once.

    Args:
        expression: The calls that make the graph, with ``...`` for the sizes.

    Attributes:
        on_grid: Whether a builder in it takes the axes of a grid.
        made: The last graphs made; :func:`cache_key` names them.

    Example:
        >>> from graphattn.graphs import global_tokens, sliding_window
        >>> longformer = sliding_window(..., 3, causal=False) | global_tokens(..., (0,))
        >>> longformer
        Pattern(sliding_window(..., 3, causal=False) | global_tokens(..., (0,)))
        >>> print(longformer(5).mask().long())
        tensor([[1, 1, 1, 1, 1],
                [1, 1, 1, 0, 0],
                [1, 1, 1, 1, 0],
                [1, 0, 1, 1, 1],
                [1, 0, 0, 1, 1]])
    """

    expression: Expression
    on_grid: bool = field(init=False)
    made: "Shelf" = field(default_factory=lambda: Shelf(), init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.expression, Expression) or not self.expression.is_open:
            got = f"{self.expression}" if isinstance(self.expression, Expression) else type(self.expression).__name__
            raise GraphError(f"a pattern is made by a builder with ... for its size, such as causal(...), got {got}")
        object.__setattr__(self, "on_grid", _lies_on_grid(self.expression))

    @property
    def name(self) -> str:
        """What ``repr`` shows."""
        return str(self.expression)

    def __call__(self, size: Size, num_sources: int | None = None) -> AttentionGraph:
        """The graph of that size.

        Args:
            size: Number of nodes or of targets; for a grid its axes, (height, width).
            num_sources: Number of sources, where it is another one.

        Raises:
            GraphError: If the pattern does not come in this size.
        """
        shape = tuple(size) if isinstance(size, list | tuple) else size
        key = cache_key(shape, num_sources)
        kept = vars(self.made)
        if key in kept:
            graph: AttentionGraph | None = kept.get(key)  # None if another thread dropped it since
            if graph is not None:
                return graph
        made: AttentionGraph = _of_size(self.expression, shape, num_sources)
        for oldest in list(kept)[: max(0, len(kept) + 1 - _KEPT)]:
            kept.pop(oldest, None)
        kept[key] = made
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "made": Shelf()}

    __or__, __ror__ = _forward("|"), _forward("|", swapped=True)
    __and__, __rand__ = _forward("&"), _forward("&", swapped=True)
    __sub__, __rsub__ = _forward("-"), _forward("-", swapped=True)
    __matmul__, __rmatmul__ = _forward("@"), _forward("@", swapped=True)
    __invert__, reverse, k_hop = _forward("~"), _forward("reverse"), _forward("k_hop")
    with_self_loops, without_self_loops = _forward("with_self_loops"), _forward("without_self_loops")

    def with_global_tokens(self, number: int = 1) -> "Pattern":
        """The pattern behind ``number`` new nodes that read all and are read by all; see :class:`AttentionGraph`.

        The new nodes are among those that its size counts, ``pattern(65)`` is one before 64; the axes of a grid are of
        the others, ``pattern((8, 8))`` has 65 nodes, too.
        """
        return _called("with_global_tokens", self, whole(number, "number", 0, GraphError))

    def __repr__(self) -> str:
        return f"Pattern({self.name})"


class Shelf:
    """Graphs as attributes: torch.compile sees one that was added while it follows a call; a dict would be stale."""


def cache_key(size: Size, num_sources: int | None) -> str:
    """The attribute of a :class:`Shelf` for the graph of a size."""
    return f"sized_{size}_{num_sources}"


def _called(function: str, *args: Any, **options: Any) -> Pattern:
    """The pattern of a call; graphs among the arguments stay where they list their edges, and on their device."""
    return Pattern(Expression(function, tuple(map(_held, args)), {name: _held(x) for name, x in options.items()}))


def _held(value: Any) -> Any:
    if isinstance(value, AttentionGraph):
        return expression_of(value) if value.is_rule else value
    try:
        return frozen(copied(value))
    except NotPlain:
        return value


def _lies_on_grid(call: Expression) -> bool:
    if call.args and call.args[0] is ...:
        return next(iter(inspect.signature(function_of(call.function)).parameters)) == "size"
    return any(_lies_on_grid(child) for child in call.children() if isinstance(child, Expression))


def _of_size(part: Any, size: Size, num_sources: int | None) -> Any:
    """An argument of a pattern in a size: graphs of the patterns, everything else as it is."""
    if not isinstance(part, Expression) or not part.is_open:
        return built(part)
    if part.args[0] is ...:
        return _builder_of_size(part, size, num_sources)
    if part.function == "with_global_tokens" and isinstance(size, int):
        number = part.args[1]
        if size < number or num_sources not in (None, size):
            sides = size if num_sources is None else (size, num_sources)
            raise GraphError(f"{part} has at least {number} nodes that read all, got size {sides}")
        size, num_sources = size - number, None
    args = [_of_size(arg, size, num_sources) for arg in part.args]
    return function_of(part.function)(*args, **_options(part))


def _options(call: Expression) -> dict[str, Any]:
    return {name: built(value) for name, value in call.options.items()}


def _builder_of_size(call: Expression, size: Size, num_sources: int | None) -> AttentionGraph:
    blanks = sum(arg is ... for arg in call.args)
    rest, options = map(built, call.args[blanks:]), _options(call)
    on_grid, build = _lies_on_grid(call), function_of(call.function)
    if on_grid and isinstance(size, int):
        raise GraphError(
            f"{call} lies on a grid, and {size} nodes do not tell its axes; call the pattern with them first: "
            "pattern((height, width))"
        )
    if isinstance(size, tuple) and not size:
        raise GraphError(f"{call}: size must name at least one axis, such as (height, width), got ()")
    if not on_grid and isinstance(size, tuple):
        size = math.prod(whole(length, "size", 0, GraphError) for length in size)
    if blanks == 2:
        return build(size, size if num_sources is None else num_sources, *rest, **options)
    made: AttentionGraph = build(size, *rest, **options)
    if num_sources not in (None, made.num_sources):
        raise GraphError(f"{call} of {size} targets has {made.num_sources} sources, but {num_sources} are wanted")
    return made


class Sizable(Protocol[P]):
    """A builder that may be called with ``...`` for its size."""

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AttentionGraph: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, size: EllipsisType, /, *args: Any, **kwargs: Any) -> Pattern: ...


def sizable(builder: Callable[P, AttentionGraph]) -> Sizable[P]:
    """The builder, which gives a :class:`Pattern` where ``...`` stands for its size."""
    signature = inspect.signature(builder)
    sizes = [name for name in signature.parameters if name in SIZES]

    @wraps(builder)
    def build(*args: Any, **options: Any) -> AttentionGraph | Pattern:
        blanks = next((i for i, arg in enumerate(args) if arg is not ...), len(args))
        if ... in [x for x in (*args[blanks:], *options.values()) if isinstance(x, EllipsisType)]:
            raise GraphError(
                f"{builder.__name__}: ... stands for the sizes, which come first ({', '.join(sizes)}); "
                "other arguments have values"
            )
        if blanks == 0:
            return builder(*args, **options)
        if blanks > len(sizes):
            raise GraphError(f"{builder.__name__} has {len(sizes)} size ({', '.join(sizes)}), got {blanks} times ...")
        signature.bind(*args, **options)  # a TypeError now, not when it is used
        return _called(builder.__name__, *args, **options)

    return build  # type: ignore[return-value]
