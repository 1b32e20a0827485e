"""Breadth first from one node, forwards and backwards, on a sparse matrix or on runs."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.limits import refuse_over
from ...graphs.network.trees import tree_depth
from ...plans.whole import all_runs, csr_by_source, csr_by_target
from ..forms import MOST_LISTED, is_listable

BUDGET = 1 << 27  # edges or runs that a search may look at, by default: seconds


def walk(graph: AttentionGraph, budget: int = BUDGET) -> "OnMatrix | OnRuns":
    """The cheaper of the two for a square graph.

    Raises:
        GraphError: If the edges are too many to list, and their runs, too.
    """
    if is_listable(graph):
        return OnMatrix(graph)
    if all_runs(graph) is not None:
        return OnRuns(graph, budget)
    raise too_many(graph, "a search")


def too_many(graph: AttentionGraph, subject: str) -> GraphError:
    """The error for a rule that is too large for a question."""
    rows = graph.edges.num_runs
    all_pairs = graph.edges.runs_per_row >= graph.num_sources
    if all_pairs:
        fewer = ", or list them with graph.materialise()"
    else:
        fewer = ""
    return GraphError(
        f"{subject} on {graph.name} ({graph.num_targets:,} targets) needs its edges, and as a rule "
        f"it has about {rows:,} pieces (limit {MOST_LISTED:,}); ask the same of a smaller size{fewer}"
    )


class OnMatrix:
    """Distances in edges, int64 (N,), -1 without a path; ``cost`` counts the edges read."""

    def __init__(self, graph: AttentionGraph) -> None:
        self.graph = graph
        self.cost = 0

    def forward(self, source: int) -> Tensor:
        return self._levels(csr_by_source(self.graph), source)

    def backward(self, target: int) -> Tensor:
        return self._levels(csr_by_target(self.graph), target)

    def _levels(self, matrix: Any, start: int) -> Tensor:
        from scipy.sparse.csgraph import breadth_first_order

        self.cost += matrix.nnz + matrix.shape[0]
        order, before = breadth_first_order(matrix, start, return_predecessors=True)
        before[start] = start
        place = np.empty(len(before), dtype=np.int64)
        place[order] = np.arange(len(order))
        levels = torch.full((len(before),), -1)
        levels[torch.from_numpy(order.astype(np.int64))] = tree_depth(
            torch.from_numpy(place[before[order]])
        )
        return levels


class OnRuns:
    """Level by level, a look at every run of the graph for each."""

    def __init__(self, graph: AttentionGraph, budget: int) -> None:
        runs = all_runs(graph)
        assert runs is not None
        self.runs = runs
        self.size = graph.num_targets
        self.cost = 0
        self.budget = budget
        self.name = graph.name

    def forward(self, source: int) -> Tensor:
        return self._levels(source, self._readers)

    def backward(self, target: int) -> Tensor:
        return self._levels(target, self._read)

    def _readers(self, level: Tensor) -> Tensor:
        row, lo, hi = self.runs
        before = torch.zeros(self.size + 1, dtype=torch.int64)
        torch.cumsum(level, 0, out=before[1:])
        readers = torch.zeros(self.size, dtype=torch.bool)
        readers[row[before[hi] > before[lo]]] = True
        return readers

    def _read(self, level: Tensor) -> Tensor:
        row, lo, hi = self.runs
        here = level[row]
        step = torch.zeros(self.size + 1, dtype=torch.int64)
        step.index_add_(0, lo[here], torch.ones_like(lo[here]))
        step.index_add_(0, hi[here], -torch.ones_like(hi[here]))
        return step.cumsum(0)[:-1] > 0

    def _levels(self, start: int, step: Any) -> Tensor:
        levels = torch.full((self.size,), -1)
        levels[start] = 0
        level = levels == 0
        distance = 0
        while bool(level.any()):
            self.cost += self.runs.row.numel() + self.size
            subject = f"a search on {self.name}, after {distance:,} steps,"
            refuse_over(self.cost, subject, "ask a smaller size", self.budget, "looks at a run")
            distance += 1
            level = step(level) & (levels < 0)
            levels[level] = distance
        return levels
