"""Set algebra on edges: of rules a rule, of listed edges a list where that is smaller."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import runs as _runs
from .edges import Edges, PairTest
from .forms import product, rectangle
from .limits import MAX_BYTES, refuse_over
from .listed import Listed, listed
from .runs import Runs

_JOINED_BYTES = 48  # per pair that @ joins: scipy's product, its copies and the list of edges
_SAMPLED = 64  # targets by which the cost of a product is estimated
_JOINED_AT_ONCE = 1 << 22  # rows of sources that @ joins together


# --- sets


def union(a: Edges, b: Edges) -> Edges:
    """Edges in either; listed edges keep the order of ``a``, then that of the new ones of ``b``."""
    if isinstance(a, Listed) and isinstance(b, Listed):
        ends = torch.cat((a.target, b.target)), torch.cat((a.source, b.source))
        return listed(*ends, a.num_targets, a.num_sources).distinct()
    return _joined(a, b, _runs.union, torch.logical_or)


def intersection(a: Edges, b: Edges) -> Edges:
    """Edges in both; listed if either is, in the order of the first listed one."""
    if not a.is_listed:
        a, b = b, a
    if not isinstance(a, Listed):
        return _joined(b, a, _runs.intersection, torch.logical_and)
    return a.keep(b.contains(a.target, a.source)).distinct()


def complement(a: Edges) -> Edges:
    """The pairs that are not edges."""
    T = a.num_targets
    S = a.num_sources

    def inverted(test: PairTest) -> PairTest:
        return lambda target, source: ~test(target, source)

    test = None
    if a.test is not None:
        test = inverted(a.test)
    return Edges(
        T,
        S,
        lambda target: _runs.complement(a.rows(target), target.numel(), S),
        runs_per_row=a.runs_per_row + 1,
        contains=inverted(a.contains),
        test=test,
        grid=a.grid,
    )


def difference(a: Edges, b: Edges) -> Edges:
    """Edges in ``a`` and not in ``b``."""
    return intersection(a, complement(b))


def _joined(
    a: Edges,
    b: Edges,
    of_runs: Callable[[Runs, Runs, int], Runs],
    of_tests: Callable[[Tensor, Tensor], Tensor],
) -> Edges:
    def joined(x: PairTest, y: PairTest) -> PairTest:
        return lambda target, source: of_tests(x(target, source), y(target, source))

    test = None
    if a.test is not None and b.test is not None:
        test = joined(a.test, b.test)
    return Edges(
        a.num_targets,
        a.num_sources,
        lambda target: of_runs(a.rows(target), b.rows(target), a.num_sources),
        runs_per_row=a.runs_per_row + b.runs_per_row,
        contains=joined(a.contains, b.contains),
        test=test,
        grid=a.grid or b.grid,
    )


# --- other nodes


def pulled_back(base: Edges, targets: Tensor, sources: Tensor) -> Edges:
    """The edges of another rule between the (distinct) nodes ``targets[i]`` and ``sources[i]``."""
    S = sources.numel()
    is_ascending = bool((sources.diff() > 0).all())
    runs_per_row = base.runs_per_row
    if not is_ascending:
        runs_per_row = min(S, base.mean_degree)

    def rows(target: Tensor) -> Runs:
        row, lo, hi = base.rows(targets[target])
        # an interval of the old indices is a stretch of the new ones in this order
        order = torch.argsort(sources)
        lo, hi = (torch.searchsorted(sources[order], end) for end in (lo, hi))
        if is_ascending:
            return Runs(row, lo, hi)
        owner, within = _runs.spread(hi - lo)
        return _runs.from_unsorted(row[owner], order[lo[owner] + within], S)

    return Edges(
        targets.numel(),
        S,
        rows,
        runs_per_row=runs_per_row,
        contains=lambda t, s: base.contains(targets.to(t.device)[t], sources.to(s.device)[s]),
    )


def union_of_blocks(
    cells: list[tuple[Edges, int, int]],
    num_targets: int,
    num_sources: int,
) -> Edges:
    """Sets of edges side by side, each with its first target and its first source.

    Sets that share rows come by ascending source.
    """

    def rows(target: Tensor) -> Runs:
        parts = [_runs.empty()]
        if target.numel() == 0:
            return parts[0]
        least, most = (int(end) for end in target.aminmax())
        for edges, first, source in cells:
            last = first + edges.num_targets
            if first > most or last <= least:
                continue
            here = torch.nonzero((target >= first) & (target < last)).flatten()
            row, lo, hi = edges.rows(target[here] - first)
            parts.append(Runs(here[row], lo + source, hi + source))
        row, lo, hi = map(torch.cat, zip(*parts, strict=True))
        order = torch.argsort(row, stable=True)
        return Runs(row[order], lo[order], hi[order])

    walked = sum(edges.num_runs for edges, _, _ in cells)
    return Edges(num_targets, num_sources, rows, runs_per_row=-(-walked // max(1, num_targets)))


def behind_tokens(base: Edges, number: int) -> Edges:
    """A set of edges preceded by ``number`` tokens that read all nodes and are read by all."""
    T = base.num_targets + number
    S = base.num_sources + number
    inner = union_of_blocks([(base, number, number)], T, S)
    return union(
        rectangle(T, S, ((0, number),), ((0, S),)),
        union(rectangle(T, S, ((0, T),), ((0, number),)), inner),
    )


# --- composition


def compose(a: Edges, b: Edges, limit: int | None = MAX_BYTES) -> Edges:
    """Pairs joined by an edge of ``b`` followed by an edge of ``a``; listed only if both are."""
    axes = _pairs_of_axes(a, b)
    if axes and all(x.num_sources == y.num_targets for x, y in axes):
        return product([compose(x, y) for x, y in axes])
    if isinstance(a, Listed) and isinstance(b, Listed):
        return _product_of_lists(a, b, limit)
    if _intervals(b) is None:
        runs_per_row = a.mean_degree * b.runs_per_row
    else:
        runs_per_row = a.runs_per_row

    def rows(target: Tensor) -> Runs:
        # stored, or a product of products would compute the inner ones again for every row
        a.stored()
        b.stored()
        return pulled(a.rows(target), target.numel(), b)

    runs_per_row = min(b.num_sources, runs_per_row)
    return Edges(a.num_targets, b.num_sources, rows, runs_per_row=runs_per_row)


def _pairs_of_axes(a: Edges, b: Edges) -> list[tuple[Edges, Edges]]:
    """The factors of two products of as many axes, pair by pair; empty for other edges."""
    if len(a.axes) != len(b.axes):
        return []
    return list(zip(a.axes, b.axes, strict=True))


def power(edges: Edges, k: int) -> Edges:
    """Edges composed ``k`` times with themselves, in O(log k) products."""
    if k == 1:
        return edges
    half = power(edges, k // 2)
    even = compose(half, half)
    if k % 2 == 0:
        return even
    return compose(even, edges)


def join_cost(a: Edges, b: Edges) -> int:
    """The approximate number of rows of sources that :func:`compose` joins, from a few targets."""
    axes = _pairs_of_axes(a, b)
    if axes:
        return sum(join_cost(x, y) for x, y in axes)
    if isinstance(a, Listed) and isinstance(b, Listed):
        return int((b.degrees() * torch.bincount(a.source.cpu(), minlength=a.num_sources)).sum())
    costs: list[int] = []
    number = min(_SAMPLED, a.num_targets)
    sample = torch.linspace(0, a.num_targets - 1, number, dtype=torch.float64).long()
    pulled(a.rows(sample), sample.numel(), b, costs.append)
    return sum(costs) * a.num_targets // max(1, sample.numel())


def pulled(
    reached: Runs,
    num_rows: int,
    edges: Edges,
    spend: Callable[[int], None] = lambda joined: None,
) -> Runs:
    """The sources that each row reads through ``edges``, from the targets in ``reached``.

    Before rows of sources are joined, ``spend`` is called with their number.
    """
    reached = _runs.canonical(reached)
    first = _runs.first_alike(reached.row, torch.stack((reached.lo, reached.hi)), num_rows)
    heads, alike = torch.unique(first, return_inverse=True)
    repeated = 2 * heads.numel() <= num_rows
    if repeated:  # only the first of equal rows
        keep = (first == torch.arange(num_rows))[reached.row]
        row, lo, hi = (part[keep] for part in reached)
        reached = Runs(alike[row], lo, hi)
    ends = _intervals(edges)
    if ends is None:
        spend(int((reached.hi - reached.lo).sum()))
        joined = _through_rows(reached, edges)
    else:
        joined = _through_intervals(reached, *ends)
        spend(joined.row.numel())
    result = _runs.in_order(joined, edges.num_sources)
    if repeated:
        return _runs.chosen(result, alike)
    return result


def _intervals(edges: Edges) -> tuple[Tensor, Tensor] | None:
    """Both ends of each target's interval of sources, if every target has exactly one."""
    stored = edges.stored()
    if stored is None or bool((stored.ptr.diff() > 1).any()):
        return None
    lo, hi = (torch.zeros(edges.num_targets, dtype=torch.int64) for _ in range(2))
    has_one = stored.ptr.diff() == 1
    lo[has_one] = stored.lo.long()
    hi[has_one] = stored.hi.long()
    return lo, hi


