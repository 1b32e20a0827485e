"""Rules over an order of the sources: what a target reads is one interval of it."""

import torch
from torch import Tensor

from . import runs as _runs
from .edge_set import EdgeSet
from .runs import Runs


class Intervals(EdgeSet):
    """Target ``t`` reads ``order[lo[t]], ..., order[hi[t] - 1]``: patches along a curve, slices of a sequence.

    Args:
        lo, hi: int64 (T,) on the CPU, ``0 <= lo <= hi <= S``.
        order: The sources in the order of the intervals, a permutation int64 (S,) on the CPU; ``arange(S)`` by default.
        num_sources: S, where ``order`` is not given.
    """

    def __init__(self, lo: Tensor, hi: Tensor, order: Tensor | None = None, num_sources: int | None = None) -> None:
        self.lo, self.hi = lo, hi
        self.num_targets = lo.numel()
        self.num_sources = (num_sources or 0) if order is None else order.numel()
        place = torch.arange(self.num_sources)
        self.order = None if order is None or torch.equal(order, place) else order
        self.rank = place if self.order is None else torch.empty_like(place).scatter_(0, self.order, place)

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        rank = self.rank.to(source.device)[source]
        return (self.lo.to(target.device)[target] <= rank) & (rank < self.hi.to(target.device)[target])

    @property
    def runs_per_row(self) -> int:
        return 1 if self.order is None else max(1, -(-self.count() // max(1, self.num_targets)))

    def runs(self, target: Tensor) -> Runs:
        lo, hi = self.lo[target], self.hi[target]
        if self.order is None:
            return Runs(torch.arange(target.numel()), lo, hi)
        row, within = _runs.spread(hi - lo)
        width = max(1, self.num_sources)
        key = torch.sort(row * width + self.order[lo[row] + within]).values
        return _runs.from_pairs(key // width, key % width)

    def count(self) -> int:
        return int((self.hi - self.lo).sum())

    def degrees(self) -> Tensor:
        return self.hi - self.lo

    def flip(self) -> EdgeSet:
        """Intervals again where both ends grow together, as those of patches do."""
        by = torch.argsort(self.hi)
        by = by[torch.argsort(self.lo[by], stable=True)]
        lo, hi = self.lo[by], self.hi[by]
        if bool((hi[1:] < hi[:-1]).any()):
            return super().flip()
        first = torch.searchsorted(hi, self.rank, right=True)  # targets whose interval ends before the source
        last = torch.searchsorted(lo, self.rank, right=True)  # targets whose interval begins up to it
        return Intervals(first, torch.maximum(first, last), by)
