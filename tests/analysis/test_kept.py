"""Properties that a control keeps, beside networkx and counts of our own."""

import networkx
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError
from graphattn.graphs import causal, circulant, degree_matched_random, full, grid_neighbourhood

KARATE = ga.from_networkx(networkx.karate_club_graph())


def test_clustering_is_that_of_networkx():
    for graph in (
        KARATE,
        grid_neighbourhood((5, 7), 3, causal=False),
        circulant(23, (-2, -1, 1, 2)),
    ):
        control = degree_matched_random(graph, seed=2)
        for number, value in enumerate((graph, control)):
            undirected = networkx.Graph(value.edge_index.T.tolist())
            undirected.remove_edges_from(list(networkx.selfloop_edges(undirected)))
            item = ga.analysis.kept(graph, control).properties["clustering"]
            found = (item.before, item.after)[number]
            assert found == pytest.approx(networkx.average_clustering(undirected))


def test_a_null_of_a_social_network_loses_clustering_even_where_reach_is_kept():
    control = degree_matched_random(KARATE, seed=1, layers=2)
    answer = ga.analysis.kept(KARATE, control)
    assert {"in-degrees", "out-degrees", "self-loops", "symmetry", "reach"} == set(answer.names)
    assert not answer.properties["clustering"].kept
    assert "future" not in str(answer)


def test_each_control_keeps_what_it_says():
    graph = ga.from_rule(lambda t, s: (t >= s) & ((5 * t + s * s) % 7 < 3), 41)
    swapped = ga.analysis.kept(graph, degree_matched_random(graph))
    assert {"in-degrees", "out-degrees", "self-loops", "no later source"} <= set(swapped.names)
    redrawn = ga.analysis.kept(graph, degree_matched_random(graph, keep="in-degrees"))
    assert not {"out-degrees", "no later source"} & set(redrawn.names)
    assert {"in-degrees", "self-loops"} <= set(redrawn.names)
    moved = ga.analysis.kept(circulant(13, (-1, 1)), circulant(13, (-5, 5)))
    assert moved.edges == 0


def test_shares_and_reach_are_counted():
    answer = ga.analysis.kept(full(6), causal(6), layers=1)
    assert answer.edges == 0.5
    assert answer.properties["reach"] == type(answer.properties["reach"])(False, 6.0, 3.5)
    same = ga.analysis.kept(causal(6), causal(6))
    assert same.names == tuple(same.properties)
    assert same.edges == 1


def test_what_has_no_control_is_refused():
    with pytest.raises(GraphError, match="square and of one size"):
        ga.analysis.kept(full(6), full(7))
    with pytest.raises(GraphError, match="kept needs an AttentionGraph, got Tensor"):
        ga.analysis.kept(full(6), torch.ones(6, 6))
