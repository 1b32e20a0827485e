"""The spectral gap: how fast uniform attention on a graph makes all nodes alike."""

from typing import Any

import numpy as np
import torch

from ...errors import GraphError
from ...graph import AttentionGraph, need_square
from ...graph.limits import refuse_over
from ...plans.whole import all_runs, csr_by_target
from ..forms import is_listable
from ..paths.walks import too_many
from .connectivity import connectivity
from .undirected import two_eigenvalues

_DENSE = 512  # nodes up to which all eigenvalues are computed
_VECTORS = 20  # vectors that the iteration holds
_FEWEST = 4  # restarts that are worth a try
_WORK = 1 << 31  # operations that it may take: seconds to tens of seconds


def spectral_gap(graph: AttentionGraph) -> float:
    r"""One less the second largest modulus of an eigenvalue of uniform attention.

    .. math:: 1 - |\lambda_2(P)|, \quad P_{ts} = \frac{1}{|\mathcal{N}(t)|} \text{ on edges}

    Repeated layers of uniform attention shrink what nodes differ in by ``1 - gap`` each, at last: 1
    on a full graph, 0 where two parts never agree (two closed components, or a cycle of even length
    without self-loops). A target without an edge outputs 0, as in attention, and is a closed
    component of its own that holds nothing: its eigenvalue is 0.

    Up to 512 nodes all eigenvalues are computed; a graph without cycles longer than a self-loop has
    them on its diagonal; on others ARPACK finds two of them, to about 1e-9 where it converges.

    Raises:
        GraphError: If the graph is not square or has fewer than two nodes, if its rule is too
            large, or ARPACK does not converge (a gap near 0 on a large graph, such as a long
            chain).
    Source:
        Levin and Peres 2017, "Markov Chains and Mixing Times", section 12.1 (absolute spectral
        gap).
    Example:
        >>> from graphattn.graphs import full, causal
        >>> round(spectral_gap(full(7)), 6), spectral_gap(causal(100_000))
        (1.0, 0.5)
    """
    need_square(graph, "spectral_gap")
    n = graph.num_targets
    if n < 2:
        raise GraphError(
            f"spectral_gap compares two eigenvalues and needs at least 2 nodes, this graph has {n}"
        )
    if n <= _DENSE:
        return _gap(np.linalg.eigvals(_dense(graph)))
    if connectivity(graph).acyclic:
        # triangular in some order of the nodes: the diagonal has the eigenvalues
        node = torch.arange(graph.num_targets, device=graph.device)
        loop = graph.contains(node, node).cpu()
        if graph.has_repeated_edges:
            source, target = graph.edge_index.cpu()
            loop = torch.bincount(target[source == target], minlength=graph.num_targets)
        diagonal = (loop / graph.in_degree.cpu().clamp(min=1).double()).numpy()
        return _gap(diagonal)
    return _gap(_by_arpack(graph))


def _gap(values: np.ndarray) -> float:
    second = np.sort(np.abs(values))[-2]
    return max(0.0, 1.0 - float(second))


def _dense(graph: AttentionGraph) -> np.ndarray:
    matrix = torch.zeros(graph.num_targets, graph.num_targets, dtype=torch.float64)
    source, target = graph.edge_index.cpu()
    matrix.index_put_(
        (target, source), torch.ones(target.numel(), dtype=torch.float64), accumulate=True
    )
    return (matrix / matrix.sum(1, keepdim=True).clamp(min=1)).numpy()


def _by_arpack(graph: AttentionGraph) -> np.ndarray:
    from scipy.sparse.linalg import LinearOperator, eigs, eigsh

    n = graph.num_targets
    degree = graph.in_degree.cpu().clamp(min=1).double().numpy()
    summed = _Summing(graph)
    once = _VECTORS * (4 * _VECTORS * n + summed.cost)
    restarts = _WORK // once
    subject = f"spectral_gap of {graph.name}"
    refuse_over(_FEWEST * once, subject, "ask a smaller size", _WORK, "operations")
    find = eigs
    of_source: Any = 1.0
    of_target = degree
    if graph.is_symmetric:  # a symmetric matrix with the same eigenvalues
        find = eigsh
        of_source = of_target = np.sqrt(degree)

    def step(x: np.ndarray) -> np.ndarray:
        return summed(x.reshape(-1) / of_source) / of_target

    matrix = LinearOperator((n, n), matvec=step, dtype=np.float64)
    return two_eigenvalues(find, matrix, subject, restarts, which="LM", ncv=_VECTORS)[0]


class _Summing:
    """Adds up the numbers of a target's sources, at every target; ``cost`` in operations."""

    def __init__(self, graph: AttentionGraph) -> None:
        self.graph = graph
        self.matrix = None
        self.runs = None
        if is_listable(graph):
            self.matrix = csr_by_target(graph)
            self.cost = self.matrix.nnz
            return
        self.runs = all_runs(graph)
        if self.runs is None:
            raise too_many(graph, "spectral_gap")
        self.cost = 4 * self.runs.row.numel()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if self.runs is None:
            return self.matrix @ x
        sums = torch.zeros(x.size + 1, dtype=torch.float64)
        torch.cumsum(torch.from_numpy(x), 0, out=sums[1:])
        part = sums[self.runs.hi] - sums[self.runs.lo]
        return torch.zeros(x.size, dtype=torch.float64).index_add_(0, self.runs.row, part).numpy()
