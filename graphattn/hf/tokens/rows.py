"""One run of attention for the graphs and sequences of a call."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph, Chosen, PerHead
from ...graph.kinds.joined import joined
from ...graph.modes import keep
from ...models.generation.continuation import every, rows
from .frame import Frame, SequencePiece, Span

Graph = AttentionGraph | PerHead | Chosen
_FEW = 8  # most spans of sources that are copied span by span
_AT_ONCE = 64  # targets whose sources are looked up together


class Index(NamedTuple):
    """Positions of tokens in a batch: the row and the position of each, int64 (M,), or (B, k) in a
    step.
    """

    row: Tensor
    place: Tensor


@dataclass(frozen=True, eq=False)
class Job:
    """A run of attention.

    Args:
        graph: The graph between the selected tokens.
        targets: The selected targets: positions that all rows share (a range, or int64 (k,)), or
            one by one.
        sources: The selected sources, alike.
        missing: bool (B, k): sources that pad the row of a step.
        reads_all: True if every target reads all of the selected sources.
        spans: The sources as a few ranges, which are copied faster than single positions; else
            empty.
        each: In place of one run, a run of each sequence with its row: their edges are chosen one
            by one.
    """

    graph: Graph
    targets: range | Tensor | Index
    sources: range | Tensor | Index
    missing: Tensor | None = None
    reads_all: bool = False
    spans: tuple[range, ...] = ()
    by_row: "tuple[tuple[int, Job], ...]" = ()


def job_of(graphs: list[Graph], frame: Frame, batch: int, device: torch.device) -> Job:
    """The run of graphs, one for each piece of the frame, each on the first nodes of its graph."""
    steps = frame.targets == 1 and all(piece.targets.size == 1 for piece in frame.pieces)
    steps = steps and (frame.alike or len(frame.pieces) == batch)
    if steps and all(_is_set(graph) for graph in graphs):
        return _step(graphs, frame, device)  # type: ignore[arg-type]
    parts = [_part(graph, piece, device) for graph, piece in zip(graphs, frame.pieces, strict=True)]
    if frame.alike:
        places = (frame.pieces[0].targets.places, frame.pieces[0].sources.places)
        return Job(parts[0], *places)  # type: ignore[arg-type]
    if not all(part._is_fixed for part in parts):
        runs = []
        for part, piece in zip(parts, frame.pieces, strict=True):
            targets = torch.as_tensor(piece.targets.places, device=device)
            sources = torch.as_tensor(piece.sources.places, device=device)
            runs.append((piece.row, Job(part, targets, sources)))
        return Job(parts[0], range(0), range(0), by_row=tuple(runs))
    return Job(joined(parts), *_indices(frame.pieces, device))


def _is_set(graph: Graph) -> bool:
    """True if a graph has each of its edges once."""
    return isinstance(graph, AttentionGraph) and not graph.has_repeated_edges


def _part(graph: Graph, piece: SequencePiece, device: torch.device) -> Graph:
    """The graph from a piece's sources to its targets."""
    if isinstance(graph, Chosen):
        if piece.sources.node:
            raise GraphError(
                f"{graph!r} reads token 0, which the cache has dropped; pass a DynamicCache()"
            )
        return graph.part(piece.targets.nodes, piece.sources.end)
    return graph._map_graphs(lambda one: _part_of_one(one, piece, device))


def _part_of_one(
    graph: AttentionGraph, piece: SequencePiece, device: torch.device
) -> AttentionGraph:
    targets = piece.targets.nodes
    sources = piece.sources.nodes
    if (len(targets), len(sources)) != (graph.num_targets, graph.num_sources):
        if targets and sources and targets.start > 0 and len(sources) < graph.num_sources:
            _check_present(graph, targets, sources)
        graph = rows(graph, targets, sources, device)  # type: ignore[assignment]
    return graph.to(device)


def check_written(graph: Graph, piece: SequencePiece) -> None:
    """Refuse new targets that are sources of the token before them, which was computed without
    them.
    """
    before = torch.tensor([piece.targets.node - 1])
    if not graph._is_fixed:
        graph = graph.union()
    for one in dict.fromkeys(graph.of_heads):
        if one.edges.rows(before).hi.numel():
            last = int(one.edges.rows(before).hi.amax())
        else:
            last = 0
        if last > piece.targets.node:
            raise GraphError(
                f"token {int(before)} reads token {last - 1}, which was not written when token "
                f"{int(before)} was "
                "computed; remove edges from later sources, as graph & ga.graphs.causal(...) does"
            )


def _check_present(graph: AttentionGraph, targets: range, sources: range) -> None:
    """Refuse new targets whose sources a cache has dropped, or are not written yet."""
    reads = graph.edges.rows(torch.arange(targets.start, targets.stop))
    nonempty = reads.hi > reads.lo
    if not bool(nonempty.any()):
        return
    first = int(reads.lo[nonempty].min())
    last = int(reads.hi[nonempty].max()) - 1
    if first < sources.start:
        raise GraphError(
            f"token {targets.start} reads token {first}, which the cache has dropped: it holds "
            "tokens from "
            f"{sources.start} on; pass past_key_values=transformers.DynamicCache(), which holds all"
        )
    if last >= sources.stop:
        raise GraphError(
            f"a token from {targets.start} on reads token {last}, which is not written yet; "
            "remove edges from later "
            "sources, as graph & ga.graphs.causal(...) does"
        )


