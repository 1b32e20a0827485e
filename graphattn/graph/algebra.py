"""Set algebra on edges. Rules give rules; listed edges give listed edges where that is the smaller thing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import whole
from ..errors import GraphError
from . import runs as _runs
from .edge_set import EdgeSet, TestedByRow
from .listed import Listed
from .rules import Rectangle, intervals
from .runs import Runs

MAX_BYTES = 4 << 30  # what a property may take without an explicit budget
_ASKED = 4  # targets and sources of a rule that is asked whether it has all pairs
_JOINED_BYTES = 48  # of a pair that @ joins: scipy's product, its copies and the list of edges


def refuse_over(num_bytes: int, what: str, instead: str, limit: int | None = MAX_BYTES) -> None:
    """Raise a GraphError if ``what`` would take more than ``limit`` bytes."""
    if limit is not None and num_bytes > limit:
        raise GraphError(f"{what} would take {num_bytes:,} bytes (limit {limit:,}); {instead}")


def every_node(size: int) -> Tensor:
    """The numbers of all nodes, or a GraphError where they do not fit."""
    refuse_over(8 * size, f"the numbers of {size:,} nodes", "take a smaller graph")
    return torch.arange(size)


class _Pair(EdgeSet):
    """Two sets of edges over the same nodes."""

    def __init__(self, a: EdgeSet, b: EdgeSet) -> None:
        self.a, self.b = a, b
        self.num_targets, self.num_sources = a.num_targets, a.num_sources

    @property
    def runs_per_row(self) -> int:
        return self.a.runs_per_row + self.b.runs_per_row


class Union(_Pair):
    """Edges in either."""

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return self.a.contains(target, source) | self.b.contains(target, source)

    def runs(self, target: Tensor) -> Runs:
        return _runs.union(self.a.runs(target), self.b.runs(target), self.num_sources)

    def flip(self) -> EdgeSet:
        return Union(self.a.flip(), self.b.flip())


class Intersection(_Pair):
    """Edges in both."""

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return self.a.contains(target, source) & self.b.contains(target, source)

    def runs(self, target: Tensor) -> Runs:
        return _runs.intersection(self.a.runs(target), self.b.runs(target), self.num_sources)

    def flip(self) -> EdgeSet:
        return Intersection(self.a.flip(), self.b.flip())


@dataclass(frozen=True, eq=False)
class Complement(EdgeSet):
    """The pairs that are not edges."""

    base: EdgeSet

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_targets", self.base.num_targets)
        object.__setattr__(self, "num_sources", self.base.num_sources)

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        return ~self.base.contains(target, source)

    @property
    def runs_per_row(self) -> int:
        return self.base.runs_per_row + 1

    def runs(self, target: Tensor) -> Runs:
        return _runs.complement(self.base.runs(target), target.numel(), self.num_sources)

    @property
    def _distinct(self) -> EdgeSet:
        return self.base.distinct() if isinstance(self.base, Listed) else self.base

    @property
    def count_cost(self) -> int:
        return self.base.count_cost

    def count(self) -> int:
        return self.num_targets * self.num_sources - self._distinct.count()

    def degrees(self) -> Tensor:
        return self.num_sources - self._distinct.degrees()

    def flip(self) -> EdgeSet:
        return Complement(self.base.flip())


class Pullback(TestedByRow):
    """Node ``i`` here is (distinct) node ``targets[i]`` or ``sources[i]`` of another rule: subgraphs, relabelling."""

    def __init__(self, base: EdgeSet, targets: Tensor, sources: Tensor) -> None:
        self.base, self.targets, self.sources = base, targets, sources
        self.num_targets, self.num_sources = targets.numel(), sources.numel()

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        mapped = self.targets.to(target.device)[target], self.sources.to(source.device)[source]
        return self.base.contains(*mapped)

    @property
    def runs_per_row(self) -> int:
        return max(1, min(self.num_sources, self.base.sources_per_row))

    def runs(self, target: Tensor) -> Runs:
        if self.base.sources_per_row >= self.num_sources:
            return super().runs(target)
        new = torch.full((self.base.num_sources,), -1)
        new[self.sources] = torch.arange(self.num_sources)
        row, source = _runs.expand(self.base.runs(self.targets[target]))
        row, source = row[new[source] >= 0], new[source][new[source] >= 0]
        key = torch.sort(row * max(1, self.num_sources) + source).values
        return _runs.from_pairs(key // max(1, self.num_sources), key % max(1, self.num_sources))

    def flip(self) -> EdgeSet:
        return Pullback(self.base.flip(), self.sources, self.targets)


class Blocks(EdgeSet):
    """Several sets of edges side by side, without an edge between them."""

    def __init__(self, parts: tuple[EdgeSet, ...]) -> None:
        self.parts = parts
        self.num_targets = whole(sum(p.num_targets for p in parts), "the number of targets of all parts", 0, GraphError)
        self.num_sources = whole(sum(p.num_sources for p in parts), "the number of sources of all parts", 0, GraphError)
        self._target = torch.tensor([0] + [p.num_targets for p in parts]).cumsum(0)
        self._source = torch.tensor([0] + [p.num_sources for p in parts]).cumsum(0)

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        target, source = torch.broadcast_tensors(target, source)
        inside = torch.zeros(target.shape, dtype=torch.bool, device=target.device)
        for part, t0, s0 in zip(self.parts, self._target.tolist(), self._source.tolist(), strict=False):
            here = (target >= t0) & (target < t0 + part.num_targets)
            here &= (source >= s0) & (source < s0 + part.num_sources)
            inside[here] = part.contains(target[here] - t0, source[here] - s0)
        return inside

    @property
    def runs_per_row(self) -> int:
        return max((part.runs_per_row for part in self.parts), default=1)

    def runs(self, target: Tensor) -> Runs:
        parts, owner = [], torch.searchsorted(self._target, target, right=True) - 1
        for i in torch.unique(owner).tolist():
            rows = torch.nonzero(owner == i).flatten()
            row, lo, hi = self.parts[i].runs(target[rows] - self._target[i])
            parts.append(Runs(rows[row], lo + self._source[i], hi + self._source[i]))
        if not parts:
            return _runs.empty()
        row, lo, hi = (torch.cat(part) for part in zip(*parts, strict=True))
        order = torch.argsort(row, stable=True)
        return Runs(row[order], lo[order], hi[order])

    @property
    def count_cost(self) -> int:
        return sum(part.count_cost for part in self.parts)

    def count(self) -> int:
        return sum(part.count() for part in self.parts)

    def flip(self) -> EdgeSet:
        return Blocks(tuple(part.flip() for part in self.parts))


def union(a: EdgeSet, b: EdgeSet) -> EdgeSet:
    """Edges in either; listed edges keep ``a``'s order, then ``b``'s new ones in theirs."""
    if (
        isinstance(a, Union)
        and isinstance(a.b, Listed)
        and isinstance(b, Listed)
        and a.b.source.device == b.source.device
    ):
        return Union(a.a, union(a.b, b))  # one list, however often it grows
    if not (isinstance(a, Listed) and isinstance(b, Listed)):
        return Union(a, b)
    both = Listed(torch.cat((a.target, b.target)), torch.cat((a.source, b.source)), a.num_targets, a.num_sources)
    return both.distinct()


def intersection(a: EdgeSet, b: EdgeSet) -> EdgeSet:
    """Edges in both; listed if either is, in the first listed one's order."""
    if not isinstance(a, Listed):
        a, b = b, a
    if not isinstance(a, Listed):
        return Intersection(b, a)
    return a.keep(b.contains(a.target, a.source)).distinct()


