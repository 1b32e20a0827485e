"""Targets cut into blocks with few sources in total, and the runs of every block."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.edges import ROWS_BUDGET, Edges
from ..graph.listed import Listed
from ..graph.near import HUB
from ..graph.runs import Runs, mixed
from .cache import on_devices
from .grouped import effective_edges

HEIGHTS = (32, 64, 128, 256)
TWINS = 8  # least number of targets with the same sources that form a block of any size
SAMPLE = 24  # blocks examined to judge a cut
# mean degree from which other orders of listed edges are tried: they may have a dense core
WORTH_ORDERING = 64
ROW_WORK = 50  # cost of moving a row, in pairs of a large tile
HOPELESS = 3  # if short tiles cost this many times as much as edges, taller ones are not tried


class Cut(NamedTuple):
    """Targets with an edge (n,), block by block, and the block of each (n,), ascending."""

    target: Tensor
    block: Tensor

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        if self.block.numel():
            return int(self.block[-1]) + 1
        return 0


class Survey(NamedTuple):
    """The best cut, and its approximate cost: pairs in tiles, gathered columns, and total work."""

    cut: Cut
    pairs: int
    columns: int
    work: float


class Blocks(NamedTuple):
    """Blocks in sequence: the slice of ``target`` (``first``, ``rows``) reads that of ``column``.

    ``run`` holds the edges as intervals: target within the block, first column within the block,
    and length.
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
    """The start of each of consecutive slices of these lengths."""
    return torch.cumsum(counts, 0) - counts


def blocks(graph: AttentionGraph) -> Blocks:
    """The blocks of the surveyed cut."""
    cut = survey(graph).cut
    edges = quickest(graph)
    rows = torch.bincount(cut.block, minlength=cut.num_blocks)
    parts = [_columns(edges, *part) for part in _chunks(edges, cut)]
    if not parts:
        none = torch.empty(0, dtype=torch.int64)
        return Blocks(cut.target, none, none, none, none, none, none.expand(3, 0), none, none, none)
    column, columns, run, runs, count = (torch.cat(x, -1) for x in zip(*parts, strict=True))
    return Blocks(
        cut.target,
        starts(rows),
        rows,
        column,
        starts(columns),
        columns,
        run,
        starts(runs),
        runs,
        count,
    )


def quickest(graph: AttentionGraph) -> Edges:
    """The edges in the form whose rows are cheapest to compute."""
    edges = graph.edges
    if edges.is_listed or graph.num_edges >= 1 << 26:
        return edges
    mean = graph.num_edges / max(1, graph.num_targets)
    if edges.runs_per_row > 8 + 2 * mean:
        return graph._listed()
    return edges