def _indices(pieces: tuple[SequencePiece, ...], device: torch.device) -> tuple[Index, Index]:
    def index(spans: list[Span]) -> Index:
        rows = torch.tensor([piece.row for piece in pieces]).repeat_interleave(
            torch.tensor([s.size for s in spans])
        )
        places = [torch.as_tensor(span.places, dtype=torch.int64) for span in spans]
        return Index(
            rows.to(device), torch.cat([torch.empty(0, dtype=torch.int64), *places]).to(device)
        )

    return index([piece.targets for piece in pieces]), index([piece.sources for piece in pieces])


def _step(graphs: list[AttentionGraph], frame: Frame, device: torch.device) -> Job:
    """One new token in each row, which reads all of its selected sources."""
    picked = [_read(graph, piece) for graph, piece in zip(graphs, frame.pieces, strict=True)]
    one = range(1)
    read = picked[0]
    if isinstance(read, range) and all(
        isinstance(other, range) and other == read for other in picked
    ):
        return Job(every(1, len(read), device), one, read, reads_all=len(read) > 0)
    places = [_places(other) for other in picked]
    if len(picked) == 1:
        if isinstance(read, tuple) and len(read) <= _FEW:
            spans = read
        else:
            spans = ()
        return Job(
            every(1, len(places[0]), device), one, places[0].to(device), reads_all=True, spans=spans
        )
    most = max(map(len, places))
    place = torch.zeros(len(places), most, dtype=torch.int64)
    missing = torch.ones(len(places), most, dtype=torch.bool)
    for row, of_row in enumerate(places):
        place[row, : len(of_row)] = of_row
        missing[row, : len(of_row)] = False
    row_of = torch.arange(len(places))[:, None].expand_as(place)
    sources = Index(row_of.to(device), place.to(device))
    return Job(
        every(1, most, device), one, sources, missing.to(device) if bool(missing.any()) else None
    )


def _places(read: range | tuple[range, ...] | Tensor) -> Tensor:
    """int64 (k,)."""
    if isinstance(read, Tensor):
        return read
    if isinstance(read, tuple):
        spans = read
    else:
        spans = (read,)
    return torch.cat([torch.arange(span.start, span.stop) for span in spans])


def _read(graph: AttentionGraph, piece: SequencePiece) -> range | tuple[range, ...] | Tensor:
    """The positions of the sources of a single target."""
    target = piece.targets.node
    sources = piece.sources
    if target >= graph.num_targets:
        raise GraphError(
            f"the sequence has {target + 1} tokens; {graph!r} must have at least as many nodes"
        )
    spans = _spans(graph, target)
    if not spans:
        return range(0)
    if spans[0][0] < sources.node or spans[-1][1] > sources.node + sources.size:
        _check_present(graph, range(target, target + 1), sources.nodes)
    if isinstance(sources.places, range):
        shift = sources.places.start - sources.node
        read = tuple(range(first + shift, last + shift) for first, last in spans)
        if len(read) == 1:
            return read[0]
        return read
    nodes = torch.cat([torch.arange(first, last) for first, last in spans]) - sources.node
    return torch.as_tensor(sources.places)[nodes]


def _spans(graph: AttentionGraph, target: int) -> list[tuple[int, int]]:
    """The sources of a target as intervals, computed for many targets at once, for the next
    steps.
    """
    block = target // _AT_ONCE

    def make() -> list[list[tuple[int, int]]]:
        first = block * _AT_ONCE
        last = min((block + 1) * _AT_ONCE, graph.num_targets)
        spans: list[list[tuple[int, int]]] = [[] for _ in range(first, last)]
        for row, lo, hi in zip(
            *(x.tolist() for x in graph.edges.rows(torch.arange(first, last))), strict=True
        ):
            if hi > lo:
                spans[row].append((lo, hi))
        return spans

    block_spans: list[list[tuple[int, int]]] = keep(graph._memo, ("spans", block), make)
    return block_spans[target % _AT_ONCE]


def full_rows(frame: Frame, batch: int, graphs: list[AttentionGraph], device: torch.device) -> Job:
    """The run of graphs between all positions of a row, one for all rows or one for each."""
    T = frame.targets
    S = frame.sources
    if len(graphs) == 1:
        return Job(graphs[0].to(device), range(T), range(S))
    pieces = tuple(
        SequencePiece(row, Span(range(T), 0), Span(range(S), 0), S) for row in range(batch)
    )
    return Job(joined([graph.to(device) for graph in graphs]), *_indices(pieces, device))


def edges_of(job: Job) -> tuple[Tensor | None, Tensor, Tensor]:
    """The row (``None``: every row), target position and source position of each edge."""
    graph = job.graph.union()
    targets = job.targets
    sources = job.sources
    if isinstance(targets, Index) and isinstance(sources, Index):
        return targets.row[graph.target], targets.place[graph.target], sources.place[graph.source]
    if isinstance(sources, Index):  # a step: (B, k)
        return sources.row, torch.zeros_like(sources.place), sources.place
    if isinstance(sources, Tensor):
        source = sources[graph.source]
    else:
        source = graph.source + sources.start
    target = targets[graph.target] if isinstance(targets, Tensor) else graph.target + targets.start  # type: ignore[union-attr]
    return None, target, source


def mask_of_job(job: Job, batch: int, T: int, S: int) -> Tensor:
    """bool (B, 1, T, S) of the edges of a run."""
    parts = [edges_of(job)]
    if job.by_row:
        parts = [(torch.tensor(row), *edges_of(part)[1:]) for row, part in job.by_row]
    mask = torch.zeros(batch, T, S, dtype=torch.bool, device=parts[0][1].device)
    for row, target, source in parts:
        mask[slice(None) if row is None else row, target, source] = True
    return mask[:, None]
