"""Rules of sequences: a few distances, regular columns, ranks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from . import runs as _runs
from .algebra import Intersection, Union
from .edge_set import EdgeSet
from .rules import Band, Cells, Rectangle
from .runs import Runs


@dataclass(frozen=True, eq=False)
class Distances(EdgeSet):
    """``t - s`` is one of a few numbers, which ascend."""

    num_targets: int
    num_sources: int
    distances: tuple[int, ...]

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return torch.isin(target - source, torch.tensor(self.distances, dtype=torch.int64, device=target.device))

    @property
    def runs_per_row(self) -> int:
        return max(1, len(self.distances))

    def runs(self, target: Tensor) -> Runs:
        source = target[:, None] - torch.tensor(self.distances[::-1], dtype=torch.int64)
        row = torch.arange(target.numel())[:, None].expand_as(source)
        inside = (source >= 0) & (source < self.num_sources)
        return Runs(row[inside], source[inside], source[inside] + 1)

    def count(self) -> int:
        return sum(max(0, min(self.num_targets, self.num_sources + d) - max(0, d)) for d in self.distances)

    def flip(self) -> "Distances":
        return Distances(self.num_sources, self.num_targets, tuple(-d for d in reversed(self.distances)))


class Sinks(Intersection):
    """The first ``k`` of ``size`` tokens, read causally: ``s <= t and s < k``. A row is one run."""

    def __init__(self, size: int, k: int) -> None:
        self.k = min(size, k)
        columns = Rectangle(size, size, ((0, size),), ((0, self.k),) if self.k else ())
        super().__init__(Band(size, size, lo=0), columns)

    @property
    def runs_per_row(self) -> int:
        return 1

    def runs(self, target: Tensor) -> Runs:
        return Runs(torch.arange(target.numel()), torch.zeros_like(target), (target + 1).clamp(max=self.k))

    def count(self) -> int:
        return self.k * (self.k + 1) // 2 + (self.num_targets - self.k) * self.k


@dataclass(frozen=True, eq=False)
class Comb(EdgeSet):
    """All targets read the sources whose place within a period is in ``[lo, hi)``; or such targets read all sources.

    Args:
        num_targets: T.
        num_sources: S.
        period: Nodes in a period.
        lo: First place, within the period.
        hi: One after the last place; at most ``period``.
        of_targets: Whether it is the targets that are chosen.
    """

    num_targets: int
    num_sources: int
    period: int
    lo: int
    hi: int
    of_targets: bool = False

    def _chosen(self, node: Tensor) -> Tensor:
        return (node % self.period >= self.lo) & (node % self.period < self.hi)

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        chosen = self._chosen(target if self.of_targets else source)
        return chosen.expand(torch.broadcast_shapes(target.shape, source.shape))

    @property
    def runs_per_row(self) -> int:
        return 1 if self.of_targets else max(1, -(-self.num_sources // self.period))

    def runs(self, target: Tensor) -> Runs:
        if self.of_targets:
            row = torch.nonzero(self._chosen(target)).flatten()
            return Runs(row, torch.zeros_like(row), torch.full_like(row, self.num_sources))
        start = torch.arange(-(-self.num_sources // self.period)) * self.period
        lo, hi = ((start + place).clamp(max=self.num_sources) for place in (self.lo, self.hi))
        row = torch.arange(target.numel()).repeat_interleave(lo.numel())
        return Runs(row, lo.repeat(target.numel()), hi.repeat(target.numel()))

    def count(self) -> int:
        size, others = (self.num_targets, self.num_sources)[:: 1 if self.of_targets else -1]
        whole, rest = divmod(size, self.period)
        return others * (whole * (self.hi - self.lo) + max(0, min(rest, self.hi) - self.lo))

    def flip(self) -> "Comb":
        return Comb(self.num_sources, self.num_targets, self.period, self.lo, self.hi, not self.of_targets)


class Fixed(Intersection):
    """A target reads what of its block is not ahead, and the last ``summary`` places of every block before.

    Args:
        size: N.
        block: Nodes in a block.
        summary: Places at the end of a block that all after it read; at most ``block``.
    """

    def __init__(self, size: int, block: int, summary: int) -> None:
        self.block, self.summary = block, summary
        seen = Union(Cells(size, block), Comb(size, size, block, block - summary, block))
        super().__init__(seen, Band(size, size, lo=0))

    def count(self) -> int:
        whole, rest = divmod(self.num_targets, self.block)  # blocks before a block: 0, 1, ..., whole - 1
        before = whole * (whole - 1) // 2 * self.block + whole * rest
        return whole * (self.block * (self.block + 1) // 2) + rest * (rest + 1) // 2 + self.summary * before

    def degrees(self) -> Tensor:
        target = torch.arange(self.num_targets)
        return target % self.block + 1 + target // self.block * self.summary


class Ranked(EdgeSet):
    """A target reads the sources whose rank is at most its own, or below it.

    Args:
        target_ranks: int64 (T,).
        source_ranks: int64 (S,).
        strict: Only sources of lower rank.
    """

    def __init__(self, target_ranks: Tensor, source_ranks: Tensor, strict: bool = False) -> None:
        _, joint = torch.unique(torch.cat((target_ranks, source_ranks)), return_inverse=True)
        self.of_target, self.of_source = joint[: target_ranks.numel()], joint[target_ranks.numel() :]
        self.num_targets, self.num_sources, self.strict = target_ranks.numel(), source_ranks.numel(), strict
        self._ascending = torch.sort(self.of_source).values
        self._in_order = torch.equal(self._ascending, self.of_source)

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        of_target, of_source = self.of_target.to(target.device)[target], self.of_source.to(source.device)[source]
        return of_source < of_target if self.strict else of_source <= of_target

    def _degree(self, target: Tensor) -> Tensor:
        return torch.searchsorted(self._ascending, self.of_target[target], right=not self.strict)

    @property
    def runs_per_row(self) -> int:
        return 1 if self._in_order else max(1, self.num_sources)

    def runs(self, target: Tensor) -> Runs:
        if not self._in_order:
            return _runs.from_dense(self.contains(target[:, None], torch.arange(self.num_sources)))
        row = torch.arange(target.numel())
        return Runs(row, torch.zeros_like(row), self._degree(target))

    def count(self) -> int:
        return int(self.degrees().sum())

    def degrees(self) -> Tensor:
        return self._degree(torch.arange(self.num_targets))

    def flip(self) -> "Ranked":
        return Ranked(-self.of_source, -self.of_target, self.strict)
