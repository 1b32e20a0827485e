"""Directed graphs with repeated edges, on which scipy's searches run forever unless copies are
summed first.
"""

import networkx as nx
import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import analysis
from graphattn.analysis.bottlenecks.resistance import commute_time


def multigraph(seed, nodes, edges, on_a_cycle):
    made = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges), generator=made)
    if on_a_cycle:
        ring = torch.arange(nodes)
        ends = torch.cat((torch.stack((ring, (ring + 1) % nodes)), ends), 1)
    return ga.from_edge_index(
        torch.cat((ends, ends[:, : edges // 3]), 1), num_nodes=nodes, duplicates="keep"
    )


GRAPHS = [multigraph(seed, 5 + seed % 7, 2 + 3 * seed, seed % 2) for seed in range(19)]


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
def test_components_and_distances_are_those_of_the_graph_without_copies(graph):
    other = nx.DiGraph(graph.edge_index.T.tolist())
    other.add_nodes_from(range(graph.num_nodes))
    found = analysis.connectivity(graph)
    assert found.components == nx.number_weakly_connected_components(other)
    assert found.strong_components == nx.number_strongly_connected_components(other)
    single = graph | graph
    assert found == analysis.connectivity(single)
    assert analysis.universality(graph) == analysis.universality(single)
    assert analysis.hops(graph) == analysis.hops(single)
    bias, every = ga.nn.ShortestPathBias(2, 7), ga.graphs.full(graph.num_nodes)
    assert torch.equal(bias(every, graph), bias(every, single))


@pytest.mark.parametrize("graph", GRAPHS[1::2], ids=range(1, len(GRAPHS), 2))
def test_a_walk_takes_a_repeated_edge_more_often(graph):
    n = graph.num_nodes
    counts = np.zeros((n, n))
    np.add.at(counts, (graph.target.numpy(), graph.source.numpy()), 1)
    walk = counts / counts.sum(1, keepdims=True)
    hitting = np.zeros((n, n))
    for end in range(n):
        rest = np.arange(n) != end
        hitting[rest, end] = np.linalg.solve(np.eye(n - 1) - walk[rest][:, rest], np.ones(n - 1))
    torch.testing.assert_close(commute_time(graph), torch.from_numpy(hitting + hitting.T))


def test_copies_are_summed_in_a_matrix_of_its_own():
    graph = multigraph(3, 11, 41, True)
    edges = graph.edge_index.clone()
    analysis.connectivity(graph)
    assert torch.equal(graph.edge_index, edges)
    assert int(graph.in_degree.sum()) == graph.num_edges
    x = torch.randn(11, 2, 3)
    backends = [ga.attention(x, x, x, graph, backend=name) for name in ("edges", "message_passing")]
    torch.testing.assert_close(*backends)
