"""Patterns at the size of their tensors, also under torch.compile."""

from operator import index
from typing import Any

from torch import Tensor

from ..errors import ShapeError
from .graph import AttentionGraph
from .modes import constant_result
from .pattern import Pattern, cache_key


def sized(graph: Any, query: Any, key: Any, past: int = 0) -> Any:
    """The graph of a pattern at the sizes of ``query`` and ``key`` (..., nodes, heads, width).

    ``past`` cached sources come before those of ``key``.
    """
    if not isinstance(graph, Pattern):
        return graph
    for name, x in (("query", query), ("key", key)):
        if not isinstance(x, Tensor) or x.dim() < 3:
            raise ShapeError(f"{name} must be a tensor (..., nodes, heads, width), got {_shape_of(x)}")
    return of_size(graph, query.shape[-3], key.shape[-3] + past)


def of_size(pattern: Pattern, size: int | tuple[int, ...], num_sources: int | None = None) -> AttentionGraph:
    """``pattern(size, num_sources)``, also for callers under torch.compile; a grid's size is a tuple."""
    size = tuple(map(index, size)) if isinstance(size, tuple) else index(size)  # a dynamic size becomes a constant
    num_sources = None if num_sources is None else index(num_sources)
    _make(pattern, size, num_sources)
    return getattr(pattern.made, cache_key(size, num_sources))


@constant_result  # Python that torch.compile does not trace
def _make(pattern: Pattern, size: int | tuple[int, ...], num_sources: int | None) -> None:
    pattern(size, num_sources)


def _shape_of(x: Any) -> str:
    return str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__
