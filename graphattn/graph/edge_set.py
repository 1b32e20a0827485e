"""The interface of a set of edges, whether it is listed or a rule."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ..errors import GraphError
from . import runs as _runs
from .runs import Runs

ROWS_BUDGET = 1 << 22  # runs held at a time while a set of edges is walked
COUNTED_AT_ONCE = 1 << 24  # runs that may be walked over only to print or to plan: a second
MOST_RUNS, MOST_OF_ONE = 1 << 32, 1 << 27  # runs of all rows that a walk may meet: minutes; and rows, or runs of a row


class EdgeSet(ABC):
    """A set of edges between ``num_sources`` sources and ``num_targets`` targets.

    To add a rule, subclass, store the two sizes and write ``contains`` and ``runs``; the rest follows, and may be
    overridden where a closed form is faster.
    """

    num_targets: int
    num_sources: int
    is_rule = True
    has_repeats = False

    @abstractmethod
    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        """Whether ``source -> target`` is an edge; int64 tensors that broadcast, bool back, on their device."""

    @abstractmethod
    def runs(self, target: Tensor) -> Runs:
        """The sources of each of the targets (n,), int64 on the CPU; ``row`` counts within ``target``."""

    @property
    def runs_per_row(self) -> int:
        """About how many runs a row has: sizes the chunks of a walk, and says when counting is costly."""
        return 1

    @property
    def count_cost(self) -> int:
        """About how many runs ``count`` walks over; 0 where it is a closed form."""
        return self.runs_per_row * self.num_targets if type(self).count is EdgeSet.count else 0

    @property
    def sources_per_row(self) -> int:
        """Sources of a target on average, rounded up; all of them where counting is costly."""
        if self.count_cost > COUNTED_AT_ONCE:
            return self.num_sources
        return -(-self.count() // max(1, self.num_targets))

    def count(self) -> int:
        """Number of edges, an exact Python integer."""
        return sum(int((chunk.hi - chunk.lo).sum()) for _, _, chunk in self.walk())

    def flip(self) -> "EdgeSet":
        """The same edges with sources and targets exchanged."""
        return Flipped(self)

    def compose(self, other: "EdgeSet") -> "EdgeSet | None":
        """Pairs joined by an edge of ``other`` followed by one of ``self``, where that has a closed form."""
        return None

    def walk(self, multiple: int = 1) -> Iterator[tuple[int, int, Runs]]:
        """The rows in chunks ``(first, last + 1, runs)``; chunks start at multiples of ``multiple``.

        Raises:
            GraphError: If there are more rows, or more intervals of sources in them, than are walked over in minutes.
        """
        walked = self.runs_per_row * self.num_targets
        if walked > MOST_RUNS or max(self.runs_per_row, self.num_targets) > MOST_OF_ONE:
            raise GraphError(
                f"this would walk over about {walked:,} intervals of sources of {self.num_targets:,} targets (limits "
                f"{MOST_RUNS:,} and {MOST_OF_ONE:,}); ask contains() for the pairs you need, or a smaller size"
            )
        rows = max(1, ROWS_BUDGET // max(1, self.runs_per_row))
        rows = max(multiple, rows // multiple * multiple)
        for first in range(0, self.num_targets, rows):
            last = min(first + rows, self.num_targets)
            yield first, last, self.runs(torch.arange(first, last))

    def pairs(self) -> tuple[Tensor, Tensor]:
        """All edges as ``(target, source)``, by target and then by source; int64 on the CPU."""
        parts = []
        for first, _, chunk in self.walk():
            row, source = _runs.expand(chunk)
            parts.append((row + first, source))
        if not parts:
            return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def degrees(self) -> Tensor:
        """Number of sources of every target, int64 (T,) on the CPU."""
        parts = [_runs.row_lengths(chunk, last - first) for first, last, chunk in self.walk()]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    def tile_counts(self, height: int, width: int) -> Tensor:
        """Pairs in every tile of ``height`` targets x ``width`` sources, int64 on the CPU."""
        parts = [
            _runs.tile_counts(chunk, -(-(last - first) // height), height, self.num_sources, width)
            for first, last, chunk in self.walk(multiple=height)
        ]
        columns = -(-self.num_sources // width)
        return torch.cat(parts) if parts else torch.empty(0, columns, dtype=torch.int64)


class TestedByRow(EdgeSet):
    """Rules whose rows are listed by a test of every pair of the row, a chunk at a time."""

    @property
    def runs_per_row(self) -> int:
        return max(1, self.num_sources)

    def runs(self, target: Tensor) -> Runs:
        return _runs.from_dense(self.contains(target[:, None], torch.arange(self.num_sources)[None, :]))


class Flipped(TestedByRow):
    """Sources and targets exchanged, for rules that have no closed form for it."""

    def __init__(self, base: EdgeSet) -> None:
        self.base = base
        self.num_targets, self.num_sources = base.num_sources, base.num_targets

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return self.base.contains(source, target)

    @property
    def count_cost(self) -> int:
        return self.base.count_cost

    def count(self) -> int:
        return self.base.count()

    def flip(self) -> EdgeSet:
        return self.base
