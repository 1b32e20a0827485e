"""Graphs made of graphs: blocks that read blocks, and a matrix of graphs between several sets of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import whole
from ..errors import GraphError
from . import runs as _runs
from .edge_set import EdgeSet
from .runs import Runs


@dataclass(frozen=True, eq=False)
class Lifted(EdgeSet):
    """Tokens read as their blocks do: token ``t`` is in block ``t // block``, the last block may be cut.

    Args:
        base: Over ``ceil(num_targets / block)`` and ``ceil(num_sources / block)`` blocks; no repeated edges.
        block: Tokens in a block.
        num_targets: T.
        num_sources: S.
    """

    base: EdgeSet
    block: int
    num_targets: int
    num_sources: int

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return self.base.contains(target // self.block, source // self.block)

    @property
    def runs_per_row(self) -> int:
        return self.base.runs_per_row

    def runs(self, target: Tensor) -> Runs:
        row, lo, hi = self.base.runs(target // self.block)
        lo, hi = ((end * self.block).clamp(max=self.num_sources) for end in (lo, hi))  # an empty run may lie at the end
        return Runs(row, lo, hi)

    @property
    def count_cost(self) -> int:
        return self.base.count_cost

    def count(self) -> int:
        rows, columns = self.base.num_targets, self.base.num_sources
        no_target, no_source = rows * self.block - self.num_targets, columns * self.block - self.num_sources
        pairs = self.block**2 * self.base.count()
        if no_target:  # the last block of targets lacks some, and so on
            pairs -= no_target * self.block * _of_last(self.base)
        if no_source:
            pairs -= no_source * self.block * _of_last(self.base.flip())
        if no_target and no_source:
            pairs += no_target * no_source * int(self.base.contains(_last(rows), _last(columns)).sum())
        return pairs

    def flip(self) -> "Lifted":
        return Lifted(self.base.flip(), self.block, self.num_sources, self.num_targets)

    def compose(self, other: EdgeSet) -> EdgeSet | None:
        if not isinstance(other, Lifted) or self.block != other.block:
            return None
        base = self.base.compose(other.base)  # no block is empty, so a stop in a block is a stop at a token
        return None if base is None else Lifted(base, self.block, self.num_targets, other.num_sources)


def _last(size: int) -> Tensor:
    return torch.tensor([size - 1])


def _of_last(edges: EdgeSet) -> int:
    """Sources of the last target."""
    _, lo, hi = edges.runs(_last(edges.num_targets))
    return int((hi - lo).sum())


class Composite(EdgeSet):
    """A matrix of sets of edges: rows share their targets, columns their sources.

    Args:
        rows: ``None`` where there is no edge; sizes agree along rows and columns.
        targets: Number of targets of every row.
        sources: Number of sources of every column.
    """

    def __init__(
        self, rows: Sequence[Sequence[EdgeSet | None]], targets: Sequence[int], sources: Sequence[int]
    ) -> None:
        self.rows, self.targets, self.sources = rows, targets, sources
        self.num_targets = whole(sum(targets), "the number of targets of all rows", 0, GraphError)
        self.num_sources = whole(sum(sources), "the number of sources of all columns", 0, GraphError)
        starts = [torch.tensor([0, *sizes]).cumsum(0).tolist() for sizes in (targets, sources)]
        self._cells = [
            (cell, starts[0][i], starts[1][j])
            for i, row in enumerate(rows)
            for j, cell in enumerate(row)
            if cell is not None
        ]

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        target, source = torch.broadcast_tensors(target, source)
        inside = torch.zeros(target.shape, dtype=torch.bool, device=target.device)
        for cell, t0, s0 in self._cells:
            here = (target >= t0) & (target < t0 + cell.num_targets)
            here &= (source >= s0) & (source < s0 + cell.num_sources)
            inside[here] = cell.contains(target[here] - t0, source[here] - s0)
        return inside

    @property
    def runs_per_row(self) -> int:
        return max((sum(cell.runs_per_row for cell in row if cell is not None) for row in self.rows), default=1) or 1

    def runs(self, target: Tensor) -> Runs:
        parts = [_runs.empty()]
        for cell, t0, s0 in self._cells:
            here = torch.nonzero((target >= t0) & (target < t0 + cell.num_targets)).flatten()
            row, lo, hi = cell.runs(target[here] - t0)
            parts.append(Runs(here[row], lo + s0, hi + s0))
        row, lo, hi = (torch.cat(part) for part in zip(*parts, strict=True))
        order = torch.argsort(row, stable=True)
        return Runs(row[order], lo[order], hi[order])

    @property
    def count_cost(self) -> int:
        return sum(cell.count_cost for cell, _, _ in self._cells)

    def count(self) -> int:
        return sum(cell.count() for cell, _, _ in self._cells)

    def flip(self) -> "Composite":
        columns = [
            [None if cell is None else cell.flip() for cell in column] for column in zip(*self.rows, strict=True)
        ]
        return Composite(columns, self.sources, self.targets)
