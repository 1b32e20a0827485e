"""Rules: closed forms for edges, in the order in which a reader of papers would meet them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import GraphError
from . import runs as _runs
from .edge_set import EdgeSet, TestedByRow
from .runs import Runs

FAR = 1 << 62  # a band without a border


def _series(first: int, last: int, step: int, value: Callable[[int], int]) -> int:
    """Sum of a linear ``value`` over ``first, first + step, ..., <= last``."""
    if last < first:
        return 0
    n = (last - first) // step + 1
    return n * (value(first) + value(first + (n - 1) * step)) // 2


def clipped_sum(first: int, step: int, number: int, lo: int, hi: int) -> int:
    """Sum of ``first + i * step`` for ``0 <= i < number``, each moved into ``[lo, hi]``; ``step >= 1``.

    Example:
        >>> clipped_sum(-3, 2, 6, 0, 4)  # -3, -1, 1, 3, 5, 7
        12
    """
    below = min(max(0, -(-(lo - first) // step)), number)
    upto = min(max(below, (hi - first) // step + 1), number)
    between = _series(first + below * step, first + (upto - 1) * step, step, lambda value: value)
    return below * lo + between + (number - upto) * hi


def sum_over_cells(length: int, cell: int, skipped: int, of_cells: Callable[[int, int], int]) -> int:
    """What the places of an axis read, which all places of a cell read alike.

    Args:
        length: Places on the axis.
        cell: Places in a cell.
        skipped: Places that the first cell lacks.
        of_cells: ``(first, number)`` cells, what a place of each reads, summed over them.
    """
    if not length:
        return 0
    number = -(-(length + skipped) // cell)
    lacking = number * cell - skipped - length
    return cell * of_cells(0, number) - skipped * of_cells(0, 1) - lacking * of_cells(number - 1, 1)


@dataclass(frozen=True, eq=False)
class Band(EdgeSet):
    """``lo <= t - s + offset <= hi``, and a multiple of ``step``: full, causal, windows, dilated windows."""

    num_targets: int
    num_sources: int
    lo: int = -FAR
    hi: int = FAR
    step: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        least, most = self.offset - (self.num_sources - 1), self.offset + self.num_targets - 1
        lo = max(self.lo, least)
        hi = min(self.hi, most)
        object.__setattr__(self, "lo", -(-lo // self.step) * self.step)
        object.__setattr__(self, "hi", hi // self.step * self.step)

    @property
    def diagonals(self) -> range:
        """``t - s`` of its edges; each of them has some, where there are nodes."""
        return range(self.lo - self.offset, self.hi - self.offset + 1, self.step)

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        distance = target - source + self.offset
        inside = (distance >= self.lo) & (distance <= self.hi)
        return inside if self.step == 1 else inside & (distance % self.step == 0)

    @property
    def runs_per_row(self) -> int:
        return 1 if self.step == 1 else max(1, (self.hi - self.lo) // self.step + 1)

    def runs(self, target: Tensor) -> Runs:
        row = torch.arange(target.numel())
        if self.step == 1:
            lo = (target + (self.offset - self.hi)).clamp(0, self.num_sources)
            hi = (target + (self.offset - self.lo + 1)).clamp(0, self.num_sources)
            return Runs(row, lo, torch.maximum(lo, hi))
        back = torch.arange(self.hi, min(self.lo - 1, self.hi), -self.step)
        source = target[:, None] + (self.offset - back)
        row = row[:, None].expand_as(source)
        inside = (source >= 0) & (source < self.num_sources)
        return Runs(row[inside], source[inside], source[inside] + 1)

    def count(self) -> int:
        # The diagonal t - s = d has min(T, S, S + d, T - d) pairs: a rising, a level and a falling piece.
        T, S, lo, hi, step = self.num_targets, self.num_sources, self.lo, self.hi, self.step
        if T == 0 or S == 0 or hi < lo:
            return 0
        rise, fall = min(0, T - S) + self.offset, max(0, T - S) + self.offset

        def at_least(x: int) -> int:
            return lo if x <= lo else lo + -(-(x - lo) // step) * step

        return (
            _series(lo, min(hi, rise), step, lambda d: S + d - self.offset)
            + _series(at_least(rise + 1), min(hi, fall), step, lambda d: min(T, S))
            + _series(at_least(fall + 1), hi, step, lambda d: T - d + self.offset)
        )

    def flip(self) -> "Band":
        return Band(self.num_sources, self.num_targets, -self.hi, -self.lo, self.step, -self.offset)

    def compose(self, other: EdgeSet) -> EdgeSet | None:
        def plain(band: Band) -> bool:  # with loops, the stop between two edges never falls off the sequence
            square = band.num_targets == band.num_sources
            return square and band.step == 1 and band.offset == 0 and band.lo <= 0 <= band.hi

        if not (isinstance(other, Band) and plain(self) and plain(other)):
            return None
        return replace(self, lo=self.lo + other.lo, hi=self.hi + other.hi)


@dataclass(frozen=True, eq=False)
class Rectangle(EdgeSet):
    """Every target of one list of intervals reads every source of another: prefixes, global tokens."""

    num_targets: int
    num_sources: int
    targets: tuple[tuple[int, int], ...]
    sources: tuple[tuple[int, int], ...]

    @staticmethod
    def _inside(x: Tensor, intervals: tuple[tuple[int, int], ...]) -> Tensor:
        edges = torch.tensor(intervals, dtype=torch.int64, device=x.device).reshape(-1)
        return torch.searchsorted(edges, x.contiguous(), right=True) % 2 == 1

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return self._inside(target, self.targets) & self._inside(source, self.sources)

    @property
    def runs_per_row(self) -> int:
        return max(1, len(self.sources))

    def runs(self, target: Tensor) -> Runs:
        row = torch.nonzero(self._inside(target, self.targets)).flatten()
        lo, hi = torch.tensor(self.sources, dtype=torch.int64).reshape(-1, 2).unbind(1)
        return Runs(row.repeat_interleave(lo.numel()), lo.repeat(row.numel()), hi.repeat(row.numel()))

    def count(self) -> int:
        return sum(b - a for a, b in self.targets) * sum(b - a for a, b in self.sources)

    def degrees(self) -> Tensor:
        return self._inside(torch.arange(self.num_targets), self.targets) * sum(b - a for a, b in self.sources)

    def flip(self) -> "Rectangle":
        return Rectangle(self.num_sources, self.num_targets, self.sources, self.targets)


def intervals(members: Tensor) -> tuple[tuple[int, int], ...]:
    """Sorted distinct int64 members (n,) as half-open intervals.

    Example:
        >>> intervals(torch.tensor([0, 1, 2, 7]))
        ((0, 3), (7, 8))
    """
    runs = _runs.from_pairs(torch.zeros_like(members), members)
    return tuple(zip(runs.lo.tolist(), runs.hi.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Cells(EdgeSet):
    """One axis cut into cells: ``(t - shift) // size == (s - shift) // size``."""

    num_targets: int
    size: int
    shift: int = 0

    @property
    def num_sources(self) -> int:  # type: ignore[override]
        return self.num_targets

    def _cell(self, x: Tensor) -> Tensor:
        return torch.div(x - self.shift, self.size, rounding_mode="floor")

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return self._cell(target) == self._cell(source)

    def runs(self, target: Tensor) -> Runs:
        lo = self._cell(target) * self.size + self.shift
        hi = (lo + self.size).clamp(max=self.num_targets)
        return Runs(torch.arange(target.numel()), lo.clamp(min=0), hi)

    def count(self) -> int:
        first = min(self.shift % self.size, self.num_targets)
        whole, rest = divmod(self.num_targets - first, self.size)
        return first**2 + whole * self.size**2 + rest**2

    def flip(self) -> "Cells":
        return self

    def compose(self, other: EdgeSet) -> EdgeSet | None:
        same = isinstance(other, Cells) and (other.num_targets, other.size, other.shift) == (
            self.num_targets,
            self.size,
            self.shift,
        )
        return self if same else None


