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

from ...arguments import whole
from ...errors import GraphError
from ..foreign_names import names_checked
from ..graph import AttentionGraph
from ..like import GraphLike
from ..modes import constant_result, keep, not_compiled
from .chosen import CONTENT, Chosen, lacks
from .expression import SIGNS, Expression, NotPlain, Operand, copied, frozen
from .filled import OfPlaces, OfSize, filled, leaves_open, takes_sources
from .places import PLACES, no_places

SIZES = ("num_nodes", "num_targets", "num_sources", "size")
_MOST_CACHED = 8  # graphs of a pattern, with their plans
_DUNDERS = {sign: f"__{make.__name__.strip('_')}__" for sign, make in SIGNS.items()}
P = ParamSpec("P")
Size = int | tuple[int, ...]


def _forward(function: str, swapped: bool = False) -> "Callable[..., Pattern]":
    """A method of :class:`AttentionGraph` for patterns, evaluated once a size is given."""

    @wraps(getattr(AttentionGraph, _DUNDERS.get(function, function)))
    def call(self: "Pattern", *args: Any, **options: Any) -> "Pattern":
        are_graphs = all(isinstance(other, Pattern | AttentionGraph) for other in args)
        if function in SIGNS and not are_graphs:
            return NotImplemented
        if swapped:
            return _called(function, *args, self, **options)
        return _called(function, self, *args, **options)

    return call


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class Pattern(GraphLike, Operand):
    """A graph of any size: call it with a size, or use it where a graph is expected.

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
        shelf: The cached graphs, by :func:`cache_key`.

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

    _remedy = (
        "give it a size: pattern(num_nodes), pattern((height, width)) on a grid, "
        "pattern(pos, batch) of points"
    )
    is_open = True
    _is_fixed = False

    expression: Expression
    on_grid: bool = field(init=False)
    shelf: "Shelf" = field(default_factory=lambda: Shelf(), init=False)

    def __post_init__(self) -> None:
        expected = "a pattern is made by a builder with ... for its size, such as causal(...)"
        if not self.expression.is_open:
            raise GraphError(f"{expected}, got {self.expression}")
        object.__setattr__(self, "on_grid", leaves_open(self.expression, ("size",)))

    @property
    def on_points(self) -> bool:
        """True for a recipe: a builder in it needs positions or faces, not only a size."""
        return leaves_open(self.expression, PLACES)

    @property
    def on_content(self) -> bool:
        """True if a builder in it chooses edges by content; a size makes it a :class:`Chosen`."""
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
        cell: Tensor | np.ndarray | None = None,
        pbc: Any = None,
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
            cell: Lattice vectors (d, d) or (B, d, d) of a cell that repeats, for ``radius`` and
                ``knn``.
            pbc: bool (d,) or (B, d), the axes along which it repeats; all by default.

        Raises:
            GraphError: If the pattern has no graph of this size, or needs positions or faces that
                are not given.
        """
        by_place = {
            "batch": batch,
            "queries": queries,
            "queries_batch": queries_batch,
            "faces": faces,
            "cell": cell,
            "pbc": pbc,
        }
        if getattr(size, "ndim", 0) > 0 or faces is not None:
            return self._of_places(size, num_sources, by_place)
        no_places(by_place)
        if hasattr(size, "pos"):
            raise GraphError(
                f"{self} takes positions, not a shape: pattern(shape.pos, shape.batch)"
            )
        if size is None or getattr(num_sources, "ndim", 0) > 0:
            raise GraphError(f"{self} takes a size, pattern(64), or positions, pattern(pos, batch)")
        shape: Any = size
        if isinstance(size, list | tuple):
            shape = tuple(size)
        sources: Any = num_sources
        key = cache_key(shape, sources)
        graph: AttentionGraph = self.shelf.cached(key, lambda: self._of_size(shape, sources))
        return graph

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
        return getattr(self.shelf, cache_key(size, num_sources))

    def _sized_for(
        self,
        query: Tensor,
        key: Tensor,
        past: int = 0,
        dropped: int = 0,
    ) -> Any:
        """The graph at the sizes of ``query`` and ``key`` (..., nodes, heads, width).

        ``past`` cached sources come before those of ``key``, and ``dropped`` before these.
        """
        return self._sized_for_step(query.shape[-3], key.shape[-3] + past, past, dropped)

    def _sized_for_step(
        self, num_targets: int, num_sources: int, past: int = 0, dropped: int = 0
    ) -> Any:
        """The graph of new targets on cached and new sources.

        A pattern of one size gives the last rows of the graph of all tokens so far.

        Args:
            num_targets: T.
            num_sources: S, the cached sources and the new ones.
            past: Number of cached sources.
            dropped: Number of tokens before these, which are no longer cached.
        """
        if past and self.on_content:
            whole_graph: Any = self.at(num_sources)
            return whole_graph.part(range(past, num_sources), num_sources)
        # made by one size, so that fewer targets than sources are its last rows
        has_rows = not takes_sources(self.expression)
        if not has_rows or past + num_targets != num_sources or past + dropped == 0:
            return self.at(num_targets, num_sources)
        first = index(dropped)
        start = first + index(past)
        end = start + index(num_targets)
        _make_rows(self, first, start, end)
        return getattr(self.shelf, _rows_key(first, start, end))

    def _of_size(self, shape: Any, sources: Any) -> Any:
        if not self.on_content:
            return filled(self.expression, OfSize(shape, sources))
        if isinstance(shape, tuple):
            num_targets = math.prod(shape)
        else:
            num_targets = whole(shape, "size", 0, GraphError)
        num_sources = num_targets
        if sources is not None:
            num_sources = whole(sources, "num_sources", 0, GraphError)
        return Chosen(self.expression, (num_targets, num_sources))

    def _of_places(self, pos: Any, batch: Any, by_place: dict[str, Any]) -> AttentionGraph:
        if batch is not None:
            if by_place["batch"] is not None:
                raise GraphError("batch was given twice, after pos and by keyword; pass it once")
            by_place["batch"] = batch
        if self.on_content:
            raise GraphError(
                f"{self} chooses its edges by queries and keys, not by positions; pass it to a "
                "layer, or give it a size"
            )
        graph: AttentionGraph = filled(self.expression, OfPlaces(pos, **by_place))
        return graph

    __or__ = _forward("|")
    __ror__ = _forward("|", swapped=True)
    __and__ = _forward("&")
    __rand__ = _forward("&", swapped=True)
    __sub__ = _forward("-")
    __rsub__ = _forward("-", swapped=True)
    __matmul__ = _forward("@")
    __rmatmul__ = _forward("@", swapped=True)
    __invert__ = _forward("~")
    reverse = _forward("reverse")
    k_hop = _forward("k_hop")
    with_self_loops = _forward("with_self_loops")
    without_self_loops = _forward("without_self_loops")

    def with_global_tokens(self, number: int = 1) -> "Pattern":
        """The pattern preceded by ``number`` new nodes that read all and are read by all.

        :meth:`AttentionGraph.with_global_tokens` has the details.

        A size counts the new nodes: ``pattern(65)`` is one before 64. The axes of a grid do not:
        ``pattern((8, 8))`` has 65 nodes, too.
        """
        return _called("with_global_tokens", self, whole(number, "number", 0, GraphError))

    def __getattr__(self, name: str) -> Any:
        raise lacks("Pattern", name, f" before it has a size; call it first: pattern(64).{name}")

    def __repr__(self) -> str:
        return f"Pattern({self.name})"