def _through_intervals(reached: Runs, lo: Tensor, hi: Tensor) -> Runs:
    """The runs of consecutive targets whose intervals touch: from the least source to the last."""
    apart = torch.ones_like(lo, dtype=torch.bool)
    apart[1:] = (lo[1:] > hi[:-1]) | (hi[1:] < lo[:-1])
    stretch = torch.cumsum(apart, 0) - 1
    begin = torch.nonzero(apart).flatten()
    end = torch.cat((begin[1:], torch.tensor([lo.numel()])))[: begin.numel()]
    first = stretch[reached.lo]
    last = stretch[reached.hi - 1]
    owner, within = _runs.spread(last - first + 1)
    which = first[owner] + within
    start = torch.maximum(reached.lo[owner], begin[which])
    stop = torch.minimum(reached.hi[owner], end[which])
    return Runs(reached.row[owner], -_most(-lo, start, stop), _most(hi, start, stop))


def _most(value: Tensor, start: Tensor, stop: Tensor) -> Tensor:
    """The largest value of each interval ``[start, stop)``.

    Two intervals, as long as the next lower power of two, cover it.
    """
    result = torch.zeros_like(start)
    level = torch.log2((stop - start).double()).floor().long()
    num_levels = 0
    if level.numel():
        num_levels = int(level.max()) + 1
    for step in range(num_levels):
        here = level == step
        result[here] = torch.maximum(value[start[here]], value[stop[here] - (1 << step)])
        half = 1 << step
        value = torch.maximum(value[: max(0, value.numel() - half)], value[half:])
    return result


