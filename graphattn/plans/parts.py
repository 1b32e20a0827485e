"""A graph as two disjoint parts: the edges that fill tiles, and the edges that do not."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.listed import Listed
from .blocks import Cut, column_work, cuts, members, quickest, sampled
from .cache import cached

EDGE = 3  # measured: an edge on its own costs about as much as so many pairs of a large tile

SPARSE = 0.7  # if short tiles leave so large a share of the edges, taller ones are not tried


class Split(NamedTuple):
    """A cut of the targets into blocks, and about what its halves hold: work of tiles, edges left over."""

    cut: Cut
    work: float
    rest: float

    @property
    def cost(self) -> float:
        """In pairs of a large tile."""
        return self.work + EDGE * self.rest


class Parts(NamedTuple):
    """Two graphs over the same nodes, and where their edges stand in the whole graph's order, int64."""

    core: AttentionGraph
    rest: AttentionGraph
    core_edges: Tensor
    rest_edges: Tensor


def split(graph: AttentionGraph) -> Split:
    """The cut that leaves least to do, judged on a sample of its blocks."""
    return cached(graph, "split", lambda: _split(graph))


def parts(graph: AttentionGraph) -> Parts:
    """The graph in two parts, each of them listed."""
    return cached(graph, "parts", lambda: _parts(graph))


def piece(graph: AttentionGraph, part: str) -> AttentionGraph:
    """The ``"whole"`` graph, its ``"core"`` or its ``"rest"``."""
    return graph if part == "whole" else getattr(parts(graph), part)


def _split(graph: AttentionGraph) -> Split:
    nobody = torch.full((graph.num_targets,), -1)  # twins are full tiles already
    edges, mean = quickest(graph), graph.num_edges / max(1, graph.num_targets)
    chosen = []
    for cut in cuts(graph, nobody):
        rows = torch.bincount(cut.block, minlength=cut.num_blocks)
        cost = rest = 0.0
        for block, sample in sampled(rows, torch.ones_like(rows, dtype=torch.bool), mean):
            target, owner = members(cut, sample)
            row, source = _runs.expand(edges.runs(target))
            pair, count = torch.unique(owner[row] * graph.num_sources + source, return_counts=True)
            height = rows[sample][pair // max(1, graph.num_sources)]
            full, scale = _pays(height, count), block.numel() / sample.numel()
            cost += scale * float(column_work(height)[full].sum())
            rest += scale * float(count[~full].sum())
        chosen.append(Split(cut, cost, rest))
        if rest > SPARSE * graph.num_edges:
            break
    return min(chosen, key=lambda x: x.cost)


def _pays(rows: Tensor, count: Tensor) -> Tensor:
    """Whether a source that ``count`` of a block's rows read is worth a column of its tile."""
    return count * EDGE > column_work(rows)


def _parts(graph: AttentionGraph) -> Parts:
    cut = split(graph).cut
    rows = torch.bincount(cut.block, minlength=cut.num_blocks)
    block = torch.zeros(graph.num_targets, dtype=torch.int64).index_copy(0, cut.target, cut.block)
    source, target = graph.edge_index.cpu().unbind(0)
    _, which, count = torch.unique(block[target] * graph.num_sources + source, return_inverse=True, return_counts=True)
    full = _pays(rows[block[target]], count[which])
    sizes = graph.num_targets, graph.num_sources
    core, rest = (Listed(target[mask], source[mask], *sizes) for mask in (full, ~full))
    return Parts(
        AttentionGraph(core, f"core of {graph.name}"),
        AttentionGraph(rest, f"rest of {graph.name}"),
        torch.nonzero(full).flatten(),
        torch.nonzero(~full).flatten(),
    )
