"""The undirected graph underneath a directed one, for questions about undirected graphs."""

from typing import Any

import torch
from torch import Tensor

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