def complement(a: EdgeSet) -> EdgeSet:
    """The pairs that are not edges."""
    return a.base if isinstance(a, Complement) and not a.base.has_repeats else Complement(a)


def difference(a: EdgeSet, b: EdgeSet) -> EdgeSet:
    """Edges in ``a`` and not in ``b``."""
    return intersection(a, complement(b))


def listed(edges: EdgeSet, limit: int | None = MAX_BYTES) -> Listed:
    """The edges one by one, unless that takes more than ``limit`` bytes."""
    if isinstance(edges, Listed):
        return edges
    instead = "keep it a rule, use contains(), tile_counts() or mask(), or ask for explicit(max_bytes=None)"
    refuse_over(16 * edges.count(), f"edge_index of {edges.count():,} edges", instead, limit)
    return Listed(*edges.pairs(), edges.num_targets, edges.num_sources, has_repeats=edges.has_repeats)


def _members(degrees: Tensor) -> tuple[tuple[int, int], ...]:
    return intervals(torch.nonzero(degrees).flatten())


def compose(a: EdgeSet, b: EdgeSet, limit: int | None = MAX_BYTES) -> EdgeSet:
    """Pairs joined by an edge of ``b`` followed by an edge of ``a``."""
    closed = closed_product(a, b)
    if closed is not None:
        return closed
    T, S = a.num_targets, b.num_sources
    first, then = listed(b, limit), listed(a, limit)
    walks = int((first.degrees() * torch.bincount(then.source.cpu(), minlength=a.num_sources)).sum())
    pairs = min(walks, T * S)
    refuse_over(_JOINED_BYTES * pairs, f"@ of up to {pairs:,} pairs", "compose a part of it, a subgraph()", limit)
    x, y = _adjacency(then), _adjacency(first)
    reach = x.astype(np.int64) @ y.astype(np.int64)
    reach.sort_indices()
    target = np.repeat(np.arange(T), np.diff(reach.indptr))
    return Listed(torch.from_numpy(target), torch.from_numpy(reach.indices.astype(np.int64)), T, S)


def closed_product(a: EdgeSet, b: EdgeSet) -> EdgeSet | None:
    """:func:`compose` where it takes no walk along the edges."""
    closed = a.compose(b)
    if closed is not None:
        return closed
    T, S = a.num_targets, b.num_sources
    if _is_full(a):  # everything is read: what b's sources reach, all reach
        return Rectangle(T, S, ((0, T),) if T else (), _members(b.flip().degrees()))
    if _is_full(b):
        return Rectangle(T, S, _members(a.degrees()), ((0, S),) if S else ())
    return None


def _is_full(edges: EdgeSet) -> bool:
    """Whether a rule has all pairs; some of them are asked for before all are counted."""
    T, S = edges.num_targets, edges.num_sources
    if isinstance(edges, Listed):
        return False
    target, source = (torch.linspace(0, size - 1, _ASKED, dtype=torch.float64).long() for size in (T, S))
    return T * S == 0 or (bool(edges.contains(target[:, None], source).all()) and edges.count() == T * S)


def closed_power(edges: EdgeSet, k: int) -> EdgeSet | None:
    """A rule composed ``k`` times with itself, by O(log k) closed forms; None where one is lacking."""
    if k == 1:
        return edges
    half = closed_power(edges, k // 2)
    even = None if half is None else half.compose(half)
    return even if even is None or k % 2 == 0 else even.compose(edges)


def _adjacency(edges: Listed) -> Any:
    from scipy.sparse import csr_matrix  # slow to import

    target, source = edges.target.cpu().numpy(), edges.source.cpu().numpy()
    ones = np.ones(len(target), dtype=bool)
    return csr_matrix((ones, (target, source)), shape=(edges.num_targets, edges.num_sources))
