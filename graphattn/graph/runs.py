"""Rows of a mask as runs of consecutive sources: the form that every set of edges can take.

A run ``(row, lo, hi)`` says that the row reads the sources ``lo, lo + 1, ..., hi - 1``. Runs are
sorted by row and then by ``lo``, and do not overlap; empty runs may occur. Laying the rows end to
end on one line turns every set operation into a sweep over that line, so nothing of size T x S is
ever built.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Runs(NamedTuple):
    """Half-open intervals of sources; three int64 tensors of shape (R,)."""

    row: Tensor
    lo: Tensor
    hi: Tensor


def spread(counts: Tensor) -> tuple[Tensor, Tensor]:
    """The owner of each of ``counts.sum()`` items, and its position within the owner.

    Example:
        >>> spread(torch.tensor([2, 0, 1]))
        (tensor([0, 0, 2]), tensor([0, 1, 0]))
    """
    owner = torch.repeat_interleave(counts)
    first = torch.cumsum(counts, 0) - counts
    within = torch.arange(owner.numel(), device=counts.device) - first[owner]
    return owner, within


def expand(runs: Runs) -> tuple[Tensor, Tensor]:
    """Every pair of the runs, as ``(row, source)``, ascending."""
    owner, within = spread(runs.hi - runs.lo)
    return runs.row[owner], runs.lo[owner] + within


def empty() -> Runs:
    """No runs."""
    none = torch.empty(0, dtype=torch.int64)
    return Runs(none, none, none)


def nonempty(runs: Runs) -> Runs:
    """The runs without empty ones."""
    keep = runs.hi > runs.lo
    if bool(keep.all()):
        return runs
    return Runs(*(part[keep] for part in runs))


def chosen(runs: Runs, row: Tensor) -> Runs:
    """Some rows (n,) of runs that are sorted by row, in any order and with repeats."""
    if runs.row.numel() == 0 or row.numel() == 0:
        return empty()
    count = torch.bincount(runs.row, minlength=int(row.max()) + 1)
    first = torch.cumsum(count, 0) - count
    owner, within = spread(count[row])
    place = first[row][owner] + within
    return Runs(owner, runs.lo[place], runs.hi[place])


def from_unsorted(row: Tensor, source: Tensor, num_sources: int) -> Runs:
    """The runs of pairs in any order, none twice."""
    width = max(1, num_sources)
    key = torch.sort(row * width + source).values
    return from_pairs(key // width, key % width)


def row_lengths(runs: Runs, num_rows: int) -> Tensor:
    """Number of sources in each row, int64 (num_rows,)."""
    total = torch.zeros(num_rows, dtype=torch.int64)
    return total.index_add_(0, runs.row, runs.hi - runs.lo)


def _on_line(runs: Runs, stride: int) -> tuple[Tensor, Tensor]:
    """Ends of the runs that are not empty, on the line on which rows start ``stride`` apart."""
    row, lo, hi = nonempty(runs)
    start = row * stride
    return lo + start, hi + start


def _joined(lo: Tensor, hi: Tensor, stride: int) -> Runs:
    """Stretches of the line, by ascending ``lo``, as runs; touching ones are merged."""
    if lo.numel() == 0:
        return empty()
    reach = torch.cummax(hi, 0).values
    starts = torch.ones_like(lo, dtype=torch.bool)
    starts[1:] = lo[1:] > reach[:-1]
    ends = torch.ones_like(starts)
    ends[:-1] = starts[1:]
    first = lo[starts]
    last = reach[ends]
    row = first // stride
    return Runs(row, first - row * stride, last - row * stride)


def in_order(runs: Runs, num_sources: int) -> Runs:
    """Runs in any order, which may overlap, sorted and disjoint; touching runs are joined."""
    stride = num_sources + 1  # a gap of one keeps the rows apart on the line
    lo, hi = _on_line(runs, stride)
    lo, order = torch.sort(lo)
    return _joined(lo, hi[order], stride)


def union(a: Runs, b: Runs, num_sources: int) -> Runs:
    """The sources in either; touching runs are joined."""
    return in_order(Runs(*map(torch.cat, zip(a, b, strict=True))), num_sources)


def complement(runs: Runs, num_rows: int, num_sources: int) -> Runs:
    """The sources that are not in the runs, for rows ``0 .. num_rows - 1``.

    A row has one gap more than runs.
    """
    row, start, end = nonempty(runs)
    before = torch.arange(row.numel()) + row  # the gap before each run
    lo = torch.zeros(row.numel() + num_rows, dtype=torch.int64)
    hi = torch.full_like(lo, num_sources)
    hi[before] = start
    lo[before + 1] = end
    return Runs(torch.repeat_interleave(torch.bincount(row, minlength=num_rows) + 1), lo, hi)


def canonical(runs: Runs) -> Runs:
    """Sources in the fewest runs: none empty, none that touches the one before."""
    row, lo, hi = nonempty(runs)
    starts = torch.ones_like(row, dtype=torch.bool)
    starts[1:] = (row[1:] != row[:-1]) | (lo[1:] > hi[:-1])
    if bool(starts.all()):
        return Runs(row, lo, hi)
    ends = torch.ones_like(starts)
    ends[:-1] = starts[1:]
    return Runs(row[starts], lo[starts], hi[ends])


def contains(runs: Runs, num_rows: int, row: Tensor, source: Tensor) -> Tensor:
    """True where the row has the source, by a binary search in all rows; operands broadcast."""
    of_row, lo, hi = nonempty(runs)
    row, source = torch.broadcast_tensors(row, source)
    if of_row.numel() == 0:
        return torch.zeros_like(source, dtype=torch.bool)
    count = torch.bincount(of_row, minlength=num_rows)
    first = (torch.cumsum(count, 0) - count)[row]
    # the run is in [first, last): the last one that starts at or before the source
    last = first + count[row]
    none = first == last
    for _ in range(int(count.max()).bit_length()):
        middle = (first + last) // 2
        here = lo[middle.clamp(max=lo.numel() - 1)] <= source
        first = torch.where(here, middle, first)
        last = torch.where(here, last, middle)
    place = first.clamp(max=lo.numel() - 1)
    return ~none & (lo[place] <= source) & (source < hi[place])


def transposed(runs: Runs, num_rows: int, num_sources: int) -> Runs:
    """The runs of the transpose, in which a row is a source. The runs given are canonical.

    A run of rows starts where a source enters a row and ends where it leaves: the cost is that of
    the result's runs.
    """
    before = Runs(runs.row + 1, runs.lo, runs.hi)  # the sources of the row before
    new = intersection(runs, complement(before, num_rows + 1, num_sources), num_sources)
    lost = intersection(before, complement(runs, num_rows + 1, num_sources), num_sources)
    lo, start = expand(new)
    hi, end = expand(lost)
    lo, hi = (row[torch.argsort(source, stable=True)] for row, source in ((lo, start), (hi, end)))
    return Runs(torch.sort(start).values, lo, hi)


def intersection(a: Runs, b: Runs, num_sources: int) -> Runs:
    """The sources in both; touching runs are joined."""
    stride = num_sources + 1
    a_lo, a_hi = _on_line(a, stride)
    b_lo, b_hi = _on_line(b, stride)
    first = torch.searchsorted(b_hi, a_lo, right=True)
    owner, within = spread((torch.searchsorted(b_lo, a_hi) - first).clamp(min=0))
    other = first[owner] + within
    return _joined(
        torch.maximum(a_lo[owner], b_lo[other]), torch.minimum(a_hi[owner], b_hi[other]), stride
    )


def first_alike(row: Tensor, numbers: Tensor, num_rows: int) -> Tensor:
    """The first row with the same entries as each row, int64 (num_rows,).

    Where hashes collide, it is the row itself.

    Args:
        row: int64 (R,), the row of each entry, ascending.
        numbers: int64 (k, R), the numbers of each entry, such as the ends of runs.
        num_rows: Number of rows.
    """
    every = torch.arange(num_rows)
    count = torch.bincount(row, minlength=num_rows)
    hashes = torch.zeros_like(row)
    for part in numbers:
        hashes = mixed(hashes + part)
    _, kind = torch.unique(count.index_add(0, row, hashes), return_inverse=True)
    first = torch.full_like(every, num_rows).scatter_reduce(0, kind, every, "amin")[kind]
    start = torch.cumsum(count, 0) - count
    twin = torch.arange(row.numel()) + (start[first] - start)[row]
    differs = (numbers != numbers[:, twin.clamp(0, max(0, row.numel() - 1))]).any(0)
    same = (count == count[first]) & (
        torch.zeros_like(every).index_add_(0, row, differs.long()) == 0
    )
    return torch.where(same, first, every)


def mixed(x: Tensor) -> Tensor:
    """A bit-mixing hash of int64; products wrap."""
    for factor in (-0x61C8864680B583EB, -0x4B47D0C5A1A6A4D3):
        x = (x ^ (x >> 29)) * factor
    return x ^ (x >> 32)


def hashed(words: Tensor) -> int:
    """A hash of integers in their order."""
    place = torch.arange(words.numel(), device=words.device)
    return int(mixed(mixed(words.long()) + place * -0x61C8864680B583EB).sum())


def from_dense(mask: Tensor) -> Runs:
    """The runs of a bool mask of shape (rows, num_sources)."""
    padded = torch.nn.functional.pad(mask.to(torch.int8), (1, 1))
    change = padded[:, 1:] - padded[:, :-1]
    row, lo = torch.nonzero(change == 1, as_tuple=True)
    hi = torch.nonzero(change == -1, as_tuple=True)[1]
    return Runs(row, lo, hi)


def to_dense(runs: Runs, num_rows: int, num_sources: int) -> Tensor:
    """The bool mask (num_rows, num_sources)."""
    mask = torch.zeros(num_rows * num_sources, dtype=torch.bool)
    row, source = expand(runs)
    mask[row * num_sources + source] = True
    return mask.view(num_rows, num_sources)


def from_pairs(row: Tensor, source: Tensor) -> Runs:
    """The runs of pairs that are sorted by row and source and do not repeat."""
    if row.numel() == 0:
        return empty()
    starts = torch.ones_like(row, dtype=torch.bool)
    starts[1:] = (row[1:] != row[:-1]) | (source[1:] != source[:-1] + 1)
    ends = torch.ones_like(starts)
    ends[:-1] = starts[1:]
    return Runs(row[starts], source[starts], source[ends] + 1)


def block_counts(
    runs: Runs,
    num_tile_rows: int,
    rows_per_tile: int,
    num_sources: int,
    width: int,
) -> Tensor:
    """Pairs in each tile, int64 (num_tile_rows, ceil(num_sources / width))."""
    columns = -(-num_sources // width)
    row, lo, hi = nonempty(runs)
    tile_row = row // rows_per_tile
    first = lo // width
    last = (hi - 1) // width
    partial = torch.zeros(num_tile_rows * columns, dtype=torch.int64)
    head = torch.minimum(hi, (first + 1) * width) - lo
    partial.index_add_(0, tile_row * columns + first, head)
    spans_tiles = last > first
    partial.index_add_(
        0, (tile_row * columns + last)[spans_tiles], (hi - last * width)[spans_tiles]
    )
    # Tiles strictly between the first and the last are covered over their whole width.
    step = torch.zeros(num_tile_rows * (columns + 1), dtype=torch.int64)
    one = torch.ones_like(row[spans_tiles])
    step.index_add_(0, (tile_row * (columns + 1) + first + 1)[spans_tiles], one)
    step.index_add_(0, (tile_row * (columns + 1) + last)[spans_tiles], -one)
    covered = step.view(num_tile_rows, columns + 1).cumsum(1)[:, :columns]
    return partial.view(num_tile_rows, columns) + covered * width
