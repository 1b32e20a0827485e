"""edge_index, both ways; what from_edge_index refuses is in tests/graph/test_listed.py."""

import numpy as np
import pytest
import torch
from convert_graphs import TABLE, counts_of
from torch_geometric import EdgeIndex
from torch_geometric.nn import SimpleConv

from graphattn.convert import from_edge_index
from graphattn.errors import GraphError

EVERY = pytest.mark.parametrize("name", TABLE)


@EVERY
def test_edge_index_there_and_back(name):
    graph, counts = TABLE[name]
    again = from_edge_index(
        graph.edge_index, graph.num_sources, graph.num_targets, duplicates="keep"
    )
    assert np.array_equal(counts_of(again), counts)
    assert torch.equal(again.edge_index, graph.edge_index)
    assert again.equals(graph)


@EVERY
def test_row_0_is_the_source_as_in_pyg(name):
    """PyG's own layer, summing one-hot sources at every target, gives the counts."""
    graph, counts = TABLE[name]
    x = torch.eye(graph.num_sources), torch.zeros(graph.num_targets, graph.num_sources)
    size = (graph.num_sources, graph.num_targets)
    assert np.array_equal(SimpleConv("sum")(x, graph.edge_index, size=size).numpy(), counts)


def test_an_edge_index_of_pyg_brings_its_sizes():
    edges = EdgeIndex([[2, 0, 1], [1, 4, 0]], sparse_size=(3, 5))
    graph = from_edge_index(edges)
    assert (graph.num_sources, graph.num_targets) == (3, 5)
    assert type(graph.edge_index) is torch.Tensor
    assert from_edge_index(edges, num_sources=3).equals(graph)
    with pytest.raises(
        GraphError, match=r"num_targets is 7, but the EdgeIndex has sparse_size \(3, 5\)"
    ):
        from_edge_index(edges, num_targets=7)
    with pytest.raises(GraphError, match="num_sources and num_targets must be given"):
        from_edge_index(EdgeIndex([[2, 0, 1], [1, 4, 0]]))
