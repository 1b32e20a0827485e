"""scipy sparse matrices: one row per target, as in a mask."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import GraphError
from ..graph import AttentionGraph, need_graph
from ..graph.edge_index import from_edge_index

if TYPE_CHECKING:
    import scipy.sparse


def from_scipy(
    matrix: Any, *, duplicates: str = "error", name: str | None = None
) -> AttentionGraph:
    """A graph from a sparse matrix (T, S): the entry at ``[t, s]`` counts the edges ``s -> t``.

    ``networkx.to_scipy_sparse_array(G)`` and ``torch_geometric.utils.to_scipy_sparse_matrix`` have
    a row per source: pass ``matrix.T``. Edges are in the order of the stored entries.

    Args:
        matrix: Any scipy sparse matrix or array (T, S), of True, or of whole numbers >= 1.
        duplicates: Treatment of entries above 1 or stored twice: ``"error"``, ``"keep"`` each copy,
            ``"merge"``.
        name: The name that ``repr`` shows.
    Raises:
        GraphError: If an entry is a stored zero (is it an edge?), negative, not finite or not whole
            (a weight that would be lost); the message names the first and a remedy.
    Example:
        >>> import scipy.sparse
        >>> from_scipy(scipy.sparse.csr_array([[0, 1, 1], [1, 0, 0]])).edge_index
        tensor([[1, 2, 0],
                [0, 0, 1]])
    """
    import scipy.sparse

    entries = scipy.sparse.coo_array(matrix)
    _check_entries(entries)
    copies = torch.from_numpy(entries.data.astype(np.int64))
    pairs = torch.from_numpy(np.stack((entries.col, entries.row)).astype(np.int64))
    T, S = (int(size) for size in matrix.shape)
    index = pairs.repeat_interleave(copies, dim=1)
    if not name:
        name = "scipy"
    return from_edge_index(index, S, T, duplicates=duplicates, name=name)


def _check_entries(entries: Any) -> None:
    """Refuse weights: an entry counts edges."""
    data = entries.data
    with np.errstate(invalid="ignore"):
        bad = ~((data >= 1) & (data == np.floor(data)) & np.isfinite(data))
    if bad.any():
        at = int(np.argmax(bad))
        raise GraphError(
            "an entry of matrix counts edges and must be True or a whole number >= 1, got "
            f"{data[at]} at [{entries.row[at]}, {entries.col[at]}]; pass (matrix != 0) for the edges "
            "alone, after matrix.eliminate_zeros() if a stored 0 is none"
        )


def to_scipy(graph: AttentionGraph) -> "scipy.sparse.csr_array":
    """A CSR array (T, S), True where ``s -> t`` is an edge; int64 counts if edges are repeated.

    Raises:
        GraphError: If a rule's edges would take more than 4 GiB.
    Example:
        >>> from graphattn.convert import from_mask
        >>> to_scipy(from_mask([[True, False], [True, True]])).toarray().astype(int).tolist()
        [[1, 0], [1, 1]]
    """
    need_graph(graph, "to_scipy")
    import scipy.sparse

    source, target = graph.edge_index.cpu().numpy()
    entries = np.ones(len(source), dtype=np.bool_)
    if graph.has_repeated_edges:
        entries = entries.astype(np.int64)
    shape = (graph.num_targets, graph.num_sources)
    matrix = scipy.sparse.csr_array((entries, (target, source)), shape=shape)
    matrix.sum_duplicates()
    return matrix
