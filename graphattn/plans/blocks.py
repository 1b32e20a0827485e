"""Targets cut into blocks that read few sources together, and the runs of every block among its own columns."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.edges import ROWS_BUDGET, Edges
from ..graph.near import HUB, near_order
from ..graph.runs import Runs
from .cache import cached
from .grouped import effective_edges
from .order import grid_cells

HEIGHTS = (32, 64, 128, 256)
TWINS = 8  # so many targets that read the same sources are a block, whatever their number
SAMPLE = 24  # blocks looked at to judge a cut
WORTH_ORDERING = 64  # mean degree beyond which listed edges are tried in another order: a dense core may hide in them
ROW_WORK = 50  # what moving a row costs, in pairs of a large tile
HOPELESS = 3  # if short tiles cost so many times what edges do, taller ones are not tried


class Cut(NamedTuple):
    """Targets with an edge (n,), block by block, and the block of each (n,), ascending."""

    target: Tensor
    block: Tensor

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return int(self.block[-1]) + 1 if self.block.numel() else 0


class Survey(NamedTuple):
    """The best cut found, and about what it costs: pairs in tiles, columns gathered, and a measure of the work."""

    cut: Cut
    pairs: int
    columns: int
    work: float


class Blocks(NamedTuple):
    """Blocks one after the other: the slice of ``target`` (``first``, ``rows``) reads that of ``column``.

    ``run`` holds the edges as intervals: target within the block, first column within the block, and how many.
    """

    target: Tensor
    first: Tensor
    rows: Tensor
    column: Tensor
    first_column: Tensor
    columns: Tensor
    run: Tensor  # (3, R)
    first_run: Tensor
    runs: Tensor
    edges: Tensor  # edges of each block


def starts(counts: Tensor) -> Tensor:
    """Where each of consecutive slices of these lengths begins."""
    return torch.cumsum(counts, 0) - counts


def survey(graph: AttentionGraph) -> Survey:
    """The cut of a graph's targets into blocks whose tiles cost least, judged on a sample of the blocks."""
    return cached(graph, "survey", lambda: _survey(graph))


def blocks(graph: AttentionGraph) -> Blocks:
    """The blocks of the surveyed cut."""
    cut, edges = survey(graph).cut, quickest(graph)
    rows = torch.bincount(cut.block, minlength=cut.num_blocks)
    parts = [_columns(edges, *part) for part in _chunks(edges, cut)]
    if not parts:
        none = torch.empty(0, dtype=torch.int64)
        return Blocks(cut.target, none, none, none, none, none, none.expand(3, 0), none, none, none)
    column, columns, run, runs, count = (torch.cat(x, -1) for x in zip(*parts, strict=True))
    return Blocks(cut.target, starts(rows), rows, column, starts(columns), columns, run, starts(runs), runs, count)


def quickest(graph: AttentionGraph) -> Edges:
    """The edges in the form whose rows are cheapest to ask for."""
    rule = graph.edges
    mean = graph.num_edges / max(1, graph.num_targets)
    listing = not rule.is_listed and rule.runs_per_row > 8 + 2 * mean and graph.num_edges < 1 << 26
    return graph._listed() if listing else rule


