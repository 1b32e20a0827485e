"""Rules of networks: ancestors in a tree, circles, butterflies, near and far fields."""

from dataclasses import dataclass

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
        parts = [_runs.empty()]
        while node.numel():
            parts.append(Runs(row, self._top[node], node + 1))
            node = self.parent[self._top[node]]
            row, node = row[node >= 0], node[node >= 0]
        row, lo, hi = (torch.cat(part) for part in zip(*parts, strict=True))
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


@dataclass(frozen=True, eq=False)
class Circulant(EdgeSet):
    """Nodes on a circle: ``t`` reads ``t + offset`` for each of the offsets, round the circle."""

    num_targets: int
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        size = max(1, self.num_targets)
        object.__setattr__(self, "offsets", tuple(sorted({offset % size for offset in self.offsets})))

    @property
    def num_sources(self) -> int:  # type: ignore[override]
        return self.num_targets

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        steps = torch.tensor(self.offsets, dtype=torch.int64, device=target.device)
        return torch.isin((source - target) % max(1, self.num_targets), steps)

    @property
    def runs_per_row(self) -> int:
        return max(1, len(self.offsets))

    def runs(self, target: Tensor) -> Runs:
        source = (target[:, None] + torch.tensor(self.offsets, dtype=torch.int64)) % max(1, self.num_targets)
        row = torch.arange(target.numel())[:, None].expand_as(source)
        return _runs.from_pairs(row.flatten(), torch.sort(source, 1).values.flatten())

    def count(self) -> int:
        return self.num_targets * len(self.offsets)

    def flip(self) -> "Circulant":
        return Circulant(self.num_targets, tuple(-offset for offset in self.offsets))

    def compose(self, other: EdgeSet) -> EdgeSet | None:
        if not isinstance(other, Circulant) or other.num_targets != self.num_targets:
            return None
        return Circulant(self.num_targets, tuple(a + b for a in self.offsets for b in other.offsets))


@dataclass(frozen=True, eq=False)
class Butterfly(EdgeSet):
    """Blocks of nodes: block ``I`` reads itself and block ``I xor stride`` for each of the strides."""

    num_targets: int
    block: int
    strides: tuple[int, ...]

    @property
    def num_sources(self) -> int:  # type: ignore[override]
        return self.num_targets

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        apart = torch.tensor((0, *self.strides), dtype=torch.int64, device=target.device)
        return torch.isin(target // self.block ^ source // self.block, apart)

    @property
    def runs_per_row(self) -> int:
        return 1 + len(self.strides)

    def runs(self, target: Tensor) -> Runs:
        apart = torch.tensor((0, *self.strides), dtype=torch.int64)
        lo = torch.sort((target // self.block)[:, None] ^ apart, 1).values * self.block
        row = torch.arange(target.numel())[:, None].expand_as(lo)
        row, lo = row[lo < self.num_targets], lo[lo < self.num_targets]
        return Runs(row, lo, (lo + self.block).clamp(max=self.num_targets))

    def flip(self) -> "Butterfly":
        return self


class Hierarchy(EdgeSet):
    """Tokens read their own and the neighbouring blocks, and of all others the means of a binary tree.

    Sources are the nodes of the tree, level by level; node ``j`` of level ``l`` is the mean of the tokens
    ``[j * 2**l, (j + 1) * 2**l)``. A block is ``block`` nodes of its level; a token reads its own block of level ``l``
    and the two beside it, without what is nearer: its own block of level ``l - 1`` and the two beside it.

    Args:
        num_targets: N tokens.
        block: Nodes in a block, even.
        causal: Whether only what ends before or at the token is read.
    """

    def __init__(self, num_targets: int, block: int, causal: bool = False) -> None:
        self.num_targets, self.block, self.causal = num_targets, block, causal
        self.sizes = [num_targets]
        while -(-self.sizes[-1] // block) > 2:
            self.sizes.append(-(-self.sizes[-1] // 2))
        self.num_sources = sum(self.sizes)
        self._first = torch.tensor([0, *self.sizes]).cumsum(0)[:-1]

    def _window(self, target: Tensor, level: Tensor | int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``[a, b)`` and ``[c, d)``, the nodes of the level that are read on the left and on the right."""
        b = self.block
        block = target // (b * 2**level)
        nearer = (target * 2 // (b * 2**level) - 1) * (b // 2)
        return (block - 1) * b, nearer, nearer + b // 2 * 3, (block + 2) * b

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        first = self._first.to(source.device)
        level = torch.searchsorted(first, source.contiguous(), right=True) - 1
        node = source - first[level]
        a, b, c, d = self._window(target, level)
        near = (level == 0) & (a <= node) & (node < (d if not self.causal else torch.minimum(d, target + 1)))
        far = (a <= node) & (node < b)
        if not self.causal:
            far = far | (c <= node) & (node < d)
        return near | (level > 0) & far

    @property
    def runs_per_row(self) -> int:
        return (1 if self.causal else 2) * len(self.sizes)

    def runs(self, target: Tensor) -> Runs:
        lo, hi = [], []
        for level, (size, first) in enumerate(zip(self.sizes, self._first.tolist(), strict=True)):
            a, b, c, d = self._window(target, level)
            if level == 0:
                pairs = [(a, torch.minimum(d, target + 1) if self.causal else d)]
            else:
                pairs = [(a, b)] if self.causal else [(a, b), (c, d)]
            for left, right in pairs:
                left = left.clamp(0, size)
                lo.append(first + left)
                hi.append(first + torch.maximum(left, right.clamp(max=size)))
        row = torch.arange(target.numel()).repeat_interleave(len(lo))
        return Runs(row, torch.stack(lo, 1).flatten(), torch.stack(hi, 1).flatten())
