"""scipy sparse matrices: a row per target, an entry counts edges."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from convert_graphs import REPEATED, TABLE, counts_of
from torch_geometric.utils import to_scipy_sparse_matrix

from graphattn.convert import from_scipy, to_networkx, to_scipy
from graphattn.errors import GraphError

EVERY = pytest.mark.parametrize("name", TABLE)


@EVERY
def test_there_and_back(name):
    graph, counts = TABLE[name]
    matrix = to_scipy(graph)
    assert np.array_equal(matrix.toarray().astype(int), counts)
    assert matrix.dtype == (np.int64 if name in REPEATED else np.bool_)
    again = from_scipy(matrix, duplicates="keep")
    assert np.array_equal(counts_of(again), counts)
    assert again.equals(graph)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("form", ["array", "matrix"])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float32])
def test_every_format_and_dtype(kind, form, dtype):
    graph, counts = TABLE["isolated targets"]
    dense = counts.astype(dtype)
    matrix = getattr(scipy.sparse, f"{kind}_{form}")(dense)
    if kind == "bsr":
        matrix = getattr(scipy.sparse, f"bsr_{form}")(dense, blocksize=(1, 1))
    assert from_scipy(matrix).equals(graph)


@EVERY
def test_networkx_and_pyg_have_a_row_per_source(name):
    graph, counts = TABLE[name]
    if graph.is_square and graph.num_nodes:
        by_networkx = nx.to_scipy_sparse_array(to_networkx(graph), nodelist=range(graph.num_nodes))
        assert np.array_equal(by_networkx.T.toarray(), counts)
        assert from_scipy(by_networkx.T, duplicates="keep").equals(graph)
        by_pyg = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes)
        assert from_scipy(by_pyg.T, duplicates="keep").equals(graph)


def test_a_product_of_matrices_is_a_composition_of_graphs():
    a, b = TABLE["isolated targets"][0], TABLE["cross"][0]
    assert from_scipy(to_scipy(a) @ to_scipy(b)).equals(a @ b)


def test_edges_come_in_the_order_of_the_entries():
    matrix = scipy.sparse.coo_array(([1, 1, 1], ([2, 0, 2], [4, 3, 1])), shape=(3, 5))
    assert from_scipy(matrix).edge_index.tolist() == [[4, 3, 1], [2, 0, 2]]
    columns = scipy.sparse.csc_array([[0, 1, 1], [1, 0, 1]])
    assert from_scipy(columns).edge_index.tolist() == [[0, 1, 2, 2], [1, 0, 0, 1]]


def test_an_entry_counts_copies():
    matrix = scipy.sparse.csr_array(np.array([[0, 3, 1], [2, 0, 0]]))
    with pytest.raises(GraphError, match="edges 0 and 1 are both 1 -> 0: repeated edges"):
        from_scipy(matrix)
    assert np.array_equal(counts_of(from_scipy(matrix, duplicates="keep")), matrix.toarray())
    assert from_scipy(matrix, duplicates="merge").num_edges == 3
    assert from_scipy(matrix.astype(float), duplicates="keep").num_edges == 6


def test_an_entry_stored_twice_is_repeated_too():
    twice = scipy.sparse.coo_array((np.ones(3, dtype=bool), ([1, 0, 1], [2, 0, 2])), shape=(3, 5))
    with pytest.raises(GraphError, match="edges 0 and 2 are both 2 -> 1"):
        from_scipy(twice)
    assert from_scipy(twice, duplicates="keep").num_edges == 3


def entries(data, dtype=None):
    return scipy.sparse.coo_array(
        (np.array(data, dtype=dtype), ([2, 0, 1], [4, 3, 0])), shape=(3, 5)
    )


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (
            entries([1, 0, 1]),
            "an entry of matrix counts edges and must be",
        ),
        (entries([1.0, 1.0, 0.0]), "an entry of matrix counts edges and must be"),
        (
            entries([True, False, False]),
            "an entry of matrix counts edges and must be",
        ),
        (entries([1, -1, 1]), r"got -1 at \[0, 3\]"),
        (entries([1.0, 1.0, float("nan")]), r"got nan at \[1, 0\]"),
        (entries([float("inf"), 1.0, 1.0]), r"got inf at \[2, 4\]"),
        (
            entries([0.5, 1.0, 0.2]),
            "an entry of matrix counts edges and must be",
        ),
    ],
)
def test_what_is_no_count_of_edges(matrix, words):
    with pytest.raises(GraphError, match=words):
        from_scipy(matrix)


def test_a_stored_zero_can_be_dropped_as_the_message_says():
    matrix = entries([1, 0, 1])
    matrix.eliminate_zeros()
    assert from_scipy(matrix).num_edges == 2
    assert from_scipy(entries([0.5, 1.0, 0.2]) != 0).num_edges == 3