def _chunks(edges: Edges, cut: Cut) -> Iterator[tuple[Tensor, Tensor]]:
    """Targets and their blocks, counted from 0, a bounded number of whole blocks at a time."""
    rows = max(1, ROWS_BUDGET // max(1, edges.runs_per_row))
    first = 0
    while first < cut.target.numel():
        last = min(first + rows, cut.target.numel()) - 1
        last = int(torch.searchsorted(cut.block, cut.block[last], right=True))  # to the end of its block
        yield cut.target[first:last], cut.block[first:last] - cut.block[first]
        first = last


def _columns(edges: Edges, target: Tensor, block: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The sources of each block, how many, and its runs among them: column, columns, run, runs, edges."""
    (row, lo, hi), joint = _read(edges, target, block)
    owner, length, count = block[row], joint.hi - joint.lo, int(block[-1]) + 1
    columns = torch.zeros(count, dtype=torch.int64).index_add_(0, joint.row, length)
    stride = edges.num_sources + 1
    within = torch.searchsorted(joint.row * stride + joint.lo, owner * stride + lo, right=True) - 1
    place = (starts(length) - starts(columns)[joint.row])[within] + lo - joint.lo[within]
    rows = torch.bincount(block, minlength=count)
    run = torch.stack((row - starts(rows)[owner], place, hi - lo))
    edges_of = torch.zeros(count, dtype=torch.int64).index_add_(0, owner, hi - lo)
    return _runs.expand(joint)[1], columns, run, torch.bincount(owner, minlength=count), edges_of


def _widths(edges: Edges, target: Tensor, block: Tensor) -> Tensor:
    """How many sources each block reads."""
    return _runs.row_lengths(_read(edges, target, block)[1], int(block[-1]) + 1)


def _read(edges: Edges, target: Tensor, block: Tensor) -> tuple[Runs, Runs]:
    """What each target reads, and what its block does: its row is that of the block."""
    runs = edges.rows(target)
    keep = runs.hi > runs.lo
    row, lo, hi = runs if bool(keep.all()) else (x[keep] for x in runs)
    return Runs(row, lo, hi), _runs.in_order(Runs(block[row], lo, hi), edges.num_sources)


def cuts(graph: AttentionGraph, twins: Tensor) -> Iterator[Cut]:
    """Ways to cut the targets: a block for each group of twins (T,), and the others by place, a height at a time."""
    degree = graph.in_degree.cpu()
    loose = (twins < 0) & (degree > 0)
    mean = float(degree[loose].double().mean()) if bool(loose.any()) else 0.0
    hub = loose & (degree > HUB * mean)
    for place, label in _labels(graph, loose & ~hub, mean):
        yield _cut(twins, (place, label), hub, degree)


def _survey(graph: AttentionGraph) -> Survey:
    edges, degree = quickest(graph), graph.in_degree.cpu()
    twins = _twins(edges, graph.num_targets)
    best: Survey | None = None
    for cut in cuts(graph, twins):
        pairs, columns, work = _cost(edges, cut, twins, degree)
        if best is None or work < best.work:
            best = Survey(cut, pairs, columns, work)
        if best.work > HOPELESS * edge_work(graph.num_edges, graph.num_targets):
            break
    assert best is not None
    return best


def edge_work(num_edges: float, num_targets: int) -> float:
    """What edges one by one cost, in pairs of a large tile: two each, as measured."""
    return 2 * effective_edges(num_edges, num_targets)


def _labels(graph: AttentionGraph, plain: Tensor, mean: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Ways to cut the plain targets: their places in an order, and a label of each target's block, by that order."""
    given = torch.arange(graph.num_targets)
    orders = [given]
    if not graph.is_rule and mean > WORTH_ORDERING:
        order = near_order(graph)
        orders.insert(0, torch.empty_like(given).index_copy_(0, order, given))
    ranks = [_rank(place, plain) for place in orders]
    for height in HEIGHTS:
        for place, rank in zip(orders, ranks, strict=True):
            yield place, rank // height
        cells = grid_cells(graph.edges, height)
        if cells is not None:
            yield given, cells
        if not bool(plain.any()):
            return


def _rank(place: Tensor, plain: Tensor) -> Tensor:
    """How many plain targets stand before each, by their places."""
    ordered = torch.argsort(place)
    return torch.empty_like(place).index_copy_(0, ordered, torch.cumsum(plain[ordered], 0) - 1)


def _cut(twins: Tensor, labels: tuple[Tensor, Tensor], hub: Tensor, degree: Tensor) -> Cut:
    """Twins by group, then plain targets by their label, then hubs a few at a time."""
    place, label = labels
    most = int(label.max()) + 1 if label.numel() else 0
    groups = int(twins.max()) + 1 if twins.numel() else 0
    label = torch.where(twins >= 0, twins, groups + label)
    label = torch.where(hub, groups + most + (torch.cumsum(hub, 0) - 1) // TWINS, label)
    target = torch.nonzero(degree > 0).flatten()
    target = target[torch.argsort(label[target] * place.numel() + place[target])]
    _, block = torch.unique_consecutive(label[target], return_inverse=True)
    return Cut(target, block)


def _cost(edges: Edges, cut: Cut, twins: Tensor, degree: Tensor) -> tuple[int, int, float]:
    """About how many pairs, columns and units of work a cut has."""
    rows = torch.bincount(cut.block, minlength=cut.num_blocks)
    head = cut.target[starts(rows)]
    columns = torch.where(twins[head] >= 0, degree[head], 0).double()  # a full tile, as wide as its first row
    for block, sample in _sampled(rows, twins[head] < 0):
        target, owner = _members(cut, sample)
        width = _widths(edges, target, owner).double()
        columns[block] = float((width * rows[sample]).sum() / rows[sample].sum())
    return int((columns * rows).sum()), int(columns.sum()), float(work(rows, columns).sum())


def work(rows: Tensor, columns: Tensor) -> Tensor:
    """What blocks cost, in pairs of a large tile, as measured: small products cost more, and rows are moved."""
    return (rows + 40) * columns + ROW_WORK * rows + 490


def least_work(graph: AttentionGraph) -> int:
    """What no cut costs less than: every edge in a full tile, and its targets moved."""
    return graph.num_edges + ROW_WORK * int(torch.count_nonzero(graph.in_degree))


def _sampled(rows: Tensor, wanted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The blocks that are wanted, those of few rows apart from the others, and of each kind a sample.

    A few million rows in all.
    """
    few = rows <= TWINS
    for kind in (wanted & ~few, wanted & few):
        block = torch.nonzero(kind).flatten()
        if block.numel():
            afford = int(ROWS_BUDGET / max(1.0, float(rows[block].double().mean())))
            count = min(SAMPLE, block.numel(), max(1, afford))
            yield block, block[torch.linspace(0, block.numel() - 1, count).long()]


def _members(cut: Cut, sample: Tensor) -> tuple[Tensor, Tensor]:
    """The targets of some blocks, ascending, and the place of each one's block among them."""
    wanted = torch.isin(cut.block, sample)
    return cut.target[wanted], torch.unique_consecutive(cut.block[wanted], return_inverse=True)[1]


def _twins(edges: Edges, num_targets: int) -> Tensor:
    """The group of each target (T,) whose sources at least ``TWINS`` targets read, and no others; -1 elsewhere.

    A hash stands for a row's sources; if two rows ever share one by chance, their block is merely less full.
    """
    factor = torch.randint(-(2**62), 2**62, (2,), generator=torch.Generator().manual_seed(0))
    if edges.is_listed:
        source, target = edges.edge_index.cpu().unbind(0)
        hashes = mixed(source * factor[0] + factor[1])
        return _groups(torch.zeros(num_targets, dtype=torch.int64).index_add_(0, target, hashes))
    parts = []
    for first, last, chunk in edges.walk():
        row, lo, hi = (x[chunk.hi > chunk.lo] for x in chunk)
        total = torch.zeros(last - first, dtype=torch.int64)
        parts.append(total.index_add_(0, row, mixed(lo * factor[0] + factor[1]) - mixed(hi * factor[0] + factor[1])))
    return _groups(torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64))


def _groups(key: Tensor) -> Tensor:
    """The number of the group of each target with the same key, -1 where these are fewer than ``TWINS``."""
    _, group, count = torch.unique(key, return_inverse=True, return_counts=True)
    many = count >= TWINS
    name = torch.where(many, torch.cumsum(many, 0) - 1, -1)
    return name[group]


def mixed(x: Tensor) -> Tensor:
    """A hash of int64, bit by bit; products wrap."""
    for factor in (-0x61C8864680B583EB, -0x4B47D0C5A1A6A4D3):
        x = (x ^ (x >> 29)) * factor
    return x ^ (x >> 32)
