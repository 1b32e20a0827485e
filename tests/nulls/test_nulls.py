"""Nulls keep what they say, as networkx counts it."""

import networkx as nx
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError

GRID = ga.graphs.sliding_window(64, 7, causal=False)


def as_networkx(graph):
    result = nx.DiGraph()
    result.add_nodes_from(range(graph.num_targets))
    result.add_edges_from(graph.edge_index.t().tolist())
    return result


def test_a_rewiring_keeps_degrees_and_symmetry_and_reaches_more():
    null = ga.nulls.rewired(GRID, seed=5)
    before, after = as_networkx(GRID), as_networkx(null)
    assert dict(before.in_degree) == dict(after.in_degree)
    assert dict(before.out_degree) == dict(after.out_degree)
    assert set(nx.nodes_with_selfloops(after)) == set(nx.nodes_with_selfloops(before))
    assert all(after.has_edge(t, s) for s, t in after.edges)
    assert nx.average_clustering(after.to_undirected()) < nx.average_clustering(
        before.to_undirected()
    )
    assert ga.nulls.rewired(GRID, seed=5).equals(null)
    assert not ga.nulls.rewired(GRID, seed=6).equals(null)


def test_a_null_that_is_matched_in_reach_depends_on_as_many_nodes():
    def reach(graph):
        return float(ga.analysis.receptive_field([graph] * 2).sizes[-1].double().mean())

    near, free = ga.nulls.rewired(GRID, layers=2), ga.nulls.rewired(GRID)
    assert reach(near) == pytest.approx(reach(GRID), rel=0.05)
    assert reach(free) > 1.5 * reach(GRID)


def test_in_degrees_are_kept_alone_and_causality_if_it_must_be():
    window = ga.graphs.sliding_window(31, 5, causal=True)
    null = ga.nulls.same_in_degrees(window, is_causal=True)
    assert torch.equal(null.in_degree, window.in_degree)
    assert null.is_causal
    assert not torch.equal(null.out_degree, window.out_degree)
    with pytest.raises(GraphError, match="reads no later node"):
        ga.nulls.same_in_degrees(GRID, is_causal=True)


def test_a_permutation_is_the_same_graph_on_other_places():
    null = ga.nulls.permuted(GRID, seed=1)
    assert not null.equals(GRID)
    both = [as_networkx(graph).to_undirected() for graph in (null, GRID)]
    assert nx.could_be_isomorphic(*both)
    assert ga.nulls.alone(GRID).num_edges == 64
    assert ga.nulls.everything(GRID).num_edges == 64**2
    assert ga.nulls.everything(GRID, is_causal=True).num_edges == 64 * 65 // 2


def test_nulls_of_a_causal_graph_are_causal_and_one_that_is_the_graph_is_said():
    window = ga.graphs.sliding_window(9, 3, causal=True)
    assert ga.nulls.everything(window).equals(ga.graphs.causal(9))
    assert ga.nulls.same_in_degrees(window, seed=2).is_causal
    with pytest.warns(UserWarning, match="the null is the graph itself"):
        assert ga.nulls.rewired(window).equals(window)
