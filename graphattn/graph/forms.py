"""Sets of edges for builders: bands, rectangles, partitions, products, functions and masks."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..errors import GraphError
from . import runs as _runs
from .edges import Edges, PairTest, Stored
from .limits import refuse_over
from .runs import Runs
from .sort import offsets

FAR = 1 << 62  # a band without a border
_PAIRS_AT_ONCE = 1 << 26  # pairs per call of a function
_LONGEST_ROW = 1 << 28  # limit of the sources per target in such a call

# targets (n,) -> first source, and last source + 1
Ends = Callable[[Tensor], tuple[Tensor, Tensor]]


def one_run(
    num_targets: int,
    num_sources: int,
    ends: Ends,
    test: PairTest | None = None,
    count: int | None = None,
) -> Edges:
    """Every target reads one interval of sources, clamped to ``[0, S)``."""

    def rows(target: Tensor) -> Runs:
        lo, hi = ends(target)
        lo = lo.clamp(0, num_sources)
        return Runs(torch.arange(target.numel()), lo, torch.maximum(hi.clamp(max=num_sources), lo))

    return Edges(num_targets, num_sources, rows, test=test, count=count)


def band(
    num_targets: int,
    num_sources: int,
    lo: int = -FAR,
    hi: int = FAR,
    step: int = 1,
    offset: int = 0,
) -> Edges:
    """``lo <= t - s + offset <= hi``, a multiple of ``step``: full, causal and window graphs."""
    lo = -(-max(lo, offset - (num_sources - 1)) // step) * step
    hi = min(hi, offset + num_targets - 1) // step * step

    def test(target: Tensor, source: Tensor) -> Tensor:
        distance = target - source + offset
        inside = (distance >= lo) & (distance <= hi)
        if step == 1:
            return inside
        return inside & (distance % step == 0)

    count = _count_of_band(num_targets, num_sources, lo - offset, hi - offset, step)

    def rows(target: Tensor) -> Runs:
        # s = t + offset - k * step, for each k with 0 <= s < S and lo <= k * step <= hi
        most = torch.div(target + offset, step, rounding_mode="floor").clamp(max=hi // step)
        least = -torch.div(num_sources - 1 - target - offset, step, rounding_mode="floor")
        least = least.clamp(min=lo // step)
        row, within = _runs.spread((most - least + 1).clamp(min=0))
        source = target[row] + offset - (most[row] - within) * step
        return Runs(row, source, source + 1)

    def ends(target: Tensor) -> tuple[Tensor, Tensor]:
        return target + (offset - hi), target + (offset - lo + 1)

    if step == 1:
        edges = one_run(num_targets, num_sources, ends, test, count)
    else:
        runs_per_row = (hi - lo) // step + 1
        edges = Edges(
            num_targets, num_sources, rows, runs_per_row=runs_per_row, test=test, count=count
        )
    edges.diagonals = range(lo - offset, hi - offset + 1, step)
    return edges


def _count_of_band(num_targets: int, num_sources: int, lo: int, hi: int, step: int) -> int:
    """Pairs with ``t - s`` in ``range(lo, hi + 1, step)``: a rising, a level and a falling part."""

    def total(first: int, last: int, pairs: Callable[[int], int]) -> int:
        if first <= lo:
            first = lo
        else:
            first = lo + -(-(first - lo) // step) * step
        if last < first:
            return 0
        number = (last - first) // step + 1
        return number * (pairs(first) + pairs(first + (number - 1) * step)) // 2

    if 0 in (num_targets, num_sources):
        return 0
    rise, fall = sorted((0, num_targets - num_sources))
    return (
        total(lo, min(hi, rise), lambda d: num_sources + d)
        + total(rise + 1, min(hi, fall), lambda d: min(num_targets, num_sources))
        + total(fall + 1, hi, lambda d: num_targets - d)
    )


def distances(num_targets: int, num_sources: int, ascending: Sequence[int]) -> Edges:
    """``t - s`` is one of a few numbers, given in ascending order."""
    away = torch.tensor(ascending, dtype=torch.int64).flip(0)

    def rows(target: Tensor) -> Runs:
        source = target[:, None] - away
        row = torch.arange(target.numel())[:, None].expand_as(source)
        inside = (source >= 0) & (source < num_sources)
        return Runs(row[inside], source[inside], source[inside] + 1)

    return Edges(num_targets, num_sources, rows, runs_per_row=len(ascending))


def stretch_of_order(lo: Tensor, hi: Tensor, order: Tensor) -> Edges:
    """Target ``t`` reads ``order[lo[t]], ..., order[hi[t] - 1]``, such as a patch along a curve.

    Args:
        lo, hi: int64 (T,) on the CPU, ``0 <= lo <= hi <= S``.
        order: All sources, int64 (S,) on the CPU.
    """
    S = order.numel()
    if torch.equal(order, torch.arange(S)):
        return one_run(lo.numel(), S, lambda target: (lo[target], hi[target]))
    rank = order.argsort()

    def rows(target: Tensor) -> Runs:
        row, within = _runs.spread(hi[target] - lo[target])
        return _runs.from_unsorted(row, order[lo[target][row] + within], S)

    def contains(target: Tensor, source: Tensor) -> Tensor:
        place = rank.to(source.device)[source]
        return (lo.to(target.device)[target] <= place) & (place < hi.to(target.device)[target])

    per_row = -(-int((hi - lo).sum()) // max(1, lo.numel()))
    length = hi - lo
    return Edges(
        lo.numel(),
        S,
        rows,
        runs_per_row=per_row,
        contains=contains,
        lengths=lambda target: length[target],
    )


def of_runs(runs: Runs, num_targets: int, num_sources: int) -> Edges:
    """Runs of all rows, sorted by row."""
    ptr = offsets(torch.bincount(runs.row, minlength=num_targets))
    per_row = -(-runs.row.numel() // max(1, num_targets))
    return Edges(num_targets, num_sources, Stored(ptr, runs.lo, runs.hi).rows, runs_per_row=per_row)


def first_of_block(number: Tensor, block: int, size: int) -> Tensor:
    """The first node of a block of consecutive nodes, at most ``size``; no product overflows."""
    return torch.where(number > size // block, size, number.clamp(max=size // block) * block)


def rectangle(
    num_targets: int,
    num_sources: int,
    targets: Sequence[tuple],
    sources: Sequence[tuple],
) -> Edges:
    """Targets in some intervals read sources in some intervals: prefixes, global tokens."""
    lo, hi = torch.tensor(list(sources), dtype=torch.int64).reshape(-1, 2).unbind(1)

    def rows(target: Tensor) -> Runs:
        row = torch.nonzero(_inside(target, targets)).flatten()
        return Runs(
            row.repeat_interleave(lo.numel()), lo.repeat(row.numel()), hi.repeat(row.numel())
        )

    def test(target: Tensor, source: Tensor) -> Tensor:
        return _inside(target, targets) & _inside(source, sources)

    return Edges(num_targets, num_sources, rows, runs_per_row=len(sources), test=test)


def _inside(node: Tensor, stretches: Sequence[tuple]) -> Tensor:
    inside = node < 0
    for lo, hi in stretches:
        inside = inside | ((node >= lo) & (node < hi))
    return inside


def stretches(members: Tensor) -> tuple[tuple[int, int], ...]:
    """Sorted distinct int64 members (n,) as half-open intervals.

    Example:
        >>> stretches(torch.tensor([0, 1, 2, 7]))
        ((0, 3), (7, 8))
    """
    runs = _runs.from_pairs(torch.zeros_like(members), members)
    return tuple(zip(runs.lo.tolist(), runs.hi.tolist(), strict=True))


def partition(target_labels: Tensor, source_labels: Tensor | None = None) -> Edges:
    """A target reads the sources with its label: packed documents, clusters, any disjoint cliques.

    Args:
        target_labels: int64 (T,).
        source_labels: int64 (S,); the targets' own by default.
    """
    if source_labels is None:
        source_labels = target_labels
    _, joint = torch.unique(torch.cat((target_labels, source_labels)), return_inverse=True)
    of_target = joint[: target_labels.numel()]
    of_source = joint[target_labels.numel() :]
    # by position: a label may recur
    segments = _runs.from_pairs(of_source, torch.arange(of_source.numel()))
    by_label = torch.argsort(segments.row, stable=True)
    segments = Runs(*(part[by_label] for part in segments))
    per_label = torch.bincount(segments.row, minlength=1)
    return Edges(
        of_target.numel(),
        of_source.numel(),
        lambda target: _runs.chosen(segments, of_target[target]),
        runs_per_row=int(per_label.max()),
        contains=lambda t, s: of_target.to(t.device)[t] == of_source.to(s.device)[s],
    )


def product(axes: Sequence[Edges]) -> Edges:
    """An edge on every axis of a row-major grid: the Kronecker product of the masks."""
    axes = tuple(axes)
    if len(axes) == 1:
        return axes[0]
    T = math.prod(axis.num_targets for axis in axes)
    S = math.prod(axis.num_sources for axis in axes)

    def contains(target: Tensor, source: Tensor) -> Tensor:
        inside = torch.ones((), dtype=torch.bool, device=target.device)
        for axis in reversed(axes):
            inside = inside & axis.contains(target % axis.num_targets, source % axis.num_sources)
            target = target // axis.num_targets
            source = source // axis.num_sources
        return inside

    def rows(target: Tensor) -> Runs:
        coordinates: list[Tensor] = []
        for axis in reversed(axes):
            coordinates.insert(0, target % axis.num_targets)
            target = target // axis.num_targets
        result = axes[0].rows(coordinates[0])
        for axis, place in zip(axes[1:], coordinates[1:], strict=True):
            # each outer position repeats the inner runs of its row
            row, outer = _runs.expand(result)
            inner = _runs.chosen(axis.rows(place), row)
            base = outer[inner.row] * axis.num_sources
            result = Runs(row[inner.row], base + inner.lo, base + inner.hi)
        return result

    if T:
        outer = math.prod(axis.mean_degree for axis in axes[:-1])
    else:
        outer = 1
    return Edges(
        T, S, rows, runs_per_row=outer * axes[-1].runs_per_row, contains=contains, axes=axes
    )


def of_mask(mask: Tensor) -> Edges:
    """The pairs where a bool mask (T, S) on the CPU is True."""
    T, S = mask.shape
    return Edges(
        T,
        S,
        lambda target: _runs.from_dense(mask[target]),
        runs_per_row=S,
        contains=lambda t, s: mask[t, s],
    )


def of_function(
    num_targets: int,
    num_sources: int,
    function: PairTest,
    user_function: PairTest | None = None,
) -> Edges:
    """The pairs for which a function of (target, source) is True.

    The function is called with int64 tensors that broadcast.

    Args:
        num_targets: T.
        num_sources: S.
        function: Called on whole rows, a chunk at a time.
        user_function: The caller's own function, if ``function`` moves its pairs to another device.
    """
    if user_function is None:
        user_function = function

    def rows(target: Tensor) -> Runs:
        instead = "ask contains() for the pairs you need, or a smaller size"
        refuse_over(num_sources, "a call of the rule", instead, _LONGEST_ROW, "sources a target")
        parts = [_runs.empty()]
        step = max(1, _PAIRS_AT_ONCE // max(1, num_sources))
        for first in range(0, target.numel(), step):
            chunk = target[first : first + step]
            inside = checked_answer(function, chunk[:, None], torch.arange(num_sources)[None, :])
            row, lo, hi = _runs.from_dense(inside)
            parts.append(Runs(row + first, lo, hi))
        return Runs(*map(torch.cat, zip(*parts, strict=True)))

    edges = Edges(
        num_targets,
        num_sources,
        rows,
        runs_per_row=num_sources,
        contains=lambda target, source: checked_answer(function, target, source),
        # ``user_function`` may return a constant, a bool and no tensor
        test=lambda target, source: (target >= 0) & user_function(target, source),
    )
    edges.function = user_function
    edges.remade = (of_function, (num_targets, num_sources, function, user_function))
    return edges


def checked_answer(function: PairTest, target: Tensor, source: Tensor) -> Tensor:
    """The answer of a caller's function, bool in the common shape of its pairs.

    Raises:
        GraphError: If it fails, or its answer is of another type or shape.
    """
    # broadcast_shapes imports sympy: seconds
    shape = torch.broadcast_tensors(target, source)[0].shape
    try:
        inside = function(target, source)
    except Exception as error:
        raise GraphError(
            f"the rule failed on int64 tensors of shapes {tuple(target.shape)} and "
            f"{tuple(source.shape)}: {error}. It must work on whole tensors of targets and "
            "sources: write & | ~ and torch.where, not and/or/not/if"
        ) from error
    if isinstance(inside, bool):
        inside = torch.tensor(inside, device=target.device)
    if inside.dtype != torch.bool:
        raise GraphError(f"the rule must return a bool tensor, got {inside.dtype}")
    try:
        return inside.expand(shape)
    except RuntimeError:
        raise GraphError(
            f"the rule must return the shape {tuple(shape)}, got {tuple(inside.shape)}"
        ) from None