class Shelf:
    """Graphs as attributes: torch.compile sees one added during tracing, unlike a dict's item."""

    def cached(self, key: str, make: Callable[[], Any]) -> Any:
        """``make()``, cached among the last few."""
        return keep(vars(self), key, make, _MOST_CACHED)

    def __reduce__(self) -> Any:
        return type(self), ()


def cache_key(size: Size, num_sources: int | None) -> str:
    """The name of the attribute of a :class:`Shelf` for the graph of a size."""
    return f"sized_{size}_{num_sources}"


def _rows_key(first: int, start: int, end: int) -> str:
    return f"rows_{first}_{start}_{end}"


def _called(function: str, *args: Any, **options: Any) -> Pattern:
    """The pattern of a call; listed graphs among the arguments keep their device."""
    options = {name: _held(value) for name, value in options.items()}
    return Pattern(Expression(function, tuple(map(_held, args)), options))


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


@constant_result
def _make_rows(pattern: Pattern, first: int, start: int, end: int) -> None:
    """The rows ``[start, end)`` on the sources from ``first`` on, of the graph of ``end`` tokens."""

    def rows() -> AttentionGraph:
        return pattern(end).subgraph(targets=range(start, end), sources=range(first, end))

    pattern.shelf.cached(_rows_key(first, start, end), rows)


# --- builders


class Sizable(Protocol[P]):
    """A builder that takes ``...`` for its size, or for its positions."""

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AttentionGraph: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, size: EllipsisType, /, *args: Any, **kwargs: Any) -> Pattern: ...


def sizable(builder: Callable[P, AttentionGraph]) -> Sizable[P]:
    """A decorator: ``...`` for the size or positions of the builder gives a :class:`Pattern`."""
    signature = inspect.signature(builder)
    sizes = [name for name in signature.parameters if name in (*SIZES, *PLACES, *CONTENT)]
    kind = "size"
    if not set(sizes).isdisjoint(PLACES):
        kind = "place"
    for name in sizes:
        if name in CONTENT:
            kind = name.removesuffix("s")
            break

    @wraps(builder)
    def build(*args: Any, **options: Any) -> AttentionGraph | Pattern:
        blanks = sum(x is ... for x in (*args, *options.values()))
        if blanks == 0:
            return builder(*args, **options)
        leading = next((i for i, arg in enumerate(args) if arg is not ...), len(args))
        if blanks > min(leading, len(sizes)):
            raise GraphError(
                f"{builder.__name__}: ... stands for the {kind}s, which come first "
                f"({', '.join(sizes)}); give values to the other arguments"
            )
        arguments = signature.bind(*args, **options).arguments  # a TypeError now, not at a call
        for name, value in arguments.items():
            if signature.parameters[name].annotation is int and value is not ...:
                whole(value, name, None, GraphError)
        return _called(builder.__name__, *args, **options)

    return names_checked(build)  # type: ignore[arg-type, return-value]
