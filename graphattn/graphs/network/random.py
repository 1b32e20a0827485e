"""Random networks: expanders, regular graphs, small worlds; the same for the same seed."""

from typing import Any

import numpy as np
import torch

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ..arguments import call, seeded, whole
from ..arguments import probability as checked_probability

_DENSE = 512  # nodes below which all eigenvalues are computed
_TOLERANCE = 1e-3


@sizable
@builder
def expander(
    num_nodes: int,
    permutations: int = 3,
    seed: int = 0,
    *,
    tries: int = 100,
) -> AttentionGraph:
    r"""A sparse random graph with a few steps between any two nodes: Exphormer's expander.

    .. math:: \mathcal{N}(t) = \{ \pi_d(t), \pi_d^{-1}(t) : 1 \le d \le D \} \setminus \{ t \}

    with random permutations :math:`\pi_d`, drawn again until :math:`\lambda_2`, the second smallest
    eigenvalue of the graph's Laplacian, is at least :math:`2D - 2\sqrt{2D - 1} - 0.1`.

    Args:
        num_nodes: N. Up to 10 nodes the graph is complete.
        permutations: D; a node reads about 2 D others.
        seed: The same seed gives the same graph.
        tries: Most draws; the one with the largest eigenvalue is used if none reaches the bound.
    Returns:
        Listed edges by target, then by source; symmetric, without self-loops.
    Raises:
        GraphError: If ``permutations`` or ``tries`` is below 1.
    Source:
        Shirzad et al. 2023 (Exphormer), after Friedman 2008 on random regular graphs: the graph
        that is joined with the edges of the input and with virtual nodes. Permutations are those
        that their code draws with ``numpy.random.default_rng(seed)``. *What differs:* this is a
        simple graph, with its own eigenvalue. Their code keeps fixed points as self-loops and
        repeated pairs as repeated edges, all of which count in the softmax, and measures that
        multigraph. Their option ``exp_deg`` is D, and the paper's d is 2 D. Virtual nodes there read
        all nodes, and neither themselves nor each other.
    Example:
        >>> graph = expander(100, 3)
        >>> graph.k_hop(5).num_edges == 100 * 99
        True
    """
    N = whole(num_nodes, "num_nodes")
    D = whole(permutations, "permutations", 1)
    seed = whole(seed, "seed")
    tries = whole(tries, "tries", 1)
    refuse_over(64 * N * D, f"expander of {N:,} x {2 * D} edges", "ask for fewer permutations")
    random = np.random.default_rng(seed)
    bound = 2 * D - 2 * (2 * D - 1) ** 0.5 - 0.1
    best = _symmetric(N, np.argwhere(np.ones((min(N, 10),) * 2)))
    widest = -1.0
    draws = tries
    if N <= 10:  # all pairs, which is what was drawn
        draws = 0
    for _ in range(draws):
        ends = [random.permutation(N) for _ in range(D)]
        drawn = _symmetric(N, np.stack((np.tile(np.arange(N), D), np.concatenate(ends)), 1))
        gap = 0.0  # enough for a bound of 0 or less, which every draw reaches
        if bound > 0:
            gap = laplacian_gap(drawn)
        if gap > widest:
            best = drawn
            widest = gap
        if gap >= bound:
            break
    return _graph(best, call("expander", *seeded(seed, N, D), tries=tries))


