"""PyTorch Geometric's containers, both ways; A20: what an EdgeIndex claims is not believed."""

import numpy as np
import pytest
import torch
from convert_graphs import TABLE, counts_of
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data
from torch_geometric.nn import SimpleConv
from torch_geometric.utils import to_dense_adj

from graphattn.convert import from_pyg, to_pyg, to_pyg_edge_index
from graphattn.errors import GraphError, GraphIndexError
from graphattn.graph import disjoint_union

EVERY = pytest.mark.parametrize("name", TABLE)
SQUARE = pytest.mark.parametrize(
    "name", [name for name, (graph, _) in TABLE.items() if graph.is_square]
)


@SQUARE
def test_data_there_and_back(name):
    graph, counts = TABLE[name]
    data = to_pyg(graph)
    assert data.validate()
    assert data.num_nodes == graph.num_nodes
    again = from_pyg(data, duplicates="keep")
    assert np.array_equal(counts_of(again), counts)
    assert torch.equal(again.edge_index, graph.edge_index)
    assert again.equals(graph)


@EVERY
def test_edge_index_there_and_back(name):
    graph, counts = TABLE[name]
    edges = to_pyg_edge_index(graph).validate()
    assert isinstance(edges, EdgeIndex)
    assert edges.sparse_size() == (graph.num_sources, graph.num_targets)
    again = from_pyg(edges, duplicates="keep")
    assert np.array_equal(counts_of(again), counts)
    assert torch.equal(again.edge_index, graph.edge_index)


@SQUARE
def test_the_mask_is_the_transpose_of_pygs_dense_adjacency(name):
    graph, counts = TABLE[name]
    if graph.num_edges:
        adjacency = to_dense_adj(to_pyg(graph).edge_index, max_num_nodes=graph.num_nodes)[0]
        assert np.array_equal(adjacency.t().numpy(), counts)


@EVERY
def test_pyg_layers_sum_the_same_neighbourhoods(name):
    graph, counts = TABLE[name]
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(graph.num_sources, 5, dtype=torch.float64, generator=draw)
    out = SimpleConv("sum")((x, x.new_zeros(graph.num_targets, 5)), to_pyg_edge_index(graph))
    torch.testing.assert_close(out, torch.from_numpy(counts).to(x) @ x)


def test_changes_to_the_container_leave_the_graph_alone():
    graph, _ = TABLE["unsorted"]
    before = graph.edge_index.clone()
    for container in (to_pyg(graph),):
        container.edge_index.zero_()
    to_pyg_edge_index(graph).as_tensor().zero_()
    assert torch.equal(graph.edge_index, before)


def lie(edges, **claims):
    """An EdgeIndex with false claims; PyG believes them until validate()."""
    index = EdgeIndex(edges, **claims)
    with pytest.raises(ValueError, match="not"):
        index.validate()
    return index


UNSORTED = [[2, 0, 1, 0], [1, 2, 0, 1]]


@pytest.mark.parametrize(
    "claim", [{"sort_order": "row"}, {"sort_order": "col"}, {"is_undirected": True}], ids=str
)
def test_a_false_claim_does_no_harm(claim):
    edges = lie(UNSORTED, sparse_size=(3, 3), **claim)
    for graph in (from_pyg(edges), from_pyg(Data(edge_index=edges, num_nodes=3))):
        assert graph.edge_index.tolist() == UNSORTED
        assert type(graph.edge_index) is torch.Tensor
        assert graph.mask().tolist() == [
            [False, True, False],
            [True, False, True],
            [True, False, False],
        ]
        assert graph.in_degree.tolist() == [1, 2, 1]
        assert graph.reverse().edge_index.tolist() == UNSORTED[::-1]


def test_a_false_size_is_found():
    with pytest.raises(GraphIndexError, match="edge 0: source 2 is outside"):
        from_pyg(EdgeIndex(UNSORTED, sparse_size=(2, 3)))
    with pytest.raises(GraphIndexError, match="edge 1: target 2 is outside"):
        from_pyg(EdgeIndex(UNSORTED, sparse_size=(3, 2)))


def test_filled_caches_are_not_used():
    edges = EdgeIndex(UNSORTED, sparse_size=(3, 3)).sort_by("col").values
    edges.fill_cache_()
    graph = from_pyg(edges)
    assert graph.edge_index.tolist() == edges.as_tensor().tolist()


def test_node_counts_come_from_what_the_data_says():
    edge_index = torch.tensor([[0, 1], [1, 2]])
    assert from_pyg(Data(x=torch.zeros(7, 2), edge_index=edge_index)).num_nodes == 7
    assert from_pyg(Data(pos=torch.zeros(5, 3), edge_index=edge_index)).num_nodes == 5
    assert from_pyg(Data(num_nodes=11, edge_index=edge_index)).num_nodes == 11
    sized = EdgeIndex(edge_index, sparse_size=(13, 13))
    assert from_pyg(Data(edge_index=sized)).num_nodes == 13
    with pytest.raises(GraphError, match="data has no number of nodes"):
        from_pyg(Data(edge_index=edge_index))
    with pytest.raises(GraphIndexError, match="edge 1: target 2 is outside"):
        from_pyg(Data(x=torch.zeros(2, 3), edge_index=edge_index))
    with pytest.raises(
        GraphError, match=r"num_sources is 7, but the EdgeIndex has sparse_size \(13, 13\)"
    ):
        from_pyg(Data(x=torch.zeros(7, 3), edge_index=sized))


def test_a_batch_is_a_disjoint_union():
    parts = [TABLE[name][0] for name in ("causal", "unsorted", "no edges", "one node")]
    batch = Batch.from_data_list([to_pyg(graph) for graph in parts])
    assert from_pyg(batch).equals(disjoint_union(parts))


PAIR = torch.tensor([[0], [1]])
REFUSALS = [
    (
        lambda: from_pyg(PAIR),
        "got a Tensor; a plain tensor.* goes to from_edge_index, with its sizes",
    ),
    (lambda: from_pyg({"edge_index": PAIR}), "data must be a PyG Data or EdgeIndex, got a dict"),
    (
        lambda: from_pyg(Data(x=torch.zeros(3, 2))),
        r"data must have an edge_index \(2, E\); without edges it is",
    ),
    (
        lambda: from_pyg(Data(face=torch.zeros(3, 1).long(), num_nodes=3)),
        "must have an edge_index.*FaceToEdge",
    ),
    (
        lambda: from_pyg(Data(adj_t=torch.eye(3), num_nodes=3)),
        "it has adj_t: pass its indices as edge_index",
    ),
    (lambda: from_pyg(EdgeIndex(PAIR)), "num_sources and num_targets must be given"),
    (
        lambda: from_pyg(Data(edge_index=torch.tensor([[0, 0], [1, 1]]), num_nodes=2)),
        "edges 0 and 1 are both 0 -> 1: repeated edges",
    ),
    (
        lambda: to_pyg(TABLE["cross"][0]),
        "a Data needs one set of nodes, got 11 sources and 5 targets",
    ),
]


@pytest.mark.parametrize(("ask", "words"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(ask, words):
    with pytest.raises(GraphError, match=words):
        ask()