class Partition(EdgeSet):
    """A target reads the sources that carry its label: packed documents, clusters, any disjoint cliques.

    Args:
        target_labels: int64 (T,).
        source_labels: int64 (S,); the targets' own by default.
    """

    def __init__(self, target_labels: Tensor, source_labels: Tensor | None = None) -> None:
        self.same = source_labels is None
        labels = target_labels if source_labels is None else source_labels
        _, joint = torch.unique(torch.cat((target_labels, labels)), return_inverse=True)
        self.of_target, self.of_source = joint[: target_labels.numel()], joint[target_labels.numel() :]
        self.num_targets, self.num_sources = self.of_target.numel(), self.of_source.numel()
        starts = torch.ones(self.num_sources, dtype=torch.bool)
        starts[1:] = self.of_source[1:] != self.of_source[:-1]
        lo = torch.nonzero(starts).flatten()
        hi = torch.cat((lo[1:], torch.tensor([self.num_sources])))[: lo.numel()]
        order = torch.argsort(self.of_source[lo], stable=True)
        self._lo, self._hi = lo[order], hi[order]
        num_labels = int(joint.max()) + 1 if joint.numel() else 0
        self._segments = torch.bincount(self.of_source[lo], minlength=num_labels)
        self._first = torch.cumsum(self._segments, 0) - self._segments

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return self.of_target.to(target.device)[target] == self.of_source.to(source.device)[source]

    @property
    def runs_per_row(self) -> int:
        return int(self._segments.max()) if self._segments.numel() else 1

    def runs(self, target: Tensor) -> Runs:
        label = self.of_target[target]
        row, within = _runs.spread(self._segments[label])
        segment = self._first[label][row] + within
        return Runs(row, self._lo[segment], self._hi[segment])

    def count(self) -> int:
        labels = self._segments.numel()
        sizes = (torch.bincount(x, minlength=labels) for x in (self.of_target, self.of_source))
        return int(torch.prod(torch.stack(tuple(sizes)), 0).sum())

    def flip(self) -> "Partition":
        return self if self.same else Partition(self.of_source, self.of_target)

    def compose(self, other: EdgeSet) -> EdgeSet | None:
        if not (isinstance(other, Partition) and self.same and other.same):
            return None
        return self if torch.equal(self.of_target, other.of_target) else None


