"""What bottlenecks are computed from: the undirected graph underneath, and two eigenvalues."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph, need_square
from ...plans.cache import cached
from ...plans.whole import csr_by_target
from ..forms import is_listable
from ..paths.walks import too_many


def undirected(graph: AttentionGraph, subject: str) -> Any:
    """scipy's symmetric CSR (N, N) with an empty diagonal, and the copies of each edge.

    Of the two directions of an edge, the one with more copies counts.

    Raises:
        GraphError: If the graph is not square, or is a rule too large to list.
    """
    need_square(graph, subject)
    if not is_listable(graph):
        raise too_many(graph, subject)
    return cached(graph, "undirected", lambda: _symmetric(csr_by_target(graph)))


def _symmetric(matrix: Any) -> Any:
    from scipy.sparse import coo_array

    pairs = matrix.tocoo()
    other = pairs.row != pairs.col
    inside = (pairs.data[other], (pairs.row[other], pairs.col[other]))
    listed = coo_array(inside, shape=matrix.shape).tocsr()  # adds copies up
    symmetric = listed.maximum(listed.T).tocsr()
    symmetric.sort_indices()
    return symmetric


def components(matrix: Any) -> Tensor:
    """The component of each node, int64 (N,)."""
    from scipy.sparse.csgraph import connected_components

    return torch.from_numpy(connected_components(matrix, directed=False)[1].astype("int64"))


def two_eigenvalues(
    find: Callable[..., Any], matrix: Any, subject: str, restarts: int, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (2,) and eigenvectors (N, 2) by scipy's ``eigs`` or ``eigsh``.

    Raises:
        GraphError: If ARPACK does not converge.
    """
    from scipy.sparse.linalg import ArpackNoConvergence

    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    try:
        values, vectors = find(matrix, k=2, v0=start, maxiter=restarts, **options)
    except ArpackNoConvergence as error:
        raise GraphError(
            f"{subject}: ARPACK did not separate two eigenvalues within {restarts:,} restarts: one "
            "is near 0, or they crowd; ask the same of a smaller size"
        ) from error
    return values, vectors
