"""Effective resistance and commute time: how well two nodes are connected by all paths together."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arguments import check_range, check_shape, integers
from ...errors import GraphError
from ...graph import AttentionGraph
from ...plans.whole import csr_by_target
from .undirected import components, undirected

MOST_NODES = 4096  # nodes of a dense matrix: a second, and 0.4 GB
_MOST_WORK = 1 << 31  # operations of the iterations for chosen pairs
_TOLERANCE = 1e-10
_FEW = 8  # pairs that are solved for one by one


def effective_resistance(graph: AttentionGraph, pairs: Any = None) -> Tensor:
    r"""Resistance between nodes if edges are resistors of 1 ohm; small for many short paths.

    .. math:: R_{st} = (e_s - e_t)^\top L^+ (e_s - e_t), \quad L = D - A

    Of the undirected graph underneath: an edge conducts both ways, and one that is there in both
    directions is one resistor. Repeated edges are resistors side by side; self-loops conduct
    nothing. Infinite between components.

    Args:
        graph: A square graph; without ``pairs`` of at most 4,096 nodes.
        pairs: Nodes (2, k) between which it is asked; all by default.
    Returns:
        float64 (N, N), symmetric, or (k,). The sum of all, halved, is the Kirchhoff index, which
        over-squashing grows with.
    Raises:
        GraphError: If the graph is not square or too large, or iterations for pairs of a large one
            do not converge.
    Source:
        Klein and Randic 1993, "Resistance distance"; over-squashing: Black et al. 2023,
        "Understanding Oversquashing in GNNs through the Lens of Effective Resistance".
    Example:
        >>> from graphattn.graphs import circulant, full
        >>> effective_resistance(circulant(6, (1,)), [[0, 0], [1, 3]]).round(decimals=4)  # 1 beside 5, 3 beside 3
        tensor([0.8333, 1.5000], dtype=torch.float64)
        >>> round(float(effective_resistance(full(8))[0, 1]), 4)  # 2 / N
        0.25
    """
    matrix = undirected(graph, "effective_resistance")
    if pairs is None:
        chosen = None
    else:
        chosen = _pairs(pairs, graph.num_targets)
    if graph.num_targets <= MOST_NODES and (chosen is None or chosen.shape[1] > _FEW):
        every = _of_all(matrix)
        if chosen is None:
            return every
        return every[chosen[0], chosen[1]]
    if chosen is None:
        raise GraphError(
            f"effective_resistance of all pairs of {graph.num_targets:,} nodes is a dense matrix "
            f"(limit {MOST_NODES:,} nodes); choose pairs=[[s, ...], [t, ...]]"
        )
    return _of_pairs(matrix, chosen, graph.name)


def mean_resistance(graph: AttentionGraph) -> float | None:
    """The mean of :func:`effective_resistance` over all pairs of nodes, or ``None`` if infinite.

    It is the Kirchhoff index over the number of pairs.
    """
    n = graph.num_targets
    total = float(_of_all(undirected(graph, "mean_resistance")).sum())
    if total < float("inf"):
        return total / (n * (n - 1))
    return None


def commute_time(graph: AttentionGraph, pairs: Any = None) -> Tensor:
    r"""Steps, on average, that a random walk takes from one node to another and back.

    .. math:: \tau_{st} = H(s, t) + H(t, s), \quad \tau_{st} = R_{st} \sum_u d_u \text{ on a symmetric graph}

    The walk goes against the edges, as a Jacobian does: from a target to one of its sources, each
    edge with the same probability. So direction counts; self-loops hold it up, and repeated edges
    are taken more often. It is infinite unless each node is reached from the other with certainty:
    between components, and on a graph without cycles everywhere, for example on a causal one.
    ``commute_time(graph | graph.reverse())`` is of the undirected graph.

    Args:
        graph: A square graph; one that is not symmetric of at most 4,096 nodes.
        pairs: Nodes (2, k) between which it is asked; all by default.
    Returns:
        float64 (N, N), symmetric with a diagonal of 0, or (k,).
    Raises:
        GraphError: As :func:`effective_resistance`.
    Source:
        Chandra et al. 1989, "The electrical resistance of a graph captures its commute and cover
        times"; Kemeny and Snell 1976 (fundamental matrix, for directed walks); over-squashing: Di
        Giovanni et al. 2023, "On Over-Squashing in Message Passing Neural Networks: The Impact of
        Width, Depth, and Topology".
    Example:
        >>> from graphattn.graphs import full, causal
        >>> round(float(commute_time(full(5).without_self_loops())[0, 4]), 4)  # 2 (N - 1)
        8.0
        >>> commute_time(causal(2))
        tensor([[0., inf],
                [inf, 0.]], dtype=torch.float64)
    """
    matrix = undirected(graph, "commute_time")
    if graph.is_symmetric:
        resistance = effective_resistance(graph, pairs)
        degree = graph.in_degree.cpu().double()
        part = components(matrix)
        volume = (
            torch.zeros(graph.num_targets, dtype=torch.float64)
            .index_add_(0, part, degree)[part]
            .clamp(min=1)
        )
        if pairs is None:
            return resistance * volume[:, None]
        return resistance * volume[_pairs(pairs, graph.num_targets)[0]]
    if graph.num_targets > MOST_NODES:
        raise GraphError(
            f"commute_time of a directed graph of {graph.num_targets:,} nodes needs a dense matrix "
            f"(limit {MOST_NODES:,}); ask commute_time(graph | graph.reverse(), pairs)"
        )
    every = _directed(csr_by_target(graph))
    if pairs is None:
        return every
    return every[tuple(_pairs(pairs, graph.num_targets))]


def _pairs(pairs: Any, size: int) -> Tensor:
    chosen = integers(pairs, "pairs", "(2, k)", GraphError).cpu()
    check_shape(chosen, "pairs", (2, "k"), error=GraphError)
    check_range(chosen, "pairs", size, ", the nodes", GraphError)
    return chosen


def _laplacian(matrix: Any) -> Any:
    from scipy.sparse.csgraph import laplacian

    return laplacian(matrix)


def _of_all(matrix: Any) -> Tensor:
    """Resistance of all pairs; infinite between components."""
    part = components(matrix)
    size = part.numel()
    resistance = torch.full((size, size), torch.inf, dtype=torch.float64).fill_diagonal_(0)
    order = part.argsort()
    for nodes in order.split(torch.bincount(part).tolist()):
        n = nodes.numel()
        if n == 1:
            continue
        dense = torch.from_numpy(_laplacian(matrix[nodes.numpy()][:, nodes.numpy()]).toarray())
        # L + J / n has the eigenvector of ones with eigenvalue 1, so that it has an inverse, L^+ +
        # J / n
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(dense + 1 / n))
        diagonal = inverse.diagonal()
        inside = (diagonal[:, None] + diagonal - 2 * inverse).clamp_(min=0).fill_diagonal_(0)
        resistance[nodes[:, None], nodes] = (inside + inside.t()) / 2
    return resistance


def _of_pairs(matrix: Any, pairs: Tensor, name: str) -> Tensor:
    """Resistances by a factorisation if an order of the nodes gives a narrow band, else by iterations."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    part = components(matrix)
    size = matrix.shape[0]
    result = torch.full((pairs.shape[1],), torch.inf, dtype=torch.float64)
    result[pairs[0] == pairs[1]] = 0
    inside = torch.nonzero((part[pairs[0]] == part[pairs[1]]) & (pairs[0] != pairs[1])).flatten()
    if inside.numel() == 0:
        return result
    s, t = pairs[:, inside].numpy()
    order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    place = np.empty(size, dtype=np.int64)
    place[order] = np.arange(size)
    pair = matrix.tocoo()
    bandwidth = int(np.abs(place[pair.row] - place[pair.col]).max())
    work = size * (bandwidth**2 + 4 * bandwidth * len(s))
    if work <= _MOST_WORK:
        solve = _banded(matrix, order, place, bandwidth)
    else:
        solve = _iterated(matrix, len(s), name)
    resistances = [solve(a, b) for a, b in zip(s.tolist(), t.tolist(), strict=True)]
    result[inside] = torch.tensor(resistances, dtype=torch.float64)
    return result


