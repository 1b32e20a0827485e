"""Curvature of edges: where a graph has a bottleneck."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arguments import probability
from ...graph import AttentionGraph
from ...graph.limits import refuse_over
from .undirected import undirected

_FORMAN_WORK, _OLLIVIER_WORK = 1 << 33, 1 << 33  # steps of the loops: some ten seconds


def forman_curvature(graph: AttentionGraph) -> Tensor:
    r"""Balanced Forman curvature of every edge; negative at a bottleneck.

    There few triangles and 4-cycles pass by the edge.

    .. math:: \frac{2}{d_i} + \frac{2}{d_j} - 2 + 2 \frac{|\triangle|}{\max(d_i, d_j)} +
        \frac{|\triangle|}{\min(d_i, d_j)} + \frac{|\square^i| + |\square^j|}{\gamma_{max} \max(d_i, d_j)}

    Of the simple undirected graph underneath: both directions of an edge and all its copies have
    the same curvature, and self-loops, which have none, NaN. 0 where an end has no other neighbour.

    Args:
        graph: A square graph.
    Returns:
        float64 (E,), in the order of ``graph.edge_index``; ``ga.plot(graph, values=...)`` draws it.
    Raises:
        GraphError: If the graph is not square or too large.
    Source:
        Topping et al. 2022, "Understanding over-squashing and bottlenecks on graphs via curvature",
        definition 1.
    Example:
        >>> from graphattn.graphs import circulant
        >>> forman_curvature(circulant(5, (1,))), forman_curvature(circulant(4, (1,)))
        (tensor([0., 0., 0., 0., 0.], dtype=torch.float64), tensor([1., 1., 1., 1.], dtype=torch.float64))
    """
    matrix = undirected(graph, "forman_curvature")
    degree = np.diff(matrix.indptr)
    # neighbours of the neighbours of an end, over all edges
    work = int(degree @ (_simple(matrix) @ degree))
    _refuse(work, _FORMAN_WORK, graph, "forman_curvature")
    from .curvature_loops import balanced_forman  # numba takes half a second

    return _of_edges(graph, matrix, balanced_forman)


def ollivier_ricci_curvature(graph: AttentionGraph, alpha: float = 0.5) -> Tensor:
    r"""Ollivier-Ricci curvature of every edge; negative where its ends' neighbours are far apart.

    .. math:: \kappa_{ij} = 1 - W_1(\mu_i, \mu_j), \quad
        \mu_i = \alpha \, \delta_i + \frac{1 - \alpha}{d_i} \sum_{k \sim i} \delta_k

    The Wasserstein distance is exact, with distances in edges. Of the simple undirected graph
    underneath, as in :func:`forman_curvature`.

    Args:
        graph: A square graph.
        alpha: The share that stays at the node, in [0, 1). From 1/2 on, curvature over
            ``1 - alpha`` is Lin, Lu, Yau's.
    Returns:
        float64 (E,), in the order of ``graph.edge_index``; NaN at self-loops.
    Raises:
        GraphError: If the graph is not square or too large.
        OptionError: If ``alpha`` is not in [0, 1).
    Source:
        Ollivier 2009, "Ricci curvature of Markov chains on metric spaces"; with this ``alpha`` Ni
        et al. 2019, "Community Detection on Networks with Ricci Flow", and their package
        GraphRicciCurvature, whose values on an undirected graph without weights these are.
    Example:
        >>> from graphattn.graphs import full
        >>> float(ollivier_ricci_curvature(full(5).without_self_loops(), alpha=0)[0])  # (N - 2) / (N - 1)
        0.75
    """
    alpha = probability(alpha, "alpha", below_one=True)
    matrix = undirected(graph, "ollivier_ricci_curvature")
    degree = np.diff(matrix.indptr).astype(np.float64)
    pairs = _simple(matrix).tocoo()
    work = int(((degree[pairs.row] + degree[pairs.col]) ** 3).sum() / 2)
    _refuse(work, _OLLIVIER_WORK, graph, "ollivier_ricci_curvature")
    from .curvature_loops import ollivier_ricci

    return _of_edges(graph, matrix, lambda *edges: ollivier_ricci(*edges, alpha))


def _simple(matrix: Any) -> Any:
    """The matrix with ones for its entries."""
    ones = matrix.copy()
    ones.data[:] = 1
    return ones


def _refuse(work: int, most: int, graph: AttentionGraph, subject: str) -> None:
    refuse_over(work, f"{subject} of {graph.name}", "ask a smaller size", most, "steps")


def _of_edges(graph: AttentionGraph, matrix: Any, measure: Any) -> Tensor:
    """The measure of each undirected edge, at each edge of the graph."""
    size = graph.num_targets
    row = np.repeat(np.arange(size), np.diff(matrix.indptr))
    ahead = row < matrix.indices
    first = row[ahead]
    second = matrix.indices[ahead].astype(np.int64)
    values = measure(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), first, second)
    source, target = graph.edge_index.cpu().numpy()
    result = np.full(len(source), np.nan)
    other = source != target
    key = np.minimum(source, target)[other] * size + np.maximum(source, target)[other]
    if len(values):
        result[other] = values[np.searchsorted(first * size + second, key)]
    else:
        result[other] = values
    return torch.from_numpy(result)
