"""Path counts: in how many ways a source reaches a target through the layers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arguments import check_flags
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.kinds.layers import Layers
from ...plans.whole import MOST_RUNS
from .receptive_field import graphs_and_targets
from .walks import BUDGET, too_many

_MOST = 2.0**62


def path_counts(
    layers: Layers, targets: Any = None, *, residual: bool = False, budget: int = BUDGET
) -> Tensor:
    r"""Paths from every source of the first layer to a target of the last one, an edge per layer.

    .. math:: P = A_L \cdots A_2 A_1, \quad A_l \text{ the mask of layer } l \text{ (copies of an edge counted)}

    Args:
        layers: One graph, or a list of graphs, first layer first.
        targets: Indices (n,) of the targets in question; all by default.
        residual: Whether every target of a square layer also keeps what it has (a residual
            connection): one more path. ``False`` by default, as the question is about the graphs;
            ``leaks`` and ``measure_leaks``, about a model, have ``True``.
        budget: Numbers (n x nodes) that may be computed for each layer.
    Returns:
        int64 (n, S), exact; the positive ones are the receptive field.
    Raises:
        GraphError: If the paths to some target may be 2**62 or more, by their number so far and the
            largest in-degree; if it costs more than ``budget``.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> path_counts([sliding_window(5, window=2, causal=True)] * 3, targets=[4])  # binomial coefficients
        tensor([[0, 1, 3, 3, 1]])
    """
    check_flags(residual=residual)
    graphs, chosen = graphs_and_targets(layers, targets, "path_counts", budget)
    # nodes first: rows are added up
    counts = torch.zeros(graphs[-1].num_targets, chosen.numel(), dtype=torch.int64)
    counts[chosen, torch.arange(chosen.numel())] = 1
    for graph in reversed(graphs):
        through = _through(graph, counts)
        if residual and graph.is_square:
            counts = through + counts
        else:
            counts = through
    return counts.t().contiguous()


def _through(graph: AttentionGraph, counts: Tensor) -> Tensor:
    """Paths from each source to the targets in question, from those of the layer's targets."""
    largest = 1
    if graph.num_targets:
        largest = int(graph.in_degree.max())
    most = counts.sum(0, dtype=torch.float64) * max(1, largest)
    if bool((most >= _MOST).any()):
        raise GraphError(
            f"path_counts: there may be {float(most.max()):.3g} paths to a target, and numbers "
            "beyond 2**62 are not exact; ask about fewer layers"
        )
    counts_of_sources = torch.zeros(graph.num_sources + 1, counts.shape[1], dtype=torch.int64)
    if graph.edges.is_listed:
        from scipy.sparse import csr_array

        target = graph.target.cpu().numpy()
        source = graph.source.cpu().numpy()
        ones = np.ones(len(target), dtype=np.int64)
        shape = (graph.num_sources, graph.num_targets)
        return torch.from_numpy(csr_array((ones, (source, target)), shape=shape) @ counts.numpy())
    if graph.edges.num_runs > 8 * MOST_RUNS:
        raise too_many(graph, "path_counts")
    reached = torch.nonzero(counts.any(1)).flatten()
    rows = max(1, (MOST_RUNS >> 2) // max(1, graph.edges.runs_per_row * counts.shape[1]))
    for targets in reached.split(rows):
        runs = graph.edges.rows(targets)
        here = counts[targets[runs.row]]
        counts_of_sources.index_add_(0, runs.lo, here)
        counts_of_sources.index_add_(0, runs.hi, -here)
    return counts_of_sources.cumsum(0)[:-1]