def _chunks(edges: Edges, cut: Cut) -> Iterator[tuple[Tensor, Tensor]]:
    """Targets and their blocks, numbered from 0, in chunks of whole blocks."""
    rows = max(1, ROWS_BUDGET // max(1, edges.runs_per_row))
    first = 0
    while first < cut.target.numel():
        last = min(first + rows, cut.target.numel()) - 1
        # to the end of its block
        last = int(torch.searchsorted(cut.block, cut.block[last], right=True))
        yield cut.target[first:last], cut.block[first:last] - cut.block[first]
        first = last


def _columns(
    edges: Edges,
    target: Tensor,
    block: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The sources of each block, and its runs: column, columns, run, runs, edges."""
    (row, lo, hi), joint = _read(edges, target, block)
    owner = block[row]
    length = joint.hi - joint.lo
    count = int(block[-1]) + 1
    columns = torch.zeros(count, dtype=torch.int64).index_add_(0, joint.row, length)
    stride = edges.num_sources + 1
    within = torch.searchsorted(joint.row * stride + joint.lo, owner * stride + lo, right=True) - 1
    place = (starts(length) - starts(columns)[joint.row])[within] + lo - joint.lo[within]
    rows = torch.bincount(block, minlength=count)
    run = torch.stack((row - starts(rows)[owner], place, hi - lo))
    edges_of = torch.zeros(count, dtype=torch.int64).index_add_(0, owner, hi - lo)
    return _runs.expand(joint)[1], columns, run, torch.bincount(owner, minlength=count), edges_of


def _read(edges: Edges, target: Tensor, block: Tensor) -> tuple[Runs, Runs]:
    """The runs of each target, and those of its block, with the block as row."""
    row, lo, hi = runs = _runs.nonempty(edges.rows(target))
    return runs, _runs.in_order(Runs(block[row], lo, hi), edges.num_sources)


def cuts(graph: AttentionGraph, twins: Tensor) -> Iterator[Cut]:
    """Candidate cuts: a block for each group of twins (T,), the others by position and height.

    No block has targets of two examples: a NaN stays in its own.
    """
    degree = graph.in_degree.cpu()
    loose = (twins < 0) & (degree > 0)
    if bool(loose.any()):
        mean = float(degree[loose].double().mean())
    else:
        mean = 0.0
    hub = loose & (degree > HUB * mean)
    example = torch.arange(graph.num_targets)
    example = example * graph.edges.num_blocks // max(1, graph.num_targets)
    for place, label in _labels(graph, loose & ~hub, mean):
        yield _cut(twins, (place, _in_examples(label, example)), (hub, example), degree)


@on_devices
def survey(graph: AttentionGraph) -> Survey:
    """The cut of a graph's targets into blocks whose tiles cost least, by a sample of blocks."""
    edges = quickest(graph)
    degree = graph.in_degree.cpu()
    twins = twin_groups(edges, graph.num_targets)
    hopeless = HOPELESS * edge_work(graph.num_edges, graph.num_targets)
    best: Survey | None = None
    for cut in cuts(graph, twins):
        pairs, columns, work = _cost(edges, cut, twins, degree)
        if best is None or work < best.work:
            best = Survey(cut, pairs, columns, work)
        if best.work > hopeless:
            break
    assert best is not None
    return best


def edge_work(num_edges: float, num_targets: int) -> float:
    """The cost of edges one by one, in pairs of a large tile: two each, as measured."""
    return 2 * effective_edges(num_edges, num_targets)


def _labels(graph: AttentionGraph, plain: Tensor, mean: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Candidate cuts of the plain targets: positions in an order, and a label for each block."""
    natural = torch.arange(graph.num_targets)
    orders = [natural]
    if not graph.is_rule and mean > WORTH_ORDERING:
        order = graph._near_order()
        orders.insert(0, torch.empty_like(natural).index_copy_(0, order, natural))
    ranks = []  # the number of plain targets before each, by their positions
    for place in orders:
        ordered = torch.argsort(place)
        before = torch.cumsum(plain[ordered], 0) - 1
        ranks.append(torch.empty_like(place).index_copy_(0, ordered, before))
    for height in HEIGHTS:
        for place, rank in zip(orders, ranks, strict=True):
            yield place, rank // height
        cells = grid_cells(graph.edges, height)
        if cells is not None:
            yield natural, cells
        if not bool(plain.any()):
            return


def _in_examples(label: Tensor, example: Tensor) -> Tensor:
    """Labels that differ between examples, and are ordered by them first."""
    if label.numel() == 0:
        return label
    return example * (int(label.max()) + 1) + label


def grid_cells(edges: Edges, most: int) -> Tensor | None:
    """The cell of every node of a grid, int64 (T,); None without a grid of two or more axes.

    Cells are boxes of at most ``most`` nodes whose sides are as equal as the grid allows, numbered
    row by row.
    """
    grid = edges.grid
    if len(grid) < 2:
        return None
    place = torch.arange(math.prod(grid))
    cell = torch.zeros_like(place)
    stride = 1
    for axis in reversed(range(len(grid))):
        side = max(1, min(grid[axis], math.floor(most ** (1 / (axis + 1)) + 1e-9)))
        cell += place % grid[axis] // side * stride
        place = place // grid[axis]
        most = most // side
        stride = stride * -(-grid[axis] // side)
    return cell


def _cut(
    twins: Tensor,
    labels: tuple[Tensor, Tensor],
    hubs: tuple[Tensor, Tensor],
    degree: Tensor,
) -> Cut:
    """Twins by group, then plain targets by label, then hubs in small blocks, by example."""
    place, label = labels
    hub, example = hubs
    if label.numel():
        most = int(label.max()) + 1
    else:
        most = 0
    if twins.numel():
        groups = int(twins.max()) + 1
    else:
        groups = 0
    label = torch.where(twins >= 0, twins, groups + label)
    of_hub = _in_examples((torch.cumsum(hub, 0) - 1).clamp(min=0) // TWINS, example)
    label = torch.where(hub, groups + most + of_hub, label)
    target = torch.nonzero(degree > 0).flatten()
    target = target[torch.argsort(label[target] * place.numel() + place[target])]
    _, block = torch.unique_consecutive(label[target], return_inverse=True)
    return Cut(target, block)


def _cost(
    edges: Edges,
    cut: Cut,
    twins: Tensor,
    degree: Tensor,
) -> tuple[int, int, float]:
    """The approximate numbers of pairs, columns and units of work of a cut."""
    rows = torch.bincount(cut.block, minlength=cut.num_blocks)
    head = cut.target[starts(rows)]
    # a block of twins is a full tile, as wide as its first row
    columns = torch.where(twins[head] >= 0, degree[head], 0).double()
    for block, sample in _sampled(rows, twins[head] < 0):
        # the targets of some blocks, ascending, and the index of the block of each among them
        in_sample = torch.isin(cut.block, sample)
        target, owner = (
            cut.target[in_sample],
            torch.unique_consecutive(cut.block[in_sample], return_inverse=True)[1],
        )
        runs = _read(edges, target, owner)[1]
        width = _runs.row_lengths(runs, int(owner[-1]) + 1).double()
        columns[block] = float((width * rows[sample]).sum() / rows[sample].sum())
    return int((columns * rows).sum()), int(columns.sum()), float(work(rows, columns).sum())


def work(rows: Tensor, columns: Tensor) -> Tensor:
    """The measured cost of blocks in pairs of a large tile: small ones cost more, rows move."""
    return (rows + 40) * columns + ROW_WORK * rows + 490


def least_work(graph: AttentionGraph) -> int:
    """A lower bound of the cost of any cut: every edge in a full tile, and its targets moved."""
    return graph.num_edges + ROW_WORK * int(torch.count_nonzero(graph.in_degree))


def _sampled(rows: Tensor, selected: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """A sample of the selected blocks, of those of few rows and of the others separately.

    A few million rows in total.
    """
    few = rows <= TWINS
    for kind in (selected & ~few, selected & few):
        block = torch.nonzero(kind).flatten()
        if block.numel():
            afford = int(ROWS_BUDGET / max(1.0, float(rows[block].double().mean())))
            count = min(SAMPLE, block.numel(), max(1, afford))
            yield block, block[torch.linspace(0, block.numel() - 1, count).long()]


def twin_groups(edges: Edges, num_targets: int) -> Tensor:
    """The group (T,) of targets with equal sources, if it has at least ``TWINS`` members; else -1.

    Rows are compared by a hash of their sources; after a collision a block is merely less full.
    """
    factor = torch.randint(-(2**62), 2**62, (2,), generator=torch.Generator().manual_seed(0))
    if isinstance(edges, Listed):
        source, target = edges.edge_index.cpu().unbind(0)
        hashes = mixed(source * factor[0] + factor[1])
        return _groups(torch.zeros(num_targets, dtype=torch.int64).index_add_(0, target, hashes))
    parts = [torch.empty(0, dtype=torch.int64)]
    for first, last, chunk in edges.chunks():
        row, lo, hi = _runs.nonempty(chunk)
        total = torch.zeros(last - first, dtype=torch.int64)
        begin = mixed(lo * factor[0] + factor[1])
        end = mixed(hi * factor[0] + factor[1])
        parts.append(total.index_add_(0, row, begin - end))
    return _groups(torch.cat(parts))


def _groups(key: Tensor) -> Tensor:
    """The group of targets with the same key, numbered; -1 for fewer than ``TWINS``."""
    _, group, count = torch.unique(key, return_inverse=True, return_counts=True)
    is_large = count >= TWINS
    number = torch.where(is_large, torch.cumsum(is_large, 0) - 1, -1)
    return number[group]
