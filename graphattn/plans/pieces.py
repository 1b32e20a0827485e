"""Blocks of targets and the pieces of sources that they read, for the block kernel on the CPU.

A block has as many targets as three vectors hold numbers. Where runs of its targets begin and end,
the set of its targets that read a source changes: between, it is a *segment*. Segments that all
targets of a vector read, or none, are pieces as they are; the others, at borders, are computed whole,
with a mask for each source, and cut where a vector has nothing to read. So a plan is as large as the
borders of a graph, and not as its edges.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.modes import without_modes
from ..graph.near import HUB
from ..graph.runs import Runs, expand, from_unsorted, nonempty
from .blocks import WORTH_ORDERING, grid_cells, quickest, twin_groups
from .cache import CPU, cached
from .whole import all_runs

VECTORS = 3  # of a block
TASKS = 32  # at least, for threads to share
FEWEST = 4  # blocks of a cut
SAMPLE = 24  # blocks by which the work of a large list of edges is judged
MOST_COUNTED = 1 << 15  # listed edges whose blocks are all made to judge them
MOST_ORDERED = 1 << 22  # edges for which other orders are tried
FULL_ENOUGH = 1.3  # pairs of an edge with which no other order is tried
BETTER = 0.9  # share of the pairs with which another order is worth its gathers
SHORTEST = 8  # sources of a segment that is a piece as it is, and of a gap between pieces
PIECE_WORK = 40  # cost of a piece, in pairs
TARGET_WORK = 35  # cost of packing a target


class Pieces(NamedTuple):
    """The pieces ``ptr[i] .. ptr[i + 1]`` of every block: int32 (P, 4).

    They are the first source, the number of sources, ``4 * first vector + vectors``, and the first
    of ``masks``, or -1. A mask, int64, has a bit for each target of a block.
    """

    lanes: int
    targets: Tensor  # int32 (T,), block by block
    sources: Tensor  # int32 (S,), in the order in which pieces count them
    ptr: Tensor  # int64 (blocks + 1,)
    pieces: Tensor
    masks: Tensor

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return self.ptr.numel() - 1

    @property
    def pairs(self) -> int:
        """Pairs that are computed: those of whole tiles."""
        count = -(-self.pieces[:, 1].long() // SHORTEST) * SHORTEST
        return int((count * (self.pieces[:, 2] & 3)).sum()) * self.lanes

    @property
    def work(self) -> int:
        """The cost in pairs of a long piece, as measured."""
        return self.pairs + PIECE_WORK * len(self.pieces) + TARGET_WORK * self.targets.numel()


class Cuts(NamedTuple):
    """The blocks of tasks, ``first[c] .. first[c + 1]``, of about equal work.

    ``spans`` (I + 1, 2) are the intervals of sources that cut ``c`` reads, ``span_ptr[c] ..``, and
    ``place`` (cuts + 1,) the first place of its hull among those of all.
    """

    first: Tensor
    span_ptr: Tensor
    spans: Tensor
    place: Tensor
    hull: int

    @property
    def number(self) -> int:
        """Number of cuts."""
        return self.first.numel() - 1


def pieces(graph: AttentionGraph, lanes: int) -> Pieces:
    """The pieces of a graph without repeated edges, for vectors of so many numbers."""
    make = partial(without_modes, partial(_pieces, graph, lanes))
    return cached(graph, (pieces, (lanes,), CPU), make)


def work(graph: AttentionGraph, lanes: int) -> int:
    """The cost of a graph's pieces in pairs: of a large list of edges, by a sample of blocks."""
    if not graph.edges.is_listed or graph.num_edges <= MOST_COUNTED or _has_dense_core(graph):
        return pieces(graph, lanes).work
    make = partial(without_modes, partial(_work_of_sample, graph, lanes))
    return cached(graph, (work, (lanes,), CPU), make)


def _work_of_sample(graph: AttentionGraph, lanes: int) -> int:
    size = VECTORS * lanes
    blocks = graph.num_targets // size
    block = torch.linspace(0, blocks - 1, min(SAMPLE, blocks)).long()
    target = (block[:, None] * size + torch.arange(size)).flatten()
    runs = nonempty(graph.edges.rows(target))
    parts = pieces_of(runs, target.numel(), graph.num_sources, lanes)
    return Pieces(lanes, target, target, *parts).work * blocks // block.numel()


def _has_dense_core(graph: AttentionGraph) -> bool:
    """True if another order of listed edges may be worth its time."""
    return graph.num_edges > WORTH_ORDERING * graph.num_targets


def _pieces(graph: AttentionGraph, lanes: int) -> Pieces:
    runs = all_runs(graph)
    assert runs is not None
    sizes = (graph.num_targets, graph.num_sources)
    natural = [torch.arange(size) for size in sizes]
    plan = _of_order(runs, natural, lanes)
    if plan.pairs <= FULL_ENOUGH * graph.num_edges or graph.num_edges > MOST_ORDERED:
        return plan
    for order in _orders(graph, natural, VECTORS * lanes):
        other = _of_order(_reordered(runs, natural, order), order, lanes)
        if other.work < BETTER * plan.work:
            plan = other
    return plan


