"""Any set of edges as a function made of element-wise operations and look-ups only.

That is what FlexAttention can run under ``vmap``, trace and compile; ``contains`` of a rule is free to use more.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..graph.algebra import Complement, Flipped, Intersection, Pullback, Union, refuse_over
from ..graph.edge_set import EdgeSet
from ..graph.rules import Band, Cells, Neighbourhood, Partition, Predicate, Product, Rectangle
from .rule import OnDevice

PairTest = Callable[[Tensor, Tensor], Tensor]  # (target, source) -> bool


def pair_test(edges: EdgeSet, device: torch.device) -> PairTest:
    """The closed form where there is one, else a search among the runs of the target's row."""
    return _closed(edges, device) or _search(edges, device)


def _closed(edges: EdgeSet, device: torch.device) -> PairTest | None:
    if isinstance(edges, Band | Cells | Neighbourhood):
        return edges.contains
    if isinstance(edges, Predicate):
        function = edges.function.function if isinstance(edges.function, OnDevice) else edges.function
        return lambda t, s: (t >= 0) & function(t, s)  # a tensor, even if the rule just says True
    if isinstance(edges, Partition):
        of_target, of_source = edges.of_target.to(device), edges.of_source.to(device)
        return lambda t, s: of_target[t] == of_source[s]
    if isinstance(edges, Rectangle):
        targets, sources = edges.targets, edges.sources
        return lambda t, s: _inside(t, targets) & _inside(s, sources)
    if isinstance(edges, Complement | Flipped):
        base = _closed(edges.base, device)
        if base is None:
            return None
        return _turned(base) if isinstance(edges, Flipped) else _negated(base)
    if isinstance(edges, Pullback):
        base = _closed(edges.base, device)
        return None if base is None else _mapped(base, edges.targets.to(device), edges.sources.to(device))
    if isinstance(edges, Union | Intersection):
        a, b = pair_test(edges.a, device), pair_test(edges.b, device)
        return (lambda t, s: a(t, s) | b(t, s)) if isinstance(edges, Union) else (lambda t, s: a(t, s) & b(t, s))
    return _product(edges, device) if isinstance(edges, Product) else None


def _turned(base: PairTest) -> PairTest:
    return lambda t, s: base(s, t)


def _negated(base: PairTest) -> PairTest:
    return lambda t, s: ~base(t, s)


def _mapped(base: PairTest, targets: Tensor, sources: Tensor) -> PairTest:
    return lambda t, s: base(targets[t], sources[s])


def _inside(x: Tensor, intervals: tuple[tuple[int, int], ...]) -> Tensor:
    inside = x < 0
    for lo, hi in intervals:
        inside = inside | ((x >= lo) & (x < hi))
    return inside


def _product(edges: Product, device: torch.device) -> PairTest:
    axes = [(pair_test(axis, device), axis.num_targets, axis.num_sources) for axis in reversed(edges.axes)]

    def test(t: Tensor, s: Tensor) -> Tensor:
        inside = t >= 0
        for axis, height, width in axes:
            inside = inside & axis(t % height, s % width)
            t, s = t // height, s // width
        return inside

    return test


def _search(edges: EdgeSet, device: torch.device) -> PairTest:
    """Binary search, unrolled: a row's runs are sorted, and the last one that starts at or before ``s`` decides."""
    rows, los, his, total = [], [], [], 0
    for first, _, chunk in edges.walk():
        keep = chunk.hi > chunk.lo
        total += int(keep.sum())
        refuse_over(24 * total, "a mask_mod of these edges", "use a graph with a closed form, or fewer edges")
        rows.append(chunk.row[keep] + first)
        los.append(chunk.lo[keep])
        his.append(chunk.hi[keep])
    none = torch.zeros(1, dtype=torch.int64)  # one run that no row owns: every look-up has something to read
    counts = torch.bincount(torch.cat([*rows, none[:0]]), minlength=edges.num_targets)
    small = max(edges.num_targets, edges.num_sources, total) < 2**31 - 1
    ptr, lo, hi = (
        part.to(device, torch.int32 if small else torch.int64)
        for part in (torch.cat((none, counts.cumsum(0))), torch.cat([*los, none]), torch.cat([*his, none]))
    )
    steps = int(counts.max()).bit_length() if counts.numel() else 0

    def test(t: Tensor, s: Tensor) -> Tensor:
        first, past = ptr[t], ptr[t + 1]
        start = first
        for _ in range(steps):
            middle = (first + past) // 2
            open_, starts = first < past, lo[middle] <= s
            first, past = torch.where(open_ & starts, middle + 1, first), torch.where(open_ & ~starts, middle, past)
        return (first > start) & (s < hi[first - 1 + (first == 0)])

    return test