@sizable
@builder
def random_regular(num_nodes: int, degree: int, seed: int = 0) -> AttentionGraph:
    r"""A random graph in which every node reads, and is read by, the same number of others.

    Args:
        num_nodes: N.
        degree: Neighbours of every node; ``num_nodes * degree`` is even.
        seed: The same seed gives the same graph.
    Returns:
        Listed edges by target, then by source; symmetric, without self-loops.
    Raises:
        GraphError: If ``degree`` is not below ``num_nodes``, or ``num_nodes * degree`` is odd.
    Source:
        Kim and Vu 2003, "Generating random regular graphs", as in
        ``networkx.random_regular_graph``.
    Example:
        >>> random_regular(20, 3).in_degree.unique().tolist()
        [3]
    """
    N = whole(num_nodes, "num_nodes")
    degree = whole(degree, "degree")
    seed = whole(seed, "seed")
    refuse_over(
        1000 * N * degree,
        f"random_regular of {N:,} x {degree} edges",
        "use expander or random_neighbours",
    )
    import networkx

    sizes = seeded(seed, N, degree)
    if N:
        pairs = networkx.random_regular_graph(degree, N, seed).edges
    else:
        pairs = ()
    return _graph(_symmetric(N, pairs), call("random_regular", *sizes))


@sizable
@builder
def small_world(num_nodes: int, k: int, probability: float, seed: int = 0) -> AttentionGraph:
    r"""A ring whose nodes read their ``k`` nearest, with some edges rewired at random.

    Args:
        num_nodes: N.
        k: Neighbours on the ring, half of them on each side; even.
        probability: Probability of moving the far end of an edge to a random node; 0 leaves the
            ring.
        seed: The same seed gives the same graph.
    Returns:
        Listed edges by target, then by source; symmetric, without self-loops, N * k in all.
    Raises:
        GraphError: If ``k`` is odd or not below ``num_nodes``, or ``probability`` is outside [0,
            1].
    Source:
        Watts and Strogatz 1998; equal to ``networkx.watts_strogatz_graph`` for the same seed.
    Example:
        >>> small_world(20, 4, 0).equals(small_world(20, 4, 0.2))
        False
        >>> small_world(20, 4, 0.2).num_edges
        80
    """
    N = whole(num_nodes, "num_nodes")
    k = whole(k, "k", below=max(N, 1), of=", the number of nodes")
    seed = whole(seed, "seed")
    if k % 2:
        raise GraphError(f"k must be even, half of it on each side, got {k}")
    probability = checked_probability(probability, "probability")
    refuse_over(
        1000 * N * k, f"small_world of {N:,} x {k} edges", "join a window with random_neighbours"
    )
    import networkx

    sizes = seeded(seed, N, k, probability)
    if N:
        pairs = networkx.watts_strogatz_graph(N, k, probability, seed).edges
    else:
        pairs = ()
    return _graph(_symmetric(N, pairs), call("small_world", *sizes))


def laplacian_gap(adjacency: Any) -> float:
    """The second smallest Laplacian eigenvalue of a symmetric scipy sparse matrix, size >= 2."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    size = adjacency.shape[0]
    degree = adjacency.sum(0)
    if size <= _DENSE:
        return float(np.linalg.eigvalsh(np.diag(degree) - adjacency.toarray())[1])
    # a bound of all eigenvalues; the constant vector, of eigenvalue 0, is projected out
    top = 2.0 * degree.max()

    def times(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        return (top - degree) * x + adjacency @ x - top * x.mean()

    operator = LinearOperator((size, size), matvec=times, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    largest = eigsh(operator, k=1, which="LA", tol=_TOLERANCE, v0=start, return_eigenvectors=False)
    return float(top - largest[0])


def _symmetric(size: int, pairs: Any) -> Any:
    """The adjacency (N, N) of undirected pairs, without copies or self-loops, in float64."""
    from scipy.sparse import csr_array

    if not isinstance(pairs, np.ndarray):
        pairs = list(pairs)
    ends = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    ends = ends[ends[:, 0] != ends[:, 1]]
    row, column = np.concatenate((ends, ends[:, ::-1])).T
    matrix = csr_array((np.ones(len(row)), (row, column)), shape=(size, size))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _graph(adjacency: Any, name: str) -> AttentionGraph:
    adjacency.sort_indices()
    size = adjacency.shape[0]
    target = np.repeat(np.arange(size), np.diff(adjacency.indptr))
    source = torch.from_numpy(adjacency.indices.astype(np.int64))
    return AttentionGraph(listed(torch.from_numpy(target), source, size, size), name)