def _banded(
    matrix: Any, order: np.ndarray, place: np.ndarray, bandwidth: int
) -> Callable[[int, int], float]:
    """Exact, by Cholesky's factorisation of a band; a node of each component is grounded."""
    from scipy.linalg import cho_solve_banded, cholesky_banded

    size = len(order)
    lower = _laplacian(matrix[order][:, order]).tocoo()
    below = lower.row >= lower.col
    band = np.zeros((bandwidth + 1, size))
    band[lower.row[below] - lower.col[below], lower.col[below]] = lower.data[below]
    first = np.unique(components(matrix).numpy()[order], return_index=True)[1]
    band[0, first] += 1  # a resistor to the ground, through which nothing flows in the end
    factor = cholesky_banded(band, lower=True, overwrite_ab=True)

    def solve(s: int, t: int) -> float:
        current = np.zeros(size)
        current[place[s]] = 1.0
        current[place[t]] = -1.0
        potential = cho_solve_banded((factor, True), current)
        return float(potential[place[s]] - potential[place[t]])

    return solve


def _iterated(matrix: Any, num_pairs: int, name: str) -> Callable[[int, int], float]:
    """Resistances by conjugate gradients, to about 1e-10."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import cg

    laplacian = _laplacian(matrix).tocsr()
    size = len(laplacian.indptr) - 1
    before = diags_array(1 / np.maximum(laplacian.diagonal(), 1))
    most = max(1, _MOST_WORK // (num_pairs * (laplacian.nnz + 8 * size)))

    def solve(s: int, t: int) -> float:
        current = np.zeros(size)
        current[s] = 1.0
        current[t] = -1.0
        potential, failed = cg(laplacian, current, rtol=_TOLERANCE, maxiter=most, M=before)
        if failed:
            raise GraphError(
                f"effective_resistance of {name}: conjugate gradients did not converge within "
                f"{most:,} steps between nodes {s} and {t}; ask fewer pairs, or the same of a "
                "smaller size"
            )
        return float(potential[s] - potential[t])

    return solve


def _directed(matrix: Any) -> Tensor:
    """Commute times by the fundamental matrix of each closed class of the walk."""
    from scipy.sparse.csgraph import connected_components

    size = matrix.shape[0]
    times = torch.full((size, size), torch.inf, dtype=torch.float64).fill_diagonal_(0)
    count, label = connected_components(matrix, directed=True, connection="strong")
    row = np.repeat(np.arange(size), np.diff(matrix.indptr))
    closed = np.ones(count, dtype=bool)
    closed[label[row][label[row] != label[matrix.indices]]] = False
    for one in np.flatnonzero(closed & (np.bincount(label, minlength=count) > 1)):
        nodes = np.flatnonzero(label == one)
        walk = matrix[nodes][:, nodes].toarray()
        walk /= walk.sum(1, keepdims=True)
        n = len(nodes)
        system = np.eye(n) - walk.T
        system[-1] = 1
        stationary = np.linalg.solve(system, np.eye(n)[-1])
        fundamental = np.linalg.inv(np.eye(n) - walk + stationary)
        hitting = (fundamental.diagonal() - fundamental) / stationary
        there = torch.from_numpy(nodes)
        times[there[:, None], there] = torch.from_numpy(hitting + hitting.T)
    return times
