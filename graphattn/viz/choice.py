"""Choice of the edges and targets to draw, where there are too many for all."""

from collections.abc import Iterable

import numpy as np
import torch

from ..arguments import check_range, integers, several, shown
from ..errors import GraphError
from ..graph.graph import AttentionGraph
from ..graph.runs import expand
from .colours import Array, Index
from .style import HIGHLIGHTS

MOST_EDGES = 600  # drawn all at once
MOST_SOURCES = 160  # drawn for one target
_COMMON = 0.1  # part of a target's sources that others may read, too: a global token
_FAR_MORE = 4  # times what most targets read: a hub
_MOST_RUNS = 1 << 24
# Where targets are looked for, in the unit square: well inside first, then near the corners.
_ANCHORS = np.array(
    [
        [0.72, 0.42],
        [0.30, 0.34],
        [0.46, 0.76],
        [0.08, 0.08],
        [0.92, 0.92],
        [0.92, 0.08],
        [0.08, 0.92],
    ]
)


def sources_of(graph: AttentionGraph, target: int) -> Index:
    """The neighbourhood of one target, ascending, each source once."""
    return expand(graph.edges.rows(torch.tensor([target])))[1].numpy()


def thinned(sources: Index, most: int = MOST_SOURCES) -> Index:
    """At most ``most`` of the sources, evenly spread, the first and the last among them."""
    if len(sources) <= most:
        return sources
    return sources[np.linspace(0, len(sources) - 1, most).round().astype(np.int64)]


def can_walk(graph: AttentionGraph) -> bool:
    """True if going through all edges is quick."""
    return graph.edges.num_runs <= _MOST_RUNS


def all_edges(graph: AttentionGraph, most: int = MOST_EDGES) -> tuple[Index, Index] | None:
    """``(source, target)`` of every edge, each once; ``None`` if there are more than ``most``."""
    if not can_walk(graph) or graph.num_edges > most:
        return None
    target, source = graph.edges.pairs()
    pairs = np.unique(np.stack((target.cpu().numpy(), source.cpu().numpy()), 1), axis=0)
    return pairs[:, 1], pairs[:, 0]


def checked_targets(
    graph: AttentionGraph,
    highlight: int | Iterable[int],
    argument: str = "highlight",
    most: int | None = len(HIGHLIGHTS),
) -> list[int]:
    """The caller's targets as a list, each once.

    Raises:
        GraphIndexError: If there is no such target.
        GraphError: If there are more than colours that differ.
    """
    one = isinstance(highlight, int) or getattr(highlight, "ndim", 1) == 0
    if one:
        listed = [highlight]
    else:
        listed = several(highlight, argument, "must be target numbers", GraphError)
    numbers = integers(listed, argument, "of targets", GraphError).flatten()
    if most == 1 and numbers.numel() != 1:
        raise GraphError(f"{argument} must be one target, got {shown(highlight)}")
    targets = list(dict.fromkeys(numbers.tolist()))
    check_range(numbers, argument, graph.num_targets, ", the targets")
    if most is not None and len(targets) > most:
        raise GraphError(
            f"{argument} takes at most {most} targets (colours that differ), got {len(targets)}"
        )
    return targets


def spread_targets(graph: AttentionGraph, where: Array) -> list[int]:
    """Up to three targets with edges, hardly any common sources, near fixed points of a picture.

    The last of them is one that reads most sources, where others read far fewer.

    Args:
        graph: Any graph.
        where: (T, 1), (T, 2) or (T, 3), the targets' positions; the first two axes count.
    """
    if can_walk(graph):
        able = graph.in_degree.cpu().numpy() > 0
    else:
        able = np.ones(graph.num_targets, dtype=bool)
    candidates = np.flatnonzero(able)
    if candidates.size == 0:
        return []
    flat = where[candidates, :2]
    span = flat.max(0) - flat.min(0)
    flat = (flat - flat.min(0)) / np.where(span > 0, span, 1.0)
    chosen: list[int] = []
    covered: Index = np.empty(0, dtype=np.int64)
    for anchor in _ANCHORS:
        target = int(candidates[np.square(flat - anchor[: flat.shape[1]]).sum(1).argmin()])
        sources = sources_of(graph, target)
        if len(chosen) < 3 and target not in chosen and np.isin(sources, covered).mean() <= _COMMON:
            chosen.append(target)
            covered = np.concatenate((covered, sources))
    hub = _hub(graph)
    if hub is None or hub in chosen:
        return chosen
    return [*chosen[:2], hub]


def _hub(graph: AttentionGraph) -> int | None:
    """The target that reads most, if that is far more than others do: a global token."""
    if not can_walk(graph):
        return None
    degree = graph.in_degree.cpu().numpy()
    hub = int(degree.argmax())
    if degree[hub] > max(0.5 * graph.num_sources, _FAR_MORE * np.median(degree)):
        return hub
    return None
