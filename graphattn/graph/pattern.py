"""Patterns: graphs whose size or positions are given later."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from operator import index
from types import EllipsisType
from typing import Any, ParamSpec, Protocol, overload

import numpy as np
from torch import Tensor

from ..arguments import whole
from ..errors import GraphError, ShapeError
from .chosen import CONTENT, Chosen, lacks
from .expression import SIGNS, Expression, NotPlain, Operand, copied, frozen
from .filled import OfPlaces, OfSize, filled, leaves_open
from .foreign_names import names_checked
from .graph import AttentionGraph
from .like import GraphLike
from .modes import constant_result, not_compiled
from .places import PLACES, no_places

SIZES = ("num_nodes", "num_targets", "num_sources", "size")
_KEPT = 8  # cached graphs of a pattern, with their plans
_DUNDERS = {sign: f"__{make.__name__.strip('_')}__" for sign, make in SIGNS.items()}
P = ParamSpec("P")
Size = int | tuple[int, ...]


def _forward(function: str, swapped: bool = False) -> "Callable[..., Pattern]":
    """A method of :class:`AttentionGraph` for patterns, evaluated once a size is given."""

    @wraps(getattr(AttentionGraph, _DUNDERS.get(function, function)))
    def call(self: "Pattern", *args: Any, **options: Any) -> "Pattern":
        if function in SIGNS and not all(
            isinstance(other, Pattern | AttentionGraph) for other in args
        ):
            return NotImplemented
        return _called(function, *((*args, self) if swapped else (self, *args)), **options)

    return call


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class Pattern(GraphLike, Operand):
    """A graph whose number of nodes is left open: call it with a size, or use it where a graph is
    expected.

    Made by a builder with ``...`` for its size, and by the algebra of graphs on patterns:
    ``sliding_window(..., 257, causal=False) | global_tokens(..., (0,))``. A pattern caches the last
    graphs that it made, with their plans.

    A builder of points or meshes with ``...`` for ``pos`` or ``faces`` gives a recipe,
    ``knn(..., k=16)``: a pattern that is called with them, ``recipe(pos, batch)``. Any pattern may
    be called so; the clouds of a batch stay apart: ``full(...)(pos, batch)`` has all pairs within
    each cloud.

    Args:
        expression: The calls that make the graph, with ``...`` for the sizes.

    Attributes:
        on_grid: True if a builder in it takes the axes of a grid.
        made: The cached graphs, by :func:`cache_key`.

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
        >>> import torch
        >>> from graphattn.graphs import knn
        >>> recipe = knn(..., k=1) | global_tokens(..., (0,))
        >>> print(recipe(torch.tensor([[0.0], [3.0], [4.0], [6.0]])).mask().long())
        tensor([[1, 1, 1, 1],
                [1, 0, 1, 0],
                [1, 1, 0, 0],
                [1, 0, 1, 0]])
    """

    remedy = (
        "give it a size: pattern(num_nodes), pattern((height, width)) on a grid, "
        "pattern(pos, batch) of points"
    )
    is_open = True
    is_fixed = False

    expression: Expression
    on_grid: bool = field(init=False)
    made: "Shelf" = field(default_factory=lambda: Shelf(), init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.expression, Expression) or not self.expression.is_open:
            if isinstance(self.expression, Expression):
                got = f"{self.expression}"
            else:
                got = type(self.expression).__name__
            raise GraphError(
                "a pattern is made by a builder with ... for its size, such as causal(...), got "
                f"{got}"
            )
        object.__setattr__(self, "on_grid", leaves_open(self.expression, ("size",)))

    @property
    def on_points(self) -> bool:
        """True for a recipe: a builder in it needs positions or faces, and a size does not
        suffice.
        """
        return leaves_open(self.expression, PLACES)

    @property
    def on_content(self) -> bool:
        """True if a builder in it chooses edges by queries and keys: at a size it is a
        :class:`Chosen`.
        """
        return leaves_open(self.expression, CONTENT)

    def __call__(
        self,
        size: Size | Tensor | np.ndarray | None = None,
        num_sources: int | Tensor | None = None,
        *,
        batch: Tensor | None = None,
        queries: Tensor | np.ndarray | None = None,
        queries_batch: Tensor | None = None,
        faces: Tensor | None = None,
    ) -> AttentionGraph:
        """The graph of that size, or of these positions: ``pattern(64)``, ``recipe(pos, batch)``.

        Args:
            size: Number of nodes or of targets; for a grid its axes, (height, width). Or positions
                (N, d), whose graph is not cached.
            num_sources: Number of sources, if it differs; with positions, ``batch``.
            batch: int64 (N,), the cloud of each position, sorted. No edge joins two clouds.
            queries: Positions (M, d) of the targets, if these are other points.
            queries_batch: int64 (M,), their clouds.
            faces: Faces (F, n) of a mesh, whose vertices have these positions, if any.

        Raises:
            GraphError: If the pattern has no graph of this size, or needs positions or faces that
                are not given.
        """
        by_place = {
            "batch": batch,
            "queries": queries,
            "queries_batch": queries_batch,
            "faces": faces,
        }
        if (isinstance(size, Tensor | np.ndarray) and size.ndim) or faces is not None:
            return self._of_places(size, num_sources, by_place)
        no_places(by_place)
        if size is None or (isinstance(num_sources, Tensor) and num_sources.ndim):
            raise GraphError(f"{self} takes a size, pattern(64), or positions, pattern(pos, batch)")
        # a text and its number have one cache key
        if isinstance(size, str) or isinstance(num_sources, str):
            raise GraphError(f"{self} takes a size, pattern(64), got a text")
        if hasattr(size, "pos"):
            raise GraphError(
                f"{self} takes positions, not a shape: pattern(shape.pos, shape.batch)"
            )
        shape: Any = tuple(size) if isinstance(size, list | tuple) else size
        sources: Any = num_sources
        key = cache_key(shape, sources)
        kept = vars(self.made)
        if key in kept:
            graph: AttentionGraph | None = kept.get(key)  # None if another thread has evicted it
            if graph is not None:
                return graph
        made = self._of_size(shape, sources)
        for oldest in list(kept)[: max(0, len(kept) + 1 - _KEPT)]:
            kept.pop(oldest, None)
        kept[key] = made
        return made

    def at(self, size: Size, num_sources: int | None = None) -> Any:
        """The graph of that size, also for callers under torch.compile; a grid's is a tuple."""
        # a dynamic size becomes a constant
        if isinstance(size, tuple):
            size = tuple(map(index, size))
        else:
            size = index(size)
        if num_sources is not None:
            num_sources = index(num_sources)
        _make(self, size, num_sources)
        return getattr(self.made, cache_key(size, num_sources))

    def at_rows(self, query: Tensor, key: Tensor, past: int = 0) -> Any:
        """The graph at the sizes of ``query`` and ``key`` (..., nodes, heads, width); ``past``
        cached sources come before those of ``key``.
        """
        for name, x in (("query", query), ("key", key)):
            if not isinstance(x, Tensor) or x.dim() < 3:
                raise ShapeError(
                    f"{name} must be a tensor (..., nodes, heads, width), got {_shape_of(x)}"
                )
        S = key.shape[-3] + past
        if past and self.on_content:
            whole_graph: Any = self.at(S)
            return whole_graph.part(range(past, S), S)
        return self.at(query.shape[-3], S)

    def _of_size(self, shape: Any, sources: Any) -> Any:
        if not self.on_content:
            return filled(self.expression, OfSize(shape, sources))
        if isinstance(shape, tuple):
            size = math.prod(shape)
        else:
            size = whole(shape, "size", 0, GraphError)
        return Chosen(
            self.expression,
            (size, size if sources is None else whole(sources, "num_sources", 0, GraphError)),
        )

    def _of_places(self, pos: Any, batch: Any, by_place: dict[str, Any]) -> AttentionGraph:
        if batch is not None and by_place["batch"] is not None:
            raise GraphError("batch was given twice, after pos and by keyword; pass it once")
        if self.on_content:
            raise GraphError(
                f"{self} waits for queries and keys, which positions are not; pass it to a layer, "
                "or a size"
            )
        if batch is not None:
            by_place["batch"] = batch
        graph: AttentionGraph = filled(self.expression, OfPlaces(pos, **by_place))
        return graph

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "made": Shelf()}

    __or__, __ror__ = _forward("|"), _forward("|", swapped=True)
    __and__, __rand__ = _forward("&"), _forward("&", swapped=True)
    __sub__, __rsub__ = _forward("-"), _forward("-", swapped=True)
    __matmul__, __rmatmul__ = _forward("@"), _forward("@", swapped=True)
    __invert__, reverse, k_hop = _forward("~"), _forward("reverse"), _forward("k_hop")
    with_self_loops, without_self_loops = (
        _forward("with_self_loops"),
        _forward("without_self_loops"),
    )

    def with_global_tokens(self, number: int = 1) -> "Pattern":
        """The pattern preceded by ``number`` new nodes that read all and are read by all; see
        :class:`AttentionGraph`.

        A size counts the new nodes: ``pattern(65)`` is one before 64. The axes of a grid do not:
        ``pattern((8, 8))`` has 65 nodes, too.
        """
        return _called("with_global_tokens", self, whole(number, "number", 0, GraphError))

    def __getattr__(self, name: str) -> Any:
        raise lacks("Pattern", name, f" before it has a size; call it first: pattern(64).{name}")

    def __repr__(self) -> str:
        return f"Pattern({self.name})"


