"""Known mistakes about one part of an expression: documents, windows, global tokens; the other parts stay."""

from collections.abc import Callable
from dataclasses import replace

from ..graph import AttentionGraph
from ..graph.algebra import Complement, Intersection, Union
from ..graph.edge_set import EdgeSet
from ..graph.rules import Band, Partition, Rectangle

Change = Callable[[EdgeSet], EdgeSet | None]
Width = Callable[[int, int], tuple[int, int] | None]
"""From the sources that a window reads ahead and behind, its own node not counted, to those that a mistake reads."""


def changed(graph: AttentionGraph, change: Change) -> AttentionGraph | None:
    """The graph with every part of its unions and intersections changed that can be; ``None`` if none can."""
    edges = _changed(graph.edges, change)
    return None if edges is None else replace(graph, edges=edges)


def _changed(edges: EdgeSet, change: Change) -> EdgeSet | None:
    if not isinstance(edges, Union | Intersection):
        return change(edges)
    parts = [_changed(part, change) for part in (edges.a, edges.b)]
    if parts == [None, None]:
        return None
    a, b = (part if new is None else new for part, new in zip((edges.a, edges.b), parts, strict=True))
    return type(edges)(a, b)


def documents_ignored(graph: AttentionGraph) -> AttentionGraph | None:
    def change(part: EdgeSet) -> EdgeSet | None:
        return Band(part.num_targets, part.num_sources) if isinstance(part, Partition) else None

    return changed(graph, change)


def half_global(reading: bool) -> Callable[[AttentionGraph], AttentionGraph | None]:
    """Global tokens that read all and are read by nobody, or the other way round."""

    def change(part: EdgeSet) -> EdgeSet | None:
        rest = part.base if isinstance(part, Complement) else None
        if not isinstance(rest, Rectangle) or rest.targets != rest.sources:
            return None
        ends = [0, *(end for interval in rest.targets for end in interval), part.num_targets]
        tokens = tuple((a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b)
        every = ((0, part.num_targets),)
        if not tokens:
            return None
        T, S = part.num_targets, part.num_sources
        return Rectangle(T, S, tokens, every) if reading else Rectangle(T, S, every, tokens)

    return lambda graph: changed(graph, change)


def window_of(part: EdgeSet, width: Width) -> Band | None:
    """A window of another width; ``None`` where the part is no window that ends within the sequence."""
    if not isinstance(part, Band) or part.num_targets != part.num_sources or (part.step, part.offset) != (1, 0):
        return None
    size, ahead, behind = part.num_targets, -part.lo, part.hi
    if not 0 <= ahead < size - 1 or not 0 <= behind < size - 1:
        return None
    new = width(ahead, behind)
    return None if new is None else Band(size, size, -new[0], new[1])


def per_side(ahead: int, behind: int) -> tuple[int, int] | None:
    window = ahead + behind + 1
    return (window, window) if ahead == behind > 0 else None


def twice(ahead: int, behind: int) -> tuple[int, int] | None:
    return (2 * ahead, 2 * behind) if ahead == behind > 0 else (0, 2 * behind + 1) if ahead == 0 else None


def half(ahead: int, behind: int) -> tuple[int, int] | None:
    if ahead == behind > 0:
        return ahead // 2, behind // 2
    return (0, (behind + 1) // 2 - 1) if ahead == 0 < behind else None


def all_behind(ahead: int, behind: int) -> tuple[int, int] | None:
    return (0, ahead + behind) if ahead == behind > 0 else None


def around(ahead: int, behind: int) -> tuple[int, int] | None:
    return (behind // 2, behind // 2) if ahead == 0 < behind and behind % 2 == 0 else None


def without_future(ahead: int, behind: int) -> tuple[int, int] | None:
    return (0, behind) if ahead == behind > 0 else None
