"""All rows of a graph at once: its runs, and scipy's sparse matrices."""

from typing import Any

import numpy as np
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.edges import Edges
from ..graph.runs import Runs
from .cache import cached
from .grouped import by_source, by_target

MOST_RUNS = 1 << 24  # runs of all rows that are held at once


def all_runs(graph: AttentionGraph) -> Runs | None:
    """The runs of every row, none of them empty; ``None`` beyond ``MOST_RUNS``."""
    return cached(graph, "all_runs", lambda: runs_of(graph.edges))


def runs_of(edges: Edges) -> Runs | None:
    """The runs of every row of a set of edges, likewise."""
    if edges.num_runs > MOST_RUNS:
        return None
    return edges.all_runs()


def csr_by_target(graph: AttentionGraph) -> Any:
    """scipy's sparse (T, S): in row ``t``, the number of edges from each source that ``t`` reads.

    float64, as scipy's searches want it; they run forever where an entry is stored twice.
    """
    return cached(
        graph, "csr by target", lambda: _csr(*by_target(graph)[:2], graph.num_sources, graph)
    )


def csr_by_source(graph: AttentionGraph) -> Any:
    """scipy's sparse (S, T): in row ``s``, the number of edges to each target that reads ``s``."""
    return cached(
        graph, "csr by source", lambda: _csr(*by_source(graph)[:2], graph.num_targets, graph)
    )


def _csr(ptr: Tensor, index: Tensor, columns: int, graph: AttentionGraph) -> Any:
    from scipy.sparse import csr_array  # slow to import

    if max(index.numel(), columns) < 2**31:
        ptr = ptr.int()
    ones = np.ones(index.numel())
    matrix = csr_array(
        (ones, index.numpy(), ptr.numpy()),
        shape=(ptr.numel() - 1, columns),
        copy=graph.has_repeated_edges,
    )
    if graph.has_repeated_edges:
        matrix.sum_duplicates()
    return matrix
