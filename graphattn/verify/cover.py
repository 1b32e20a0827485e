"""All targets of a graph, in pieces that a dense twin can hold."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.listed import Listed
from .sample import Sample, edges_into, piece_of

EVERYTHING = 1 << 22  # pairs, as the twin computes them, up to which every result is compared at every target
OUTPUTS = 1 << 26  # and up to which one output is
AT_ONCE = 1 << 18  # pairs in a piece
ROW_BY_ROW = 128  # a target with at most so many edges gets columns of its own,
GATHERED = 8  # each of which costs as much as so many pairs of a product


def cover(graph: AttentionGraph, limit: int, floats_per_pair: int = 1) -> list[Sample] | None:
    """The pieces of all targets; ``None`` if together they have more than ``limit`` pairs of one number each."""
    if (graph.num_edges + graph.num_targets) * floats_per_pair > limit:
        return None
    result, cost = [], 0
    for piece in pieces(graph, floats_per_pair):
        cost += pairs(piece) * floats_per_pair
        if cost > limit:
            return None
        result.append(piece)
    return result


def affordable(graph: AttentionGraph, limit: int, floats_per_pair: int = 1) -> bool:
    """Whether all pieces together have at most ``limit`` pairs of one number; holds one at a time."""
    if (graph.num_edges + graph.num_targets) * floats_per_pair > limit:
        return False
    cost = 0
    for piece in pieces(graph, floats_per_pair):
        cost += pairs(piece) * floats_per_pair
        if cost > limit:
            return False
    return True


def pairs(piece: Sample) -> int:
    """What a piece costs, in pairs of a product."""
    return piece.targets.numel() * piece.width * (1 if piece.slots is None else GATHERED)


def pieces(graph: AttentionGraph, floats_per_pair: int = 1) -> Iterator[Sample]:
    """Targets with few edges, each with its own columns; then those with many, with common ones.

    ``floats_per_pair`` of a pair make a piece as many times smaller.
    """
    rows, at_once = _Rows(graph), AT_ONCE // floats_per_pair
    degree = graph.in_degree.cpu()
    ordered, order = torch.sort(degree, stable=True)
    narrow = int((degree <= ROW_BY_ROW).sum())
    first, slots = 0, at_once // GATHERED // 2
    while first < narrow:
        count = min(slots // max(1, int(ordered[first])), narrow - first)
        count = max(1, min(count, slots // max(1, int(ordered[first + count - 1]))))
        yield rows.gathered(order[first : first + count])
        first += count
    wide = torch.nonzero(degree > ROW_BY_ROW).flatten()
    first, count = 0, 256
    while first < wide.numel():
        piece = rows.joint(wide[first : first + count])
        if piece.targets.numel() > 1 and piece.targets.numel() * piece.width > at_once:
            count = max(1, piece.targets.numel() // 2)
            continue
        yield piece
        first += piece.targets.numel()
        count = min(256, 2 * count)


class _Rows:
    """The edges into any targets; those of a listed graph are sorted once."""

    def __init__(self, graph: AttentionGraph) -> None:
        self.graph = graph
        if isinstance(graph.edges, Listed):
            self.order = torch.argsort(graph.target.cpu(), stable=True)
            self.source = graph.source.cpu()
        self.degree = graph.in_degree.cpu()
        self.first = self.degree.cumsum(0) - self.degree

    def into(self, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Row, source and place in the edge order, by row."""
        if not isinstance(self.graph.edges, Listed):
            return edges_into(self.graph, targets)
        row, within = _runs.spread(self.degree[targets])
        edge = self.order[self.first[targets][row] + within]
        return row, self.source[edge], edge

    def joint(self, targets: Tensor) -> Sample:
        return piece_of(self.graph, targets, self.into(targets))

    def gathered(self, targets: Tensor) -> Sample:
        """Every target with its own columns: slot after slot, one for each edge."""
        row, source, edge = self.into(targets)
        sources, place = torch.unique(source, return_inverse=True)
        _, slot = _runs.spread(torch.bincount(row, minlength=targets.numel()))
        width = int(slot.max()) + 1 if slot.numel() else 0
        slots = torch.zeros(targets.numel(), width, dtype=torch.int64)
        slots[row, slot] = place
        targets, sources, edge, row, slot, slots = (
            x.to(self.graph.device) for x in (targets, sources, edge, row, slot, slots)
        )
        return Sample(targets, sources, edge, row, slot, complete=False, slots=slots)