def _of_order(runs: Runs, order: list[Tensor], lanes: int) -> Pieces:
    """The pieces of runs that count nodes by their places in an order."""
    targets, sources = (x.int() for x in order)
    return Pieces(
        lanes, targets, sources, *pieces_of(runs, targets.numel(), sources.numel(), lanes)
    )


def _orders(graph: AttentionGraph, natural: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Other orders of targets and sources: hubs first; and neighbours together, where both are the
    same nodes.
    """
    degree = graph.in_degree.cpu()
    is_hub = degree > HUB * degree.double().mean()
    if bool(is_hub.any()):
        yield [torch.argsort((~is_hub).int(), stable=True), natural[1]]
    if graph.num_targets != graph.num_sources:
        return
    twins = twin_groups(quickest(graph), graph.num_targets)
    cells = grid_cells(graph.edges, size)
    if bool((twins >= 0).any()):
        label = torch.where(twins >= 0, twins, twins.max() + 1)
    elif cells is not None:
        label = cells
    elif not graph.is_rule and _has_dense_core(graph):
        order = graph._near_order()
        yield [order, order]
        return
    else:
        return
    # stable in the order of the first of each label
    first = torch.full_like(natural[0], len(label)).scatter_reduce(0, label, natural[0], "amin")
    order = torch.argsort(first[label], stable=True)
    yield [order, order]


def _reordered(runs: Runs, natural: list[Tensor], order: list[Tensor]) -> Runs:
    """The runs of the same edges, in which nodes are counted by their places in an order."""
    targets, sources = order
    rank = torch.empty_like(natural[0]).index_copy_(0, targets, natural[0])
    if sources is natural[1]:
        return Runs(rank[runs.row], runs.lo, runs.hi)
    of_source = torch.empty_like(natural[1]).index_copy_(0, sources, natural[1])
    row, source = expand(runs)
    return from_unsorted(rank[row], of_source[source], sources.numel())


def pieces_of(
    runs: Runs, num_targets: int, num_sources: int, lanes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``ptr``, ``pieces`` and ``masks`` of runs that do not overlap."""
    size = VECTORS * lanes
    blocks = -(-num_targets // size)
    row, lo, hi = (x.numpy() for x in runs)
    block, start, stop, mask = _segments(
        row // size, np.left_shift(1, row % size), lo, hi, num_sources
    )
    vector, vectors, is_whole = _vectors(block, mask, num_targets, lanes)
    is_piece = is_whole & (stop - start >= SHORTEST)
    whole = (
        block[is_piece], start[is_piece], (stop - start)[is_piece],
        (4 * vector + vectors)[is_piece], np.full(int(is_piece.sum()), -1),
    )  # fmt: skip
    mixed = ~is_piece
    part = _borders(block[mixed], start[mixed], stop[mixed], mask[mixed], lanes)
    masks = part.pop()
    of_block, *columns = (np.concatenate(x) for x in zip(whole, part, strict=True))
    order = np.argsort(of_block * (num_sources + 1) + columns[0], kind="stable")
    table = np.stack([column[order] for column in columns], 1).astype(np.int32)
    ptr = np.zeros(blocks + 1, np.int64)
    np.cumsum(np.bincount(of_block, minlength=blocks), out=ptr[1:])
    return torch.from_numpy(ptr), torch.from_numpy(table), torch.from_numpy(masks)


def _segments(
    block: np.ndarray, bit: np.ndarray, lo: np.ndarray, hi: np.ndarray, num_sources: int
) -> tuple[np.ndarray, ...]:
    """The stretches of sources that the same targets of a block read, and the bits of these."""
    line = block * (num_sources + 1)
    place = np.concatenate((line + lo, line + hi))
    order = np.argsort(place, kind="stable")
    place = place[order]
    bits = np.cumsum(np.concatenate((bit, -bit))[order])
    last = np.flatnonzero(np.append(place[1:] != place[:-1], True)[: place.size])
    place = place[last]
    bits = bits[last]
    of_block, start = np.divmod(place, num_sources + 1)
    is_used = bits != 0
    # a short gap costs less than another piece
    is_used[:-1] |= (of_block[1:] == of_block[:-1]) & (place[1:] - place[:-1] < SHORTEST)
    used = np.flatnonzero(is_used)
    of_block = of_block[used]
    start = start[used]
    return of_block, start, start + place[used + 1] - place[used], bits[used]


def _vectors(
    block: np.ndarray, mask: np.ndarray, num_targets: int, lanes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first vector and the number of vectors that have a target in a mask, and True where all
    of their targets are in it.
    """
    size = VECTORS * lanes
    real = np.minimum(num_targets - block * size, size)
    outside = np.left_shift(-1, real)  # targets that do not exist
    vector = np.zeros_like(block)
    vectors = np.zeros_like(block)
    is_whole = np.ones(block.size, bool)
    field = (1 << lanes) - 1
    for v in range(VECTORS):
        part = (mask >> v * lanes) & field
        is_used = part != 0
        is_full = ((mask | outside) >> v * lanes) & field == field
        vector = np.where(is_used & (vectors == 0), v, vector)
        vectors = np.where(is_used, v + 1 - vector, vectors)
        is_whole &= is_full | (vectors == 0) | ~is_used
    holes = np.zeros(block.size, bool)
    for v in range(1, VECTORS - 1):
        holes |= (vector < v) & (v < vector + vectors) & ((mask >> v * lanes) & field == 0)
    return vector, vectors, is_whole & ~holes


def _borders(
    block: np.ndarray, start: np.ndarray, stop: np.ndarray, mask: np.ndarray, lanes: int
) -> list[np.ndarray]:
    """Pieces with masks: block, source, number, vectors, first mask; and the masks."""
    length = stop - start
    masks = np.repeat(mask, length)
    if masks.size == 0:
        return [block, start, length, mask, mask, masks]
    # stretches of touching segments, and tiles of their sources
    opens = np.ones(block.size, bool)
    opens[1:] = (block[1:] != block[:-1]) | (start[1:] != stop[:-1])
    first = np.cumsum(length) - length
    stretch = np.flatnonzero(opens)
    begin = first[stretch]
    sources = np.diff(np.append(begin, masks.size))
    tiles = -(-sources // SHORTEST)
    owner = np.repeat(np.arange(stretch.size), tiles)
    within = np.arange(owner.size) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    at = begin[owner] + within * SHORTEST
    joint = np.bitwise_or.reduceat(masks, at)
    vector, vectors, _ = _vectors(np.zeros_like(joint), joint, VECTORS * lanes, lanes)
    hull = 4 * vector + vectors
    new = np.ones(owner.size, bool)
    new[1:] = (owner[1:] != owner[:-1]) | (hull[1:] != hull[:-1])
    piece = np.flatnonzero(new)
    at = at[piece]
    of_stretch = stretch[owner[piece]]
    source = start[of_stretch] + at - first[of_stretch]
    number = np.diff(np.append(at, masks.size))
    hull = hull[piece]
    is_read = hull & 3 != 0  # a tile may lie in a gap
    return [*(x[is_read] for x in (block[of_stretch], source, number, hull, at)), masks]


def cuts(graph: AttentionGraph, lanes: int, heads: int) -> Cuts:
    """The cuts of the plan of a graph for so many heads of keys, of all examples.

    There are ``TASKS`` tasks at least, whatever the number of threads, so that sums over cuts have
    the same bits; but a cut has ``FEWEST`` blocks, which share a packed key.
    """
    plan = pieces(graph, lanes)
    number = max(1, min(-(-TASKS // max(1, heads)), plan.num_blocks // FEWEST))
    make = partial(without_modes, partial(cuts_of, plan, number))
    return cached(graph, (cuts, (lanes, -(-TASKS // number)), CPU), make)


def cuts_of(plan: Pieces, number: int) -> Cuts:
    """The blocks of a plan in so many cuts, or fewer."""
    ptr = plan.ptr.numpy()
    source, count, vectors, _ = plan.pieces.numpy().astype(np.int64).T
    cost = np.append(0, np.cumsum(count * (vectors & 3)))[ptr] + np.arange(ptr.size)
    inner = np.searchsorted(cost, cost[-1] * np.arange(1, number) / number)
    first = np.unique(np.concatenate(([0], inner, [ptr.size - 1])))
    cut = np.searchsorted(ptr[first], np.arange(source.size), side="right") - 1
    stride = int((source + count).max(initial=0)) + 1
    begin = cut * stride + source
    order = np.argsort(begin, kind="stable")
    begin = begin[order]
    reach = np.maximum.accumulate(begin + count[order])
    opens = np.ones(begin.size, bool)
    opens[1:] = begin[1:] > reach[:-1]
    closes = np.ones(begin.size, bool)
    closes[:-1] = opens[1:]
    owner, lo = np.divmod(begin[opens], stride)
    spans = np.stack((lo, reach[closes] - owner * stride), 1)
    span_ptr = np.searchsorted(owner, np.arange(first.size))
    hull = np.zeros(first.size - 1, np.int64)
    used = np.flatnonzero(np.diff(span_ptr))
    hull[used] = spans[span_ptr[used + 1] - 1, 1] - spans[span_ptr[used], 0]
    place = np.append(0, np.cumsum(hull))
    spans = np.append(spans, [[0, 0]], 0)  # so that there is an address
    return Cuts(
        torch.from_numpy(first),
        torch.from_numpy(span_ptr),
        torch.from_numpy(spans.astype(np.int32)),
        torch.from_numpy(place),
        int(hull.max(initial=0)),
    )
