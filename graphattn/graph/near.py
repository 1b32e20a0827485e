"""An order of the targets in which neighbours stand together."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .listed import Listed
from .sort import transposed

if TYPE_CHECKING:
    from .graph import AttentionGraph

HUB = 8  # times the mean degree; beyond it a node is near all others, and carries no order


def near_order(graph: "AttentionGraph") -> Tensor:
    """:func:`cuthill_mckee` of a graph's edges, cached on the graph: int64 (T,)."""
    order: Tensor = graph._remember("near order", lambda: cuthill_mckee(graph._listed()))
    return order


def cuthill_mckee(edges: Listed) -> Tensor:
    """The targets in the reverse order of Cuthill and McKee (1969): breadth first, from a node of least degree.

    Two targets are neighbours where they read a common source, or on a square graph where one reads the other; sources
    and targets of over eight times the mean degree are skipped. Int64 (T,).
    """
    by_target = edges.to(torch.device("cpu")).sorted
    by_source = transposed(by_target, edges.num_sources)
    to_source = _Steps(by_target.ptr.numpy(), by_target.column.numpy(), edges.num_sources)
    to_target = _Steps(by_source.ptr.numpy(), by_source.column.numpy(), edges.num_targets)
    degree = np.diff(by_target.ptr.numpy())
    result = []
    starts = np.argsort(degree, kind="stable")
    at = 0
    while True:
        while at < len(starts) and to_target.seen[starts[at]]:
            at += 1
        if at == len(starts):
            break
        level = starts[at : at + 1]
        to_target.seen[level] = True
        while level.size:
            result.append(level)
            level = to_target.next(to_source.next(level))
            level = level[np.argsort(degree[level], kind="stable")] if level.size < 64 else level
    order = np.concatenate(result)[::-1] if result else np.empty(0, dtype=np.int64)
    return torch.from_numpy(np.ascontiguousarray(order).astype(np.int64))


class _Steps:
    """Breadth-first steps: from a level of nodes on one side to the unvisited ones on the other."""

    def __init__(self, ptr: np.ndarray, other: np.ndarray, size: int) -> None:
        self.ptr, self.other = ptr, other
        self.most = HUB * max(1.0, len(other) / max(1, len(ptr) - 1))
        self.seen = np.zeros(size, dtype=bool)

    def next(self, level: np.ndarray) -> np.ndarray:
        first, count = self.ptr[level], self.ptr[level + 1] - self.ptr[level]
        count = np.where(count > self.most, 0, count)
        owner = np.repeat(np.arange(len(level)), count)
        place = first[owner] + np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
        reached = self.other[place]
        reached = reached[~self.seen[reached]]
        _, where = np.unique(reached, return_index=True)
        reached = reached[np.sort(where)].astype(np.int64)  # in the order in which they were reached
        self.seen[reached] = True
        return reached
