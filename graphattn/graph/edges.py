"""A set of edges: two sizes and the intervals of sources of any targets; all else is derived."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import GraphError
from . import runs as _runs
from .images import Images
from .modes import without_modes
from .runs import Runs
from .sort import offsets

ROWS_BUDGET = 1 << 22  # runs held at a time while a set of edges is walked
COUNTED_AT_ONCE = 1 << 24  # limit of the runs walked over only to print or to plan: about a second
MOST_STORED = 1 << 24  # limit of the runs stored after a walk: 128 MiB in int32
MOST_TRANSPOSED = 1 << 27  # limit of the runs held in memory to transpose edges
# limits of a walk: minutes
MOST_RUNS = 1 << 32  # of all rows
MOST_OF_ONE = 1 << 27  # runs of one row, or rows

Rows = Callable[[Tensor], Runs]
PairTest = Callable[[Tensor, Tensor], Tensor]  # (target, source) -> bool


class Stored(NamedTuple):
    """The runs of all rows: ``ptr`` int64 (T + 1,); ``lo`` and ``hi`` (R,), int32 if that fits."""

    ptr: Tensor
    lo: Tensor
    hi: Tensor

    def slice(self, first: int, last: int) -> Runs:
        """The runs of the rows ``first .. last - 1``."""
        ptr = self.ptr[first : last + 1]
        here = slice(int(ptr[0]), int(ptr[-1]))
        return Runs(torch.repeat_interleave(ptr.diff()), self.lo[here].long(), self.hi[here].long())

    def rows(self, target: Tensor) -> Runs:
        """The runs of some rows."""
        first = self.ptr[target]
        owner, within = _runs.spread(self.ptr[target + 1] - first)
        place = first[owner] + within
        return Runs(owner, self.lo[place].long(), self.hi[place].long())


class Edges:
    """A set of edges between ``num_sources`` sources and ``num_targets`` targets.

    Args:
        num_targets: T.
        num_sources: S.
        rows: Targets (n,), int64 on the CPU, -> the runs of their sources, where ``row`` counts
            within the targets: sorted, disjoint; some may be empty, and some may touch.
        runs_per_row: Approximate number of runs of a row, or of pairs tested to find them; it sets
            the chunks of a walk and the point from which counting is costly.
        contains: True where ``source -> target`` is an edge, for int64 tensors that broadcast, on
            their device; derived from ``rows`` by default.
        test: The same by element-wise operations alone, which FlexAttention can trace and compile.
        axes: The factors of a product: one set of edges for each axis of a row-major grid.
        count: Number of edges, if a closed form gives it.
        lengths: Targets (n,) -> the number of sources of each, if that costs less than its runs.
        grid: Length of every axis of the grid of targets, if known.

    Attributes:
        function: The caller's function of (target, source) that defines the edges, if there is one.
        diagonals: The values of ``t - s``, if the edges are all pairs on these diagonals.
        remade: The call by which a pickle restores edges that a function defines.
        is_tested: True if :meth:`contains` tests pairs by a closed form.
        num_blocks: The number of examples, if they are blocks of one size on the diagonal; else 1.
        is_listed: True if the edges are a list in the caller's order.
        has_repeats: True if an edge is listed more than once.
        images: The image of its source that each edge reads, in a cell that repeats.
    """

    function: PairTest | None = None
    diagonals: range | None = None
    remade: tuple[Callable[..., "Edges"], tuple[Any, ...]] | None = None
    num_blocks = 1
    is_listed = has_repeats = False
    images: Images | None = None

    def __init__(
        self,
        num_targets: int,
        num_sources: int,
        rows: Rows | None = None,
        *,
        runs_per_row: int = 1,
        contains: PairTest | None = None,
        test: PairTest | None = None,
        axes: tuple["Edges", ...] = (),
        grid: tuple[int, ...] = (),
        count: int | None = None,
        lengths: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.num_targets = num_targets
        self.num_sources = num_sources
        self.runs_per_row = max(1, runs_per_row)
        self.test = test
        self.axes = axes
        if not grid:
            grid = tuple(axis.num_targets for axis in axes)
        self.grid = grid
        self._rows = rows
        if contains is None:
            contains = test
        self._contains = contains
        self.is_tested = contains is not None
        self._lengths = lengths
        self._count = count
        self._reverse: Edges | None = None
        self._stored: Stored | None = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.remade is None:
            return super().__reduce_ex__(protocol)
        return self.remade

    # --- rows

    def rows(self, target: Tensor) -> Runs:
        """The sources of the targets (n,), int64 on the CPU; ``row`` counts within ``target``."""
        if self._stored is not None:
            return self._stored.rows(target)
        assert self._rows is not None
        return self._rows(target)

    @property
    def num_runs(self) -> int:
        """Number of runs of all rows: exact if they are stored, else an estimate."""
        if self._stored is None:
            return self.runs_per_row * self.num_targets
        return self._stored.lo.numel()

    def refuse_long_walk(self, most: int = MOST_RUNS) -> None:
        """Raise a GraphError if a walk over all rows would take more than minutes."""
        mean = self.num_runs // max(1, self.num_targets)
        if self.num_runs > most or max(mean, self.num_targets) > MOST_OF_ONE:
            raise GraphError(
                f"this would walk over about {self.num_runs:,} intervals of sources of "
                f"{self.num_targets:,} targets (limits {most:,} and {MOST_OF_ONE:,}); ask "
                "contains() for the pairs you need, or a smaller size"
            )

    def chunks(self, multiple: int = 1) -> Iterator[tuple[int, int, Runs]]:
        """The rows in chunks ``(first, last + 1, runs)`` that start at multiples of ``multiple``.

        Raises:
            GraphError: If a walk over the rows and their intervals of sources would take more than
                minutes.
        """
        self.refuse_long_walk()
        stored = self.stored()
        rows = max(1, ROWS_BUDGET // max(1, self.num_runs // max(1, self.num_targets)))
        rows = max(multiple, rows // multiple * multiple)
        for first in range(0, self.num_targets, rows):
            last = min(first + rows, self.num_targets)
            if stored is None:
                runs = self.rows(torch.arange(first, last))
            else:
                runs = stored.slice(first, last)
            yield first, last, runs

    def stored(self) -> Stored | None:
        """The runs of all rows, none empty or touching, cached; None beyond ``MOST_STORED``."""
        if self._stored is not None:
            return self._stored
        if self._rows is None or self.num_runs > MOST_STORED:
            return None
        self._stored = without_modes(self._all_rows)
        self.runs_per_row = max(1, -(-self._stored.lo.numel() // max(1, self.num_targets)))
        return self._stored

    def _all_rows(self) -> Stored:
        parts = []
        step = max(1, ROWS_BUDGET // self.runs_per_row)
        for first in range(0, self.num_targets, step):
            targets = torch.arange(first, min(first + step, self.num_targets))
            row, lo, hi = _runs.canonical(self.rows(targets))
            parts.append(Runs(row + first, lo, hi))
        if parts:
            runs = Runs(*map(torch.cat, zip(*parts, strict=True)))
        else:
            runs = _runs.empty()
        return _stored(runs, self.num_targets, self.num_sources)

    def all_runs(self) -> Runs:
        """The runs of all rows, none empty or touching, in memory at once."""
        parts = [Runs(row + first, lo, hi) for first, _, (row, lo, hi) in self.chunks()]
        if parts:
            return _runs.canonical(Runs(*map(torch.cat, zip(*parts, strict=True))))
        return _runs.empty()

    # --- questions

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        """True where ``source -> target`` is an edge: bool, on the device of the targets.

        Targets and sources are int64 tensors that broadcast.
        """
        if self._contains is not None:
            return self._contains(target, source)
        distinct, row = torch.unique(target.cpu(), return_inverse=True)
        inside = _runs.contains(self.rows(distinct), distinct.numel(), row, source.cpu())
        return inside.to(target.device)

    @property
    def count_cost(self) -> int:
        """The approximate number of runs that :meth:`count` walks over; 0 if the count is known."""
        if self.axes:
            return sum(axis.count_cost for axis in self.axes)
        if self._count is not None:
            return 0
        if self._lengths is None:
            return self.num_runs
        return self.num_targets

    @property
    def mean_degree(self) -> int:
        """Mean number of sources of a few targets, rounded up; S where rows are long."""
        if self.runs_per_row > ROWS_BUDGET >> 4 or self.num_targets == 0:
            return self.num_sources
        number = min(16, self.num_targets)
        sample = torch.linspace(0, self.num_targets - 1, number, dtype=torch.float64).long()
        lengths = _runs.row_lengths(self.rows(sample), number)
        return -(-int(lengths.sum()) // number)

    def count(self) -> int:
        """Number of edges, an exact Python integer."""
        if self.axes:
            return math.prod(axis.count() for axis in self.axes)
        if self._count is None:
            self._count = without_modes(lambda: int(self.degrees().sum()))
        return self._count

    def pairs(self) -> tuple[Tensor, Tensor]:
        """All edges as ``(target, source)``, by target and then by source; int64 on the CPU."""
        parts = [torch.empty(2, 0, dtype=torch.int64)]
        for first, _, chunk in self.chunks():
            row, source = _runs.expand(chunk)
            parts.append(torch.stack((row + first, source)))
        target, source = torch.cat(parts, 1)
        return target, source

    def degrees(self) -> Tensor:
        """Number of sources of every target, int64 (T,) on the CPU; repeated edges count."""
        return torch.cat([torch.empty(0, dtype=torch.int64), *self._degrees()])

    def _degrees(self) -> Iterator[Tensor]:
        """The degrees of all rows, chunk by chunk."""
        if self._lengths is None or self._stored is not None or self.num_targets > MOST_OF_ONE:
            yield from (
                _runs.row_lengths(chunk, last - first) for first, last, chunk in self.chunks()
            )
            return
        for first in range(0, self.num_targets, ROWS_BUDGET):
            yield self._lengths(torch.arange(first, min(first + ROWS_BUDGET, self.num_targets)))

    def block_counts(self, height: int, width: int) -> Tensor:
        """Pairs in every tile of ``height`` targets x ``width`` sources, int64 on the CPU."""
        S = self.num_sources
        parts = [torch.empty(0, -(-S // width), dtype=torch.int64)]
        for first, last, chunk in self.chunks(multiple=height):
            rows = -(-(last - first) // height)
            parts.append(_runs.block_counts(chunk, rows, height, S, width))
        return torch.cat(parts)

    def block_areas(self, height: int, width: int) -> Tensor:
        """Pairs in every block, whether edges or not; see :meth:`block_counts`."""
        sides = ((self.num_targets, height), (self.num_sources, width))
        rows, columns = (
            (size - torch.arange(-(-size // side)) * side).clamp(max=side) for size, side in sides
        )
        return rows.unsqueeze(-1) * columns

    def flip(self) -> "Edges":
        """Edges with sources and targets exchanged; listed ones keep their order."""
        if self._reverse is not None:
            return self._reverse

        def swapped(test: PairTest) -> PairTest:
            return lambda target, source: test(source, target)

        test = None
        if self.test is not None:
            test = swapped(self.test)
        back = Edges(
            self.num_sources,
            self.num_targets,
            lambda target: back._transposed(self).rows(target),
            runs_per_row=-(-self.num_runs // max(1, self.num_sources)),
            contains=swapped(self.contains),
            test=test,
            axes=tuple(axis.flip() for axis in self.axes),
            count=self._count,
        )
        # one way only: a cycle of references would keep large graphs until Python looks for it
        back._reverse = self
        if self.diagonals:
            back.diagonals = range(-self.diagonals[-1], 1 - self.diagonals[0], self.diagonals.step)
        return back

    def _transposed(self, other: "Edges") -> Stored:
        """The runs of all rows of the other side, transposed, and stored as this side's."""
        if self._stored is None:
            other.refuse_long_walk(MOST_TRANSPOSED)
            self._stored = without_modes(lambda: _stored_transpose(other))
        return self._stored

    def distinct(self) -> "Edges":
        """The edges without their copies."""
        return self

    def to(self, device: torch.device) -> "Edges":
        """Edges with their list, where there is one, on another device."""
        return self


def _stored(runs: Runs, num_rows: int, num_sources: int) -> Stored:
    """The storage form of the canonical runs of all rows."""
    ptr = offsets(torch.bincount(runs.row, minlength=num_rows))
    if num_sources < 2**31:
        small = torch.int32
    else:
        small = torch.int64
    return Stored(ptr, runs.lo.to(small), runs.hi.to(small))


def _stored_transpose(edges: Edges) -> Stored:
    turned = _runs.transposed(edges.all_runs(), edges.num_targets, edges.num_sources)
    return _stored(turned, edges.num_sources, edges.num_targets)
