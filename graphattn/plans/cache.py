"""What is derived from a graph lives as long as the graph, and is made once."""

from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

from ..graph import AttentionGraph
from ..graph.modes import made_outside

T = TypeVar("T")

_made: WeakKeyDictionary[AttentionGraph, dict[Hashable, object]] = WeakKeyDictionary()


def cached(graph: AttentionGraph, key: Hashable, make: Callable[[], T]) -> T:
    """``make()``, kept for this graph under ``key``.

    Raises:
        BackendError: If someone wrote into the graph's edges in place since it was built.
    """
    if not graph.is_rule:
        _ = graph.edge_index  # says so if it was written to
    found = _made.setdefault(graph, {})
    if key not in found:
        found[key] = made_outside(make)
    return found[key]  # type: ignore[return-value]
