"""Rules of grids beside cells and neighbourhoods: windows that cells share, balls, and tokens in front."""

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor

from . import runs as _runs
from .edge_set import EdgeSet
from .rules import clipped_sum, sum_over_cells
from .runs import Runs


@dataclass(frozen=True, eq=False)
class CellWindow(EdgeSet):
    """One axis: targets cut into cells, each of which reads one window of sources: halos, padding, pooling.

    With ``c = (t - shift) // cell`` target ``t`` reads the sources ``start + c * step <= s < start + c * step + width``
    that exist.
    """

    num_targets: int
    num_sources: int
    cell: int
    step: int
    width: int
    start: int = 0
    shift: int = 0
    flipped: bool = False

    def _window(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The half-open interval of the other side that ``x`` is joined with, cut at the ends."""
        if self.flipped:  # the cells whose window holds x are neighbours, too
            first = torch.div(x - self.start - self.width, self.step, rounding_mode="floor") + 1
            last = torch.div(x - self.start, self.step, rounding_mode="floor")
            lo, hi = first * self.cell + self.shift, (last + 1) * self.cell + self.shift
        else:
            lo = torch.div(x - self.shift, self.cell, rounding_mode="floor") * self.step + self.start
            hi = lo + self.width
        lo = lo.clamp(0, self.num_sources)
        return lo, torch.maximum(hi.clamp(max=self.num_sources), lo)

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        lo, hi = self._window(target)
        return (source >= lo) & (source < hi)

    def runs(self, target: Tensor) -> Runs:
        return Runs(torch.arange(target.numel()), *self._window(target))

    def count(self) -> int:
        if self.flipped:
            return self.flip().count()
        begin, size = self.start + -self.shift // self.cell * self.step, self.num_sources
        inside = partial(clipped_sum, step=self.step, lo=0, hi=size)

        def of_cells(first: int, number: int) -> int:
            place = begin + first * self.step
            return inside(place + self.width, number=number) - inside(place, number=number)

        return sum_over_cells(self.num_targets, self.cell, -self.shift % self.cell, of_cells)

    def flip(self) -> "CellWindow":
        sizes = {"num_targets": self.num_sources, "num_sources": self.num_targets}
        return replace(self, **sizes, flipped=not self.flipped)


class Ball(EdgeSet):
    """A row-major grid whose nodes read those at a distance of at most ``r`` (below ``r`` if ``strict``), in L_p.

    Args:
        grid: Length of every axis.
        r: In steps of the grid.
        p: At least 1; ``inf`` is the largest difference of an axis. Distances are float64, rounded as numpy rounds.
        strict: Leave out the nodes at a distance of exactly ``r``.
    """

    def __init__(self, grid: tuple[int, ...], r: float, p: float, strict: bool) -> None:
        self.grid = grid
        self.num_targets = self.num_sources = math.prod(grid)
        reach = [max(0, min(length - 1, int(min(r, length)))) for length in grid]  # steps away on each axis, at most
        offset = np.array(list(product(*(range(-far, far + 1) for far in reach[:-1]))), dtype=np.int64)
        few, most = np.full(len(offset), -1), np.full(len(offset), reach[-1])
        while (few < most).any():  # bisection for the widest row inside the ball
            middle = few + (most - few + 1) // 2
            distance = _norm(np.concatenate((offset, middle[:, None]), 1), p)
            inside = distance < r if strict else distance <= r
            few, most = np.where(inside, middle, few), np.where(inside, most, middle - 1)
        self._reach = torch.tensor(reach[:-1], dtype=torch.int64)
        self._offset = torch.from_numpy(offset)  # (K, axes - 1), row-major
        self._half = torch.from_numpy(few)  # (K,) steps each way on the last axis; -1: none

    def _places(self, node: Tensor) -> list[Tensor]:
        """Coordinates, first axis first."""
        places: list[Tensor] = []
        for length in reversed(self.grid):
            places.insert(0, node % length)
            node = node // length
        return places

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        here, there = self._places(target), self._places(source)
        place, inside = torch.zeros_like(target + source), torch.ones_like(target + source, dtype=torch.bool)
        for far, a, b in zip(self._reach.tolist(), here, there, strict=False):
            inside = inside & ((b - a).abs() <= far)
            place = place * (2 * far + 1) + (b - a).clamp(-far, far) + far
        return inside & ((there[-1] - here[-1]).abs() <= self._half.to(place.device)[place])

    @property
    def runs_per_row(self) -> int:
        return max(1, self._half.numel())

    def runs(self, target: Tensor) -> Runs:
        here = self._places(target)
        near = torch.nonzero(self._half >= 0).flatten()
        exists = torch.ones(target.numel(), near.numel(), dtype=torch.bool)
        line = torch.zeros(target.numel(), near.numel(), dtype=torch.int64)
        for axis, length in enumerate(self.grid[:-1]):
            there = here[axis][:, None] + self._offset[near, axis]
            exists &= (there >= 0) & (there < length)
            line = line * length + there
        row, which = torch.nonzero(exists, as_tuple=True)
        middle, half, last = here[-1][row], self._half[near][which], self.grid[-1] - 1
        base = line[row, which] * self.grid[-1]
        return Runs(row, base + (middle - half).clamp(min=0), base + (middle + half).clamp(max=last) + 1)

    def count(self) -> int:
        total = 0
        for there, half in zip(self._offset.tolist(), self._half.tolist(), strict=True):
            lines = 1
            for length, away in zip(self.grid[:-1], there, strict=True):
                lines *= max(0, length - abs(away))
            if half >= 0:  # pairs on a line of n nodes at most `half` apart
                n = self.grid[-1]
                half = min(half, max(0, n - 1))
                total += lines * (n * (2 * half + 1) - half * (half + 1))
        return total

    def flip(self) -> "Ball":
        return self


def _norm(steps: np.ndarray, p: float) -> np.ndarray:
    """The L_p norm of rows of whole numbers, float64; exact on the axes."""
    steps = steps.astype(np.float64)
    if p in (1, 2, np.inf):
        return np.linalg.norm(steps, ord=p, axis=1)
    most = np.abs(steps).max(1)  # taken out, so that no power overflows
    return most * np.linalg.norm(steps / np.maximum(most, 1)[:, None], ord=p, axis=1)


class WithGlobalTokens(EdgeSet):
    """Another set of edges behind ``number`` tokens that read all and are read by all."""

    def __init__(self, base: EdgeSet, number: int) -> None:
        self.base, self.number = base, number
        self.num_targets, self.num_sources = base.num_targets + number, base.num_sources + number

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        target, source = torch.broadcast_tensors(target - self.number, source - self.number)
        inside = (target < 0) | (source < 0)
        rest = ~inside
        inside[rest] = self.base.contains(target[rest], source[rest])
        return inside

    @property
    def runs_per_row(self) -> int:
        return self.base.runs_per_row + 1

    def runs(self, target: Tensor) -> Runs:
        reads_all = target < self.number
        rows = torch.nonzero(~reads_all).flatten()
        row, lo, hi = self.base.runs(target[rows] - self.number)
        behind = Runs(rows[row], lo + self.number, hi + self.number)
        front = Runs(
            torch.arange(target.numel()),
            torch.zeros_like(target),
            torch.where(reads_all, self.num_sources, self.number),
        )
        return _runs.union(front, behind, self.num_sources)

    @property
    def count_cost(self) -> int:
        return self.base.count_cost

    def count(self) -> int:
        return self.number * (self.num_targets + self.base.num_sources) + self.base.count()

    def flip(self) -> "WithGlobalTokens":
        return WithGlobalTokens(self.base.flip(), self.number)