class Shelf:
    """Graphs as attributes: torch.compile sees one that is added during tracing; a dict would be
    stale.
    """


def cache_key(size: Size, num_sources: int | None) -> str:
    """The name of the attribute of a :class:`Shelf` for the graph of a size."""
    return f"sized_{size}_{num_sources}"


def _called(function: str, *args: Any, **options: Any) -> Pattern:
    """The pattern of a call; listed graphs among the arguments stay as they are, on their
    device.
    """
    return Pattern(
        Expression(
            function, tuple(map(_held, args)), {name: _held(x) for name, x in options.items()}
        )
    )


def _held(value: Any) -> Any:
    if isinstance(value, AttentionGraph):
        return value
    try:
        return frozen(copied(value))
    except NotPlain:
        return value


@constant_result  # Python that torch.compile does not trace
def _make(pattern: Pattern, size: Size, num_sources: int | None) -> None:
    pattern(size, num_sources)


def _shape_of(x: Any) -> str:
    if isinstance(x, Tensor):
        return str(tuple(x.shape))
    return type(x).__name__


# --- builders


class Sizable(Protocol[P]):
    """A builder that takes ``...`` for its size, or for its positions."""

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AttentionGraph: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, size: EllipsisType, /, *args: Any, **kwargs: Any) -> Pattern: ...


