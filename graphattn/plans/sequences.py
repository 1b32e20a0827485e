"""Consecutive sequences that read themselves within a window: documents, decoders, chains."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.runs import nonempty
from .cache import on_devices

MOST = 1 << 26  # limit of the intervals of sources that are examined


class Sequences(NamedTuple):
    """Node ``t`` reads its sequence from ``t - before`` to ``t + after``; -1 means no bound."""

    ends: Tensor  # int32 (sequences + 1,): the start of each, and T
    longest: int
    before: int
    after: int


@on_devices
def sequences(graph: AttentionGraph) -> Sequences | None:
    """A graph without repeated edges as sequences; None if it is not a set of sequences."""
    ends = _ends(graph)
    if ends is None:
        return None
    low, high = ends  # the interval of each node, itself included
    node = torch.arange(len(low))
    reached = high.cummax(0).values
    needed = low.flip(0).cummin(0).values.flip(0)
    first = torch.ones(len(low), dtype=torch.bool)
    first[1:] = (reached[:-1] <= node[1:]) & (needed[1:] >= node[1:])  # no node reads across
    bounds = torch.cat((torch.nonzero(first).flatten(), torch.tensor([len(low)])))
    size = bounds.diff()
    begin, end = (torch.repeat_interleave(x, size) for x in (bounds[:-1], bounds[1:]))
    before = _bound(node - low, node - begin)
    after = _bound(high - 1 - node, end - 1 - node)
    if before is None:
        return None
    if after is None:
        return None
    return Sequences(bounds.int(), int(size.max()), before, after)


def _ends(graph: AttentionGraph) -> tuple[Tensor, Tensor] | None:
    """The interval of sources of each target, if each reads one that contains itself."""
    if not graph.is_square or graph.num_targets == 0:
        return None
    if graph.edges.num_runs > MOST:
        return None
    lows = []
    highs = []
    for first, last, chunk in graph.edges.chunks():
        row, low, high = nonempty(chunk)
        if not torch.equal(row, torch.arange(last - first)):
            return None
        node = torch.arange(first, last)
        inside = (low <= node) & (node < high)
        if not bool(inside.all()):
            return None
        lows.append(low)
        highs.append(high)
    return torch.cat(lows), torch.cat(highs)


def _bound(reads: Tensor, there: Tensor) -> int | None:
    """The number of nodes read on one side, away from the ends: -1 if all, None if it differs."""
    if torch.equal(reads, there):
        return -1
    most = int(reads.max())
    if torch.equal(reads, there.clamp(max=most)):
        return most
    return None
