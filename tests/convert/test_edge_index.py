"""edge_index and by_target, both ways; what from_edge_index refuses is in tests/graph/test_listed.py."""

import numpy as np
import pytest
import torch
from convert_graphs import TABLE, counts_of
from torch_geometric import EdgeIndex
from torch_geometric.nn import SimpleConv

from graphattn.convert import from_by_target, from_edge_index, to_by_target, to_edge_index
from graphattn.errors import GraphError, GraphIndexError

EVERY = pytest.mark.parametrize("name", TABLE)


@EVERY
def test_edge_index_there_and_back(name):
    graph, counts = TABLE[name]
    edge_index = to_edge_index(graph)
    again = from_edge_index(edge_index, graph.num_sources, graph.num_targets, duplicates="keep")
    assert np.array_equal(counts_of(again), counts)
    assert torch.equal(again.edge_index, graph.edge_index)
    assert again.equals(graph)


@EVERY
def test_row_0_is_the_source_as_in_pyg(name):
    """PyG's own layer, summing one-hot sources at every target, gives the counts."""
    graph, counts = TABLE[name]
    x = torch.eye(graph.num_sources), torch.zeros(graph.num_targets, graph.num_sources)
    size = (graph.num_sources, graph.num_targets)
    assert np.array_equal(SimpleConv("sum")(x, to_edge_index(graph), size=size).numpy(), counts)


def test_to_edge_index_is_a_copy():
    graph = from_edge_index([[0], [1]], num_nodes=2)
    to_edge_index(graph).zero_()
    assert graph.edge_index.tolist() == [[0], [1]]


@EVERY
def test_by_target_there_and_back(name):
    graph, counts = TABLE[name]
    ptr, index, edge = to_by_target(graph)
    assert ptr.dtype == index.dtype == edge.dtype == torch.int64
    assert torch.equal(index, graph.source[edge])
    for t in range(graph.num_targets):
        here = slice(int(ptr[t]), int(ptr[t + 1]))
        assert index[here].tolist() == [s for s in range(graph.num_sources) for _ in range(counts[t, s])]
        assert graph.target[edge[here]].tolist() == [t] * int(counts[t].sum())
        assert edge[here].tolist() == sorted(edge[here].tolist(), key=lambda e: (int(graph.source[e]), e))
    again = from_by_target(ptr, index, num_sources=graph.num_sources, duplicates="keep")
    assert again.equals(graph)


def test_by_target_keeps_the_order_given():
    graph = from_by_target(torch.tensor([0, 3, 3, 5]), torch.tensor([4, 0, 2, 1, 0]), num_sources=5)
    assert graph.edge_index.tolist() == [[4, 0, 2, 1, 0], [0, 0, 0, 2, 2]]
    assert (graph.num_targets, graph.num_sources) == (3, 5)


@pytest.mark.parametrize(
    ("ptr", "words"),
    [
        ([0, 3, 2, 5], r"must never fall, got ptr\[1\] = 3 and then ptr\[2\] = 2"),
        ([0, 3, 9, 5], r"must never fall, got ptr\[2\] = 9 and then ptr\[3\] = 5"),
        ([0, 2, 1, 2], r"must never fall, got ptr\[1\] = 2 and then ptr\[2\] = 1"),
    ],
)
def test_ptr_that_falls(ptr, words):
    with pytest.raises(GraphError, match=words):
        from_by_target(ptr, [0, 1, 2, 3, 4], num_sources=5)


@pytest.mark.parametrize(
    ("ptr", "words"),
    [
        ([1, 3, 5], r"must start at 0, got ptr\[0\] = 1"),
        ([-1, 3, 5], r"must start at 0, got ptr\[0\] = -1"),
        ([0, 3, 4], r"must end at the number of edges, got ptr\[2\] = 4 and index of 5"),
        ([0, 3, 6], r"must end at the number of edges, got ptr\[2\] = 6 and index of 5"),
        ([0], r"must end at the number of edges, got ptr\[0\] = 0 and index of 5"),
        ([], r"must have shape \(T \+ 1,\)"),
        ([[0, 5]], r"ptr must have shape \(T \+ 1,\), got \(1, 2\)"),
        ([0.0, 5.0], r"ptr must be integers .*got float32"),
        (None, "ptr must be integers"),
    ],
)
def test_ptr_of_wrong_ends_length_or_kind(ptr, words):
    with pytest.raises(GraphError, match=words):
        from_by_target(ptr, [0, 1, 2, 3, 4], num_sources=5)


def test_by_target_checks_its_sources_too():
    with pytest.raises(GraphIndexError, match="edge 1: source 5"):
        from_by_target([0, 2], [0, 5], num_sources=5)
    with pytest.raises(GraphError, match="edges 0 and 2 are both 1 -> 0"):
        from_by_target([0, 3], [1, 0, 1], num_sources=5)
    with pytest.raises(GraphError, match=r"index must be integers .*got bool"):
        from_by_target([0, 1], [True], num_sources=5)
    assert from_by_target([0], [], num_sources=5).num_targets == 0
    assert from_by_target([0, 0, 0], [], num_sources=5).num_targets == 2


def test_an_edge_index_of_pyg_brings_its_sizes():
    edges = EdgeIndex([[2, 0, 1], [1, 4, 0]], sparse_size=(3, 5))
    graph = from_edge_index(edges)
    assert (graph.num_sources, graph.num_targets) == (3, 5)
    assert type(graph.edge_index) is torch.Tensor
    assert from_edge_index(edges, num_sources=3).equals(graph)
    with pytest.raises(GraphError, match=r"num_targets is 7, but the EdgeIndex has sparse_size \(3, 5\)"):
        from_edge_index(edges, num_targets=7)
    with pytest.raises(GraphError, match="num_sources and num_targets not given"):
        from_edge_index(EdgeIndex([[2, 0, 1], [1, 4, 0]]))


@pytest.mark.parametrize("name", TABLE)
def test_by_target_is_undone_with_the_edges_in_their_order(name):
    graph = TABLE[name][0]
    again = from_by_target(*to_by_target(graph), num_sources=graph.num_sources, duplicates="keep")
    assert torch.equal(again.edge_index, graph.edge_index)
    assert (again.num_sources, again.num_targets) == (graph.num_sources, graph.num_targets)


def test_by_target_says_what_is_missing():
    grouped = to_by_target(from_edge_index([[2, 0, 1], [1, 0, 0]], num_nodes=3))
    with pytest.raises(GraphError, match=r"num_sources not given.* num_sources=graph\.num_sources$"):
        from_by_target(*grouped)
    with pytest.raises(GraphError, match=r"by name, num_sources=5$"):
        from_by_target([0, 2], [0, 1], 5)
    for edge in ([0, 0, 1], [1, 2, 3], [0, 1]):
        with pytest.raises(GraphError, match=f"edge must name each of the 3 edges once.* got {len(edge)} numbers: "):
            from_by_target(*grouped[:2], edge, num_sources=3)
