"""Rules of networks: ancestors in a tree, circles, butterflies, near and far fields."""

import torch
from torch import Tensor

from . import runs as _runs
from .edge_set import EdgeSet
from .runs import Runs


class Ancestors(EdgeSet):
    """A node of a forest reads itself and its ancestors, or (``down``) itself and its descendants.

    In depth-first order the descendants of a node are one interval, so a pair costs two comparisons.

    Args:
        parent: int64 (N,), -1 for a root.
        depth: int64 (N,), 0 for a root.
        down: Whether the arrows are turned round.
    """

    def __init__(self, parent: Tensor, depth: Tensor, down: bool = False) -> None:
        self.parent, self.depth, self.down = parent, depth, down
        self.num_targets = self.num_sources = parent.numel()
        self.place, self.size, self._chains = _depth_first(parent.tolist(), torch.argsort(depth).tolist())
        self._node = torch.argsort(self.place)
        node = torch.arange(parent.numel())
        chained = (parent == node - 1) & (parent >= 0)
        self._top = torch.cummax(torch.where(chained, -1, node), 0).values if parent.numel() else node

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        below, above = (source, target) if self.down else (target, source)
        place, size = self.place.to(target.device), self.size.to(target.device)
        return (place[above] <= place[below]) & (place[below] < place[above] + size[above])

    @property
    def runs_per_row(self) -> int:
        return 1 + self.count() // max(1, self.num_targets) if self.down else max(1, self._chains)

    def runs(self, target: Tensor) -> Runs:
        """Up: from chain to chain of consecutive numbers. Down: the subtree, which is one interval of places."""
        if self.down:
            row, within = _runs.spread(self.size[target])
            source = self._node[self.place[target][row] + within]
            key = torch.sort(row * max(1, self.num_sources) + source).values
            return _runs.from_pairs(key // max(1, self.num_sources), key % max(1, self.num_sources))
        row, node = torch.arange(target.numel()), target
        found = [_runs.empty()]
        while node.numel():
            found.append(Runs(row, self._top[node], node + 1))
            node = self.parent[self._top[node]]
            row, node = row[node >= 0], node[node >= 0]
        row, lo, hi = (torch.cat(part) for part in zip(*found, strict=True))
        order = torch.argsort(row * max(1, self.num_sources) + lo)
        return Runs(row[order], lo[order], hi[order])

    def count(self) -> int:
        return int(self.size.sum())

    def flip(self) -> "Ancestors":
        return Ancestors(self.parent, self.depth, not self.down)


def _depth_first(parent: list[int], downwards: list[int]) -> tuple[Tensor, Tensor, int]:
    """Place of each node in depth-first order, size of its subtree, most chains of consecutive numbers up to a root."""
    size, place, chains, free = [1] * len(parent), [0] * len(parent), [1] * len(parent), [0] * (len(parent) + 1)
    for node in reversed(downwards):
        if parent[node] >= 0:
            size[parent[node]] += size[node]
    for node in downwards:  # the last entry of ``free`` is that of parent -1, the roots'
        above = parent[node]
        place[node] = free[above]
        free[above] += size[node]
        free[node] = place[node] + 1
        if above >= 0:
            chains[node] = chains[above] + (above != node - 1)
    return torch.tensor(place, dtype=torch.int64), torch.tensor(size, dtype=torch.int64), max(chains, default=1)
