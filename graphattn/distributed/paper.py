"""Estimates of plans: what each process would own, read and receive, without processes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.edges import Edges
from ..graph.limits import refuse_over
from ..graph.runs import Runs
from .partition import box_of, contiguous_range, partition_of
from .plans import Counts, LayerWidths, Report, choose

_ALL = 1 << 26  # runs of sources up to which every process is counted: minutes
_MOST = 1 << 25  # runs of one process, in memory at once
_SAMPLE = 6  # processes that are counted beyond

IdsOf = Callable[[int], Tensor]


class Times(NamedTuple):
    """Milliseconds of a layer's forward at the slowest process: exchange, and attention."""

    exchange: float
    compute: float


def on_paper(
    graph: AttentionGraph,
    processes: int,
    rows: LayerWidths,
    *,
    partition: str = "contiguous",
    pos: Any = None,
) -> Report:
    """The report that :func:`graphattn.distributed.shard` would give, of any number of processes.

    Of graphs of more than 6.7e7 intervals of sources a sample of 6 processes is counted, and the
    others are taken to be like the nearest; ``"rcb"`` of such a grid halves it in boxes.

    Raises:
        GraphError: If the sources of one process, or the queries between all, are more than fit in
            memory.
    """
    edges = graph.edges
    sampled = edges.num_runs > _ALL and processes > _SAMPLE
    counts_queries = graph.num_targets < graph.num_sources and not sampled
    if counts_queries:
        refuse_over(
            8 * processes**2, f"the queries between {processes:,} processes", "take fewer processes"
        )
    owns: IdsOf
    if partition == "contiguous" or (sampled and len(edges.grid) < 2):
        partition = "contiguous"
        owns, sizes = _slices(graph.num_targets, processes)
    elif sampled:
        owns = lambda process: box_of(edges.grid, process, processes)  # noqa: E731
        sizes = torch.full((processes,), graph.num_targets // processes)
    else:
        part = partition_of(partition, graph.num_targets, processes, pos, grid=edges.grid)
        order = torch.argsort(part, stable=True)
        sizes = torch.bincount(part.long(), minlength=processes)
        first = torch.cumsum(sizes, 0) - sizes
        owns = lambda process: order[first[process] : first[process] + sizes[process]]  # noqa: E731
    if graph.is_square:
        reads = owns
        sources = sizes
    else:
        reads, sources = _slices(graph.num_sources, processes)
    chosen = torch.arange(processes)
    if sampled:
        chosen = torch.floor((torch.arange(_SAMPLE) + 0.4) * processes / _SAMPLE).long()
    counted = torch.tensor([_count(edges, owns(p), reads(p)) for p in chosen.tolist()])
    nearest = torch.searchsorted((chosen[1:] + chosen[:-1]) / 2, torch.arange(processes).double())
    fields = [*counted[nearest].unbind(1)]
    if counts_queries:
        fields += _counts_of_queries(graph, owns, sources)
    counts = Counts(sizes, sources, *fields)
    plan, refused = choose("auto", counts, rows)
    layout = partition
    if sampled:
        layout = f"{partition}, a sample of {_SAMPLE}"
    return Report(plan, layout, counts, rows, refused)


def fewest(edges: Edges) -> int:
    """The least number of processes whose intervals of sources can be counted one at a time."""
    return max(1, -(-edges.num_runs // _MOST))


def times(report: Report, gigabytes: float, teraflops: float) -> Times:
    """Times for a link, in gigabytes a second, and a processor, in tera-operations a second."""
    width = (report.rows.heads or 0) * report.rows.head_dim
    operations = 4 * width * int(report.edges.max())  # a product and a sum, of two operations each
    return Times(int(report.bytes_per_layer.max()) / gigabytes / 1e6, operations / teraflops / 1e9)


def memory(report: Report, layers: int) -> int:
    """Bytes that the fullest process holds in a training step of a stack of blocks.

    A block of width C keeps 17 values of C for each own node (Korthikanti et al. 2022, 34 bytes in
    16 bits, less the scores), keys and values that it receives, and 12 C^2 parameters with their
    gradient and AdamW's moments in float32. Edges are two indices, once for all blocks.
    """
    rows = report.rows
    width = (rows.heads or 0) * rows.head_dim
    own_bytes = 17 * width * rows.dtype.itemsize * report.counts.targets
    of_blocks = layers * int((own_bytes + report.bytes_per_layer).max())
    parameters = layers * 12 * width**2 * 16
    return of_blocks + parameters + 16 * int(report.edges.max())


def _slices(nodes: int, processes: int) -> tuple[IdsOf, Tensor]:
    ranges = [contiguous_range(nodes, process, processes) for process in range(processes)]
    return lambda process: torch.arange(*ranges[process]), torch.tensor(
        [last - first for first, last in ranges]
    )


def _counts_of_queries(graph: AttentionGraph, owns: IdsOf, sources: Tensor) -> list[Tensor]:
    """Queries sent and answered and edges computed by each process, if sources are slices."""
    S = graph.num_sources
    P = sources.numel()
    sent = []
    for process in range(P):
        row, lo, hi = _runs.nonempty(graph.edges.rows(owns(process)))
        # processes, of each target
        read = _runs.in_order(Runs(row, lo * P // S, (hi - 1) * P // S + 1), P)
        ends = (torch.bincount(x, minlength=P + 1) for x in (read.lo, read.hi))
        sent.append((next(ends) - next(ends)).cumsum(0)[:P])
    queries = torch.stack(sent).fill_diagonal_(0)
    edges = [part.sum() for part in graph.out_degree.cpu().split(sources.tolist())]
    return [queries.sum(1), queries.sum(0), torch.stack(edges)]


def _count(edges: Edges, targets: Tensor, sources: Tensor) -> tuple[int, int, int]:
    """Edges into some targets, their sources not in ``sources``, and the targets reading these."""
    if edges.num_runs * targets.numel() > _MOST * max(1, edges.num_targets):
        raise GraphError(
            f"one process would own {targets.numel():,} targets, whose sources are counted in "
            f"memory (limit {_MOST:,} intervals); take at least "
            f"{fewest(edges):,} processes"
        )
    runs = edges.rows(targets)
    length = runs.hi - runs.lo
    inside = _within(sources, runs)
    if edges.has_repeats:
        total = int(edges.degrees()[targets].sum())
    else:
        total = int(length.sum())
    line = _runs.in_order(Runs(torch.zeros_like(runs.row), runs.lo, runs.hi), edges.num_sources)
    away = int((line.hi - line.lo - _within(sources, line)).sum())
    return total, away, torch.unique_consecutive(runs.row[inside < length]).numel()


def _within(ids: Tensor, runs: Runs) -> Tensor:
    """The number of ascending ids in each run."""
    return torch.searchsorted(ids, runs.hi) - torch.searchsorted(ids, runs.lo)
