"""Patterns: graphs whose size comes later, from the tensors that they are used on."""

import inspect
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from types import EllipsisType
from typing import Any, ParamSpec, Protocol, overload

from ..errors import GraphError
from .graph import AttentionGraph, wrapped
from .listed import check_size
from .modes import not_compiled

_SIZES = ("num_nodes", "num_targets", "num_sources", "size")
_KEPT = 8  # sized graphs that a pattern remembers, with their plans
SIGNS: dict[str, Callable[..., AttentionGraph]] = {
    "|": operator.or_,
    "&": operator.and_,
    "-": operator.sub,
    "@": operator.matmul,
}
P = ParamSpec("P")


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class Pattern:
    """A graph whose number of nodes is left open: call it with a size, or use it where a graph is expected.

    Made by a builder with ``...`` for its size, and by the algebra of graphs on patterns:
    ``sliding_window(..., 257, causal=False) | global_tokens(..., (0,))``. A pattern remembers the last graphs that it
    made, so that their plans are made once.

    Args:
        name: What ``repr`` shows.
        make: The graph of these parts.
        parts: Patterns or graphs that ``make`` joins; none for a builder, which is handed the size.
        num_sizes: How many sizes a builder takes: 2 for targets and sources.
        on_grid: Whether a builder takes the axes of a grid.
        num_added: How many of the nodes ``make`` adds to those of its part; the axes of a grid are the part's alone.

    Attributes:
        made: The last graphs made; :func:`slot` names them.

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

    name: str
    make: Callable[..., AttentionGraph]
    parts: "tuple[Pattern | AttentionGraph, ...]" = ()
    num_sizes: int = 1
    on_grid: bool = False
    num_added: int = 0
    made: "Shelf" = field(default_factory=lambda: Shelf(), init=False)

    def __call__(self, size: int | tuple[int, ...], num_sources: int | None = None) -> AttentionGraph:
        """The graph of that size.

        Args:
            size: Number of nodes or of targets; for a grid its axes, (height, width).
            num_sources: Number of sources, where it is another one.

        Raises:
            GraphError: If the pattern does not come in this size.
        """
        shape = tuple(size) if isinstance(size, list | tuple) else size
        key = slot(shape, num_sources)
        kept = vars(self.made)
        if key in kept:
            found: AttentionGraph | None = kept.get(key)  # None if another thread dropped it since
            if found is not None:
                return found
        made = self._sized(shape, num_sources)
        for oldest in list(kept)[: max(0, len(kept) + 1 - _KEPT)]:
            kept.pop(oldest, None)
        kept[key] = made
        return made

    def _sized(self, size: int | tuple[int, ...], num_sources: int | None) -> AttentionGraph:
        if self.num_added and isinstance(size, int):
            if size < self.num_added or num_sources not in (None, size):
                sides = size if num_sources is None else (size, num_sources)
                raise GraphError(f"{self.name} has at least {self.num_added} nodes that read all, got size {sides}")
            size, num_sources = size - self.num_added, None
        if self.parts:
            return self.make(*(p(size, num_sources) if isinstance(p, Pattern) else p for p in self.parts))
        if self.on_grid and isinstance(size, int):
            raise GraphError(
                f"{self.name} lies on a grid, and {size} nodes do not tell its axes; call the pattern with them first: "
                "pattern((height, width))"
            )
        if isinstance(size, tuple) and not size:
            raise GraphError(f"{self.name}: size must name at least one axis, such as (height, width), got ()")
        if not self.on_grid and isinstance(size, tuple):
            size = math.prod(size)
        if self.num_sizes == 2:
            return self.make(size, size if num_sources is None else num_sources)
        made = self.make(size)
        if num_sources not in (None, made.num_sources):
            raise GraphError(
                f"{self.name} of {size} targets has {made.num_sources} sources, but {num_sources} are wanted"
            )
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "made": Shelf()}

    def __deepcopy__(self, memo: Any) -> "Pattern":
        return self  # immutable

    def _join(self, other: object, sign: str, swapped: bool = False) -> "Pattern":
        if not isinstance(other, Pattern | AttentionGraph):
            return NotImplemented
        parts = (other, self) if swapped else (self, other)
        name = f" {sign} ".join(wrapped(part, sign) for part in parts)
        return Pattern(name, SIGNS[sign], parts)

    def __or__(self, other: object) -> "Pattern":
        """Edges in either."""
        return self._join(other, "|")

    def __and__(self, other: object) -> "Pattern":
        """Edges in both."""
        return self._join(other, "&")

    def __sub__(self, other: object) -> "Pattern":
        """Edges in this one that the other lacks."""
        return self._join(other, "-")

    def __matmul__(self, other: object) -> "Pattern":
        """Reach in two layers, the other one first."""
        return self._join(other, "@")

    def __ror__(self, other: object) -> "Pattern":
        return self._join(other, "|", swapped=True)

    def __rand__(self, other: object) -> "Pattern":
        return self._join(other, "&", swapped=True)

    def __rsub__(self, other: object) -> "Pattern":
        return self._join(other, "-", swapped=True)

    def __rmatmul__(self, other: object) -> "Pattern":
        return self._join(other, "@", swapped=True)

    def __invert__(self) -> "Pattern":
        """The pairs that are not edges."""
        return Pattern(f"~{wrapped(self, '~')}", operator.invert, (self,))

    def reverse(self) -> "Pattern":
        """Every edge turned round."""
        return Pattern(f"reverse({self.name})", AttentionGraph.reverse, (self,))

    def k_hop(self, k: int) -> "Pattern":
        """Reach along at most ``k`` edges; see :meth:`AttentionGraph.k_hop`."""
        return Pattern(f"{k}-hop({self.name})", partial(AttentionGraph.k_hop, k=k), (self,))

    def with_self_loops(self) -> "Pattern":
        """The missing self-loops added."""
        return Pattern(f"{wrapped(self, '|')} | self-loops", AttentionGraph.with_self_loops, (self,))

    def without_self_loops(self) -> "Pattern":
        """The self-loops dropped."""
        return Pattern(f"{wrapped(self, '-')} - self-loops", AttentionGraph.without_self_loops, (self,))

    def with_global_tokens(self, number: int = 1) -> "Pattern":
        """The pattern behind ``number`` new nodes that read all and are read by all; see :class:`AttentionGraph`.

        The new nodes are among those that its size counts, ``pattern(65)`` is one before 64; the axes of a grid are of
        the others, ``pattern((8, 8))`` has 65 nodes, too.
        """
        k = check_size(number, "number")
        name = f"{wrapped(self, '')}.with_global_tokens({number})"
        return Pattern(name, partial(AttentionGraph.with_global_tokens, number=k), (self,), num_added=k)

    def __repr__(self) -> str:
        return f"Pattern({self.name})"


class Shelf:
    """Graphs as attributes: torch.compile sees one that was added while it follows a call; a dict would be stale."""


def slot(size: int | tuple[int, ...], num_sources: int | None) -> str:
    """The attribute of a :class:`Shelf` for the graph of a size."""
    return f"sized_{size}_{num_sources}"


@dataclass(frozen=True)
class _Builder:
    """A builder and its arguments after the size."""

    builder: Callable[..., AttentionGraph]
    args: tuple[Any, ...]
    options: dict[str, Any]

    def __call__(self, *sizes: Any) -> AttentionGraph:
        return self.builder(*sizes, *self.args, **self.options)


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
    sizes = [name for name in signature.parameters if name in _SIZES]

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
        shown = ["..."] * blanks + [repr(arg) for arg in args[blanks:]] + [f"{k}={v!r}" for k, v in options.items()]
        make = _Builder(builder, args[blanks:], options)
        return Pattern(f"{builder.__name__}({', '.join(shown)})", make, (), blanks, sizes[0] == "size")

    return build  # type: ignore[return-value]