def _through_rows(reached: Runs, edges: Edges) -> Runs:
    """The runs of every target reached, for the row that reached it; rows are sorted in chunks."""
    lengths = torch.cumsum(reached.hi - reached.lo, 0)
    parts = [_runs.empty()]
    first = 0
    while first < reached.row.numel():
        before = 0
        if first:
            before = int(lengths[first - 1])
        last = max(first + 1, int(torch.searchsorted(lengths, before + _JOINED_AT_ONCE)))
        row, target = _runs.expand(Runs(*(part[first:last] for part in reached)))
        distinct, place = torch.unique(target, return_inverse=True)
        runs = _runs.chosen(edges.rows(distinct), place)
        parts.append(_runs.in_order(Runs(row[runs.row], runs.lo, runs.hi), edges.num_sources))
        first = last
    return Runs(*map(torch.cat, zip(*parts, strict=True)))


def _product_of_lists(a: Listed, b: Listed, limit: int | None) -> Edges:
    T = a.num_targets
    S = b.num_sources
    pairs = min(join_cost(a, b), T * S)
    refuse_over(
        _JOINED_BYTES * pairs,
        f"@ of up to {pairs:,} pairs",
        "compose a part of it, a subgraph()",
        limit,
    )
    x = _adjacency(a)
    y = _adjacency(b)
    reach = x.astype(np.int64) @ y.astype(np.int64)
    reach.sort_indices()
    target = np.repeat(np.arange(T), np.diff(reach.indptr))
    return listed(torch.from_numpy(target), torch.from_numpy(reach.indices.astype(np.int64)), T, S)


def _adjacency(edges: Listed) -> Any:
    from scipy.sparse import csr_matrix  # slow to import

    target = edges.target.cpu().numpy()
    source = edges.source.cpu().numpy()
    ones = np.ones(len(target), dtype=bool)
    return csr_matrix((ones, (target, source)), shape=(edges.num_targets, edges.num_sources))


def as_list(edges: Edges, limit: int | None = MAX_BYTES) -> Listed:
    """The edges one by one, unless that takes more than ``limit`` bytes."""
    if isinstance(edges, Listed):
        return edges
    count = edges.count()
    remedy = (
        "keep it a rule, use contains(), block_counts() or mask(), or ask for "
        "materialise(max_bytes=None)"
    )
    refuse_over(16 * count, f"edge_index of {count:,} edges", remedy, limit)
    return listed(*edges.pairs(), edges.num_targets, edges.num_sources, has_repeats=False)