def sizable(builder: Callable[P, AttentionGraph]) -> Sizable[P]:
    """A decorator: the builder returns a :class:`Pattern` if ``...`` stands for its size, or for
    its positions.
    """
    signature = inspect.signature(builder)
    sizes = [name for name in signature.parameters if name in (*SIZES, *PLACES, *CONTENT)]
    kind = next(
        (name[:-1] for name in sizes if name in CONTENT),
        "size" if set(sizes).isdisjoint(PLACES) else "place",
    )

    @wraps(builder)
    def build(*args: Any, **options: Any) -> AttentionGraph | Pattern:
        blanks = next((i for i, arg in enumerate(args) if arg is not ...), len(args))
        if ... in [x for x in (*args[blanks:], *options.values()) if isinstance(x, EllipsisType)]:
            raise GraphError(
                f"{builder.__name__}: ... stands for the {kind}s, which come first "
                f"({', '.join(sizes)}); "
                "give values to the other arguments"
            )
        if blanks == 0:
            return builder(*args, **options)
        if blanks > len(sizes):
            raise GraphError(
                f"{builder.__name__} has {len(sizes)} {kind} ({', '.join(sizes)}), got {blanks} "
                "times ..."
            )
        given = signature.bind(*args, **options).arguments  # a TypeError now, not when it is used
        for name, value in given.items():
            if signature.parameters[name].annotation is int and value is not ...:
                whole(value, name, None, GraphError)
        return _called(builder.__name__, *args, **options)

    return names_checked(build)  # type: ignore[arg-type, return-value]