@dataclass(frozen=True, eq=False)
class Neighbourhood(EdgeSet):
    """NATTEN's neighbourhood on one axis: ``kernel`` sources ``dilation`` apart, moved inwards at the borders.

    Within the group of positions of equal residue mod ``dilation``, ``stride`` neighbours share a leader, the one in
    their middle, and target ``p`` reads ``[c - kernel // 2, c + (kernel - 1) // 2]`` where ``c`` is its leader clamped
    so that the window fits; without ``clamp`` the window is cut at the borders. With ``causal`` the leader is the last
    of the neighbours, the window of ``kernel`` ends at it, and the target reads what of it is not ahead; at the start
    it shrinks instead of moving.
    """

    num_targets: int
    kernel: int
    dilation: int = 1
    causal: bool = False
    flipped: bool = False
    stride: int = 1
    clamp: bool = True

    @property
    def num_sources(self) -> int:  # type: ignore[override]
        return self.num_targets

    @property
    def runs_per_row(self) -> int:
        return 1 if self.dilation == 1 else self.kernel

    def _window(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """First and last position, within the residue's group, that ``x`` is joined with."""
        place, last = x // self.dilation, (self.num_targets - 1 - x % self.dilation) // self.dilation
        left, right, middle = self.kernel // 2, (self.kernel - 1) // 2, self.stride // 2
        if self.causal:
            if self.flipped:
                end = (place + self.kernel) // self.stride * self.stride - 1
                return place, torch.where(place + self.kernel > last, last, torch.minimum(end, last))
            leader = torch.minimum(place // self.stride * self.stride + self.stride - 1, last)
            return (leader - self.kernel + 1).clamp(min=0), place
        if not self.flipped:
            leader = place // self.stride * self.stride + middle
            if self.clamp:
                leader = torch.minimum(leader.clamp(min=left), last - right)
            return (leader - left).clamp(min=0), torch.minimum(leader + right, last)
        lo = (place - right - middle + self.stride - 1) // self.stride * self.stride
        hi = torch.minimum(((place + left - middle) // self.stride + 1) * self.stride - 1, last)
        if self.clamp:
            lo = torch.where(place <= left + right, 0, lo)
            hi = torch.where(place >= last - right - left, last, hi)
        return lo.clamp(min=0), hi

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        lo, hi = self._window(target)
        place = source // self.dilation
        return (target % self.dilation == source % self.dilation) & (place >= lo) & (place <= hi)

    def runs(self, target: Tensor) -> Runs:
        lo, hi = self._window(target)
        if self.dilation == 1:
            return Runs(torch.arange(target.numel()), lo, hi + 1)
        row, within = _runs.spread(hi - lo + 1)
        source = (lo[row] + within) * self.dilation + target[row] % self.dilation
        return Runs(row, source, source + 1)

    def count(self) -> int:
        whole, longer = divmod(self.num_targets, self.dilation)  # groups of equal residue have two lengths
        return longer * self._count(whole + 1) + (self.dilation - longer) * self._count(whole)

    def _count(self, length: int) -> int:
        """Edges within a group of so many places."""
        if self.clamp and not self.causal:
            return length * min(length, self.kernel)

        def of_cells(first: int, number: int) -> int:
            place = first * self.stride + (self.stride - 1 if self.causal else self.stride // 2)
            if self.causal:  # what lies before the window
                return clipped_sum(place - self.kernel + 1, self.stride, number, 0, max(0, length - self.kernel))
            end = clipped_sum(place + (self.kernel - 1) // 2, self.stride, number, 0, length - 1)
            return end + number - clipped_sum(place - self.kernel // 2, self.stride, number, 0, length - 1)

        total = sum_over_cells(length, self.stride, 0, of_cells)
        return length * (length + 1) // 2 - total if self.causal else total

    def flip(self) -> "Neighbourhood":
        return replace(self, flipped=not self.flipped)


class Product(EdgeSet):
    """An edge on every axis of a grid (the Kronecker product of the masks); the grid is row-major."""

    def __init__(self, axes: tuple[EdgeSet, ...]) -> None:
        self.axes = axes
        self.num_targets = math.prod(axis.num_targets for axis in axes)
        self.num_sources = math.prod(axis.num_sources for axis in axes)

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        inside: Tensor | None = None
        for axis in reversed(self.axes):
            here = axis.contains(target % axis.num_targets, source % axis.num_sources)
            inside = here if inside is None else inside & here
            target, source = target // axis.num_targets, source // axis.num_sources
        assert inside is not None
        return inside

    @property
    def runs_per_row(self) -> int:
        if self.num_targets == 0:
            return 1
        outer = math.prod(axis.sources_per_row for axis in self.axes[:-1])
        return max(1, outer * self.axes[-1].runs_per_row)

    def runs(self, target: Tensor) -> Runs:
        coordinates = []
        for axis in reversed(self.axes):
            coordinates.append(target % axis.num_targets)
            target = target // axis.num_targets
        n, result = target.numel(), None
        for axis, place in zip(self.axes, reversed(coordinates), strict=True):
            here = axis.runs(place)
            if result is None:
                result = here
                continue
            row, outer = _runs.expand(result)  # each outer place repeats the inner runs of its row
            counts = torch.bincount(here.row, minlength=n)
            first = torch.cumsum(counts, 0) - counts
            owner, within = _runs.spread(counts[row])
            inner = first[row][owner] + within
            base = outer[owner] * axis.num_sources
            result = Runs(row[owner], base + here.lo[inner], base + here.hi[inner])
        assert result is not None
        return result

    @property
    def count_cost(self) -> int:
        return sum(axis.count_cost for axis in self.axes)

    def count(self) -> int:
        return math.prod(axis.count() for axis in self.axes)

    def flip(self) -> "Product":
        return Product(tuple(axis.flip() for axis in self.axes))

    def compose(self, other: EdgeSet) -> EdgeSet | None:
        if not isinstance(other, Product) or len(other.axes) != len(self.axes):
            return None
        if any(a.num_sources != b.num_targets for a, b in zip(self.axes, other.axes, strict=True)):
            return None
        axes = [a.compose(b) for a, b in zip(self.axes, other.axes, strict=True)]
        return None if any(axis is None for axis in axes) else Product(tuple(a for a in axes if a is not None))


@dataclass(frozen=True, eq=False)
class Masked(EdgeSet):
    """The pairs where a bool mask (T, S) on the CPU is True; nothing is listed."""

    mask: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_targets", self.mask.shape[0])
        object.__setattr__(self, "num_sources", self.mask.shape[1])

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return self.mask[target, source]

    @property
    def runs_per_row(self) -> int:
        return max(1, self.num_sources)

    def runs(self, target: Tensor) -> Runs:
        return _runs.from_dense(self.mask[target])

    def count(self) -> int:
        return int(self.mask.sum())

    def flip(self) -> "Masked":
        return Masked(self.mask.T)


@dataclass(frozen=True, eq=False)
class Predicate(TestedByRow):
    """An arbitrary function of (target, source), called with int64 tensors that broadcast."""

    num_targets: int
    num_sources: int
    function: Callable[[Tensor, Tensor], Tensor]

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        shape = torch.broadcast_tensors(target, source)[0].shape  # broadcast_shapes imports sympy: seconds
        try:
            inside = self.function(target, source)
        except Exception as error:
            raise GraphError(
                f"the rule failed on int64 tensors of shapes {tuple(target.shape)} and {tuple(source.shape)}: {error}. "
                "It must work on whole tensors of targets and sources: write & | ~ and torch.where, not and/or/not/if"
            ) from error
        if isinstance(inside, bool):
            inside = torch.tensor(inside, device=target.device)
        if not isinstance(inside, Tensor) or inside.dtype != torch.bool:
            kind = inside.dtype if isinstance(inside, Tensor) else type(inside).__name__
            raise GraphError(f"the rule must return a bool tensor, got {kind}")
        try:
            return inside.expand(shape)
        except RuntimeError:
            raise GraphError(f"the rule must return the shape {tuple(shape)}, got {tuple(inside.shape)}") from None

    def flip(self) -> "Predicate":
        function = self.function
        return Predicate(self.num_sources, self.num_targets, lambda t, s: function(s, t))
