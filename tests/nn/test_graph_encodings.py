"""Encodings of nodes, against powers of the walk's matrix and numpy's eigenvectors."""

import networkx
import numpy as np
import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.errors import GraphError
from graphattn.nn import laplacian_eigenvector_pe, random_walk_pe

CLUB = ga.from_networkx(networkx.karate_club_graph().to_directed())


@pytest.mark.parametrize(
    "name", ["listed_random", "causal", "directed_ring", "hub", "one_lonely_node", "zero_nodes"]
)
def test_a_walk_is_back_with_the_probability_on_the_diagonal(name):
    graph = GRAPHS[name]()
    out = graph.mask().T.double().numpy()  # out[s, t]
    step = out / np.maximum(out.sum(1, keepdims=True), 1)
    wanted = [np.diagonal(np.linalg.matrix_power(step, k)) for k in range(1, 6)]
    found = random_walk_pe(graph, 5)
    np.testing.assert_allclose(found, np.stack(wanted, 1), atol=1e-6)
    if name == "hub":  # which way the edges point is not the same
        assert not torch.allclose(random_walk_pe(graph.reverse(), 5), found)


@pytest.mark.parametrize("nodes", [34, 143])  # dense, and by ARPACK
def test_eigenvectors_of_the_normalised_laplacian(nodes):
    world = (
        networkx.karate_club_graph()
        if nodes == 34
        else networkx.connected_watts_strogatz_graph(nodes, 6, 0.4, seed=1)
    )
    graph = CLUB if nodes == 34 else ga.from_networkx(world.to_directed())
    pe = laplacian_eigenvector_pe(graph, 4)
    laplacian = networkx.normalized_laplacian_matrix(world, weight=None).todense()
    values, vectors = np.linalg.eigh(laplacian)
    assert np.diff(values[:6]).min() > 1e-3  # so each eigenvector is one but for its sign
    found = np.abs(vectors[:, 1:5].T @ pe.numpy())
    np.testing.assert_allclose(found, np.eye(4), atol=1e-5)
    assert np.abs(vectors[:, :4].T @ pe.numpy()).max(0)[3] < 0.1  # not one further down


@pytest.mark.parametrize("nodes", [99, 100, 101])
def test_all_eigenvectors_of_a_graph(nodes):
    path = ga.graphs.sliding_window(nodes, 3, causal=False).without_self_loops()
    pe = laplacian_eigenvector_pe(path, nodes - 1).double()
    values = np.linalg.eigvalsh(
        networkx.normalized_laplacian_matrix(networkx.path_graph(nodes)).todense()
    )
    laplacian = torch.from_numpy(
        networkx.normalized_laplacian_matrix(networkx.path_graph(nodes)).toarray()
    )
    np.testing.assert_allclose(
        torch.einsum("nk,nm,mk->k", pe, laplacian, pe), values[1:], atol=1e-5
    )
    np.testing.assert_allclose(pe.T @ pe, np.eye(nodes - 1), atol=1e-5)


def test_eigenvectors_are_the_same_every_time_and_leave_random_numbers_alone():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = laplacian_eigenvector_pe(CLUB, 12)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    assert torch.equal(laplacian_eigenvector_pe(CLUB, 12), first)
    top = first.abs().argmax(0)
    assert (first[top, torch.arange(12)] > 0).all()


def test_edges_of_one_way_count_as_of_both_and_loops_not_at_all():
    one_way = ga.graphs.sliding_window(12, 2, causal=True)
    both = ga.graphs.sliding_window(12, 3, causal=False).without_self_loops()
    assert torch.equal(laplacian_eigenvector_pe(one_way, 2), laplacian_eigenvector_pe(both, 2))


def test_refusals():
    twice = ga.from_edge_index(torch.tensor([[0, 0], [1, 1]]), num_nodes=2, duplicates="keep")
    for graph, words in (
        (ga.graphs.cross(2, 3), "needs a square graph"),
        (twice, r"repeats some; drop them with graph \| graph"),
    ):
        for encode in (random_walk_pe, laplacian_eigenvector_pe):
            with pytest.raises(GraphError, match=words):
                encode(graph, 1)
    with pytest.raises(GraphError, match="k must be below 5, the number of nodes, got 5"):
        laplacian_eigenvector_pe(ga.graphs.full(5), 5)
    with pytest.raises(GraphError, match="k must be a whole number >= 1, got 0"):
        laplacian_eigenvector_pe(CLUB, 0)
    with pytest.raises(GraphError, match="walk_length must be a whole number >= 1, got 0"):
        random_walk_pe(CLUB, 0)
    with pytest.raises(GraphError, match="from_edge_index"):
        random_walk_pe(CLUB.edge_index, 2)
