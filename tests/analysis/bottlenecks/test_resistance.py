"""Effective resistance and commute time against networkx, hitting times, Foster's theorem and the
laws of resistors.
"""

from importlib import import_module

import networkx as nx
import numpy as np
import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn import analysis, graphs
from graphattn.errors import GraphError

SQUARE = [name for name, make in GRAPHS.items() if make().is_square]
resistance = import_module("graphattn.analysis.bottlenecks.resistance")


def of_networkx(graph):
    return ga.from_networkx(nx.convert_node_labels_to_integers(graph))


def copies():
    """A path of three nodes both ways, the first edge of which is there three times in both
    directions.
    """
    edges = [[0, 1, 1, 2, 0, 1, 0, 1], [1, 0, 2, 1, 1, 0, 1, 0]]
    return ga.from_edge_index(torch.tensor(edges), num_nodes=3, duplicates="keep")


def underneath(graph):
    """networkx's undirected graph: copies of an edge are parallel, self-loops and directions are
    gone.
    """
    matrix = np.zeros((graph.num_targets, graph.num_targets), dtype=int)
    np.add.at(matrix, (graph.target.numpy(), graph.source.numpy()), 1)
    np.fill_diagonal(matrix, 0)
    return nx.from_numpy_array(np.maximum(matrix, matrix.T))


def by_networkx(graph):
    under = underneath(graph)
    found = np.full((len(under), len(under)), np.inf)
    np.fill_diagonal(found, 0)
    for nodes in nx.connected_components(under):
        for s, row in nx.resistance_distance(
            under.subgraph(nodes), weight="weight", invert_weight=False
        ).items():
            for t, value in row.items():
                found[s, t] = value
    return torch.from_numpy(found)


@pytest.mark.parametrize("name", SQUARE)
def test_resistance_is_that_of_networkx(name):
    graph = GRAPHS[name]()
    torch.testing.assert_close(
        analysis.effective_resistance(graph), by_networkx(graph), atol=1e-9, rtol=1e-9
    )


def test_resistances_with_a_formula():
    def between(graph, s, t):
        return float(analysis.effective_resistance(graph)[s, t])

    assert between(graphs.full(11), 3, 7) == pytest.approx(2 / 11)
    assert between(graphs.circulant(7, (1,)), 0, 3) == pytest.approx(3 * 4 / 7)  # 3 ohms beside 4
    # a causal path, from either end
    assert between(graphs.sliding_window(13, 2, causal=True), 2, 9) == pytest.approx(7)
    # distance in a tree
    assert between(of_networkx(nx.balanced_tree(3, 2)), 4, 12) == pytest.approx(4)
    assert between(copies(), 0, 2) == pytest.approx(1 / 3 + 1)  # three side by side, then one
    barbell = of_networkx(nx.barbell_graph(5, 2))
    assert between(barbell, 0, 11) == pytest.approx(2 / 5 + 3 + 2 / 5)
    hypercube = analysis.effective_resistance(of_networkx(nx.hypercube_graph(3)))
    # 7/12, 3/4, 5/6 of a cube
    assert sorted({round(float(value) * 12) for value in hypercube[0]}) == [0, 7, 9, 10]


@pytest.mark.parametrize("name", ["longformer", "hub", "copies"])
def test_fosters_theorem(name):
    """Over all edges, conductance times resistance is the number of nodes less that of
    components.
    """
    graph = copies() if name == "copies" else GRAPHS[name]()
    under = underneath(graph)
    found = analysis.effective_resistance(graph)
    total = sum(data["weight"] * float(found[s, t]) for s, t, data in under.edges(data=True))
    assert total == pytest.approx(len(under) - nx.number_connected_components(under))


def hitting_times(graph, target):
    """By solving for the steps to one node; infinite where the walk may end elsewhere."""
    size = graph.num_targets
    walk = np.zeros((size, size))
    np.add.at(walk, (graph.target.numpy(), graph.source.numpy()), 1.0)
    walk /= np.maximum(walk.sum(1, keepdims=True), 1)
    others = [node for node in range(size) if node != target]
    return others, np.linalg.solve(np.eye(size - 1) - walk[others][:, others], np.ones(size - 1))


def commuting(graph):
    size = graph.num_targets
    hit = np.zeros((size, size))
    for target in range(size):
        others, steps = hitting_times(graph, target)
        hit[others, target] = steps
    return torch.from_numpy(hit + hit.T)


def test_commute_time_is_the_sum_of_two_hitting_times():
    directed = ga.from_networkx(nx.gnp_random_graph(17, 0.3, seed=2, directed=True))
    assert analysis.connectivity(directed).strong_components == 1
    ring = graphs.circulant(11, (1, 2)) - graphs.circulant(11, (9, 10))
    looped = graphs.sliding_window(13, 5, causal=False)  # symmetric, with self-loops
    for graph in (directed, copies(), looped, graphs.full(5), ring | graphs.circulant(11, (1,))):
        torch.testing.assert_close(
            analysis.commute_time(graph), commuting(graph), atol=1e-8, rtol=1e-8
        )
    without = looped.without_self_loops()
    loops = looped.num_edges / without.num_edges
    torch.testing.assert_close(
        analysis.commute_time(looped), analysis.commute_time(without) * loops
    )


def test_one_way_is_another_commute_than_both_and_the_same_resistance():
    one = ga.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), num_nodes=4)
    both = one | one.reverse()
    assert torch.equal(analysis.effective_resistance(one), analysis.effective_resistance(both))
    assert float(analysis.commute_time(one)[0, 1]) == pytest.approx(4)  # once round
    assert float(analysis.commute_time(both)[0, 1]) == pytest.approx(8 * 3 / 4)


def test_a_walk_that_never_returns_takes_for_ever():
    assert bool(analysis.commute_time(graphs.causal(5))[0, 1:].isinf().all())
    # 0 also reads 3
    leak = ga.from_edge_index(torch.tensor([[1, 0, 3, 2, 3], [0, 1, 2, 3, 0]]), num_nodes=4)
    found = analysis.commute_time(leak)
    assert found[2, 3] == 2  # closed: they read each other alone
    assert bool(found[:2, 2:].isinf().all())
    assert bool(found[0, 1].isinf())


def test_a_removed_edge_raises_resistance_by_the_parallel_law():
    graph = of_networkx(nx.connected_watts_strogatz_graph(31, 6, 0.2, seed=1))
    before = analysis.effective_resistance(graph)
    s, t = graph.edge_index[:, 5].tolist()
    bridge = ga.from_edge_index(torch.tensor([[s], [t]]), num_nodes=31)
    after = analysis.effective_resistance(graph - (bridge | bridge.reverse()))
    assert bool((after >= before - 1e-12).all())
    # conductances beside each other add
    assert 1 / float(before[s, t]) - 1 / float(after[s, t]) == pytest.approx(1)
    one_way = analysis.effective_resistance(graph - bridge)
    torch.testing.assert_close(one_way, before)  # the other direction still conducts


@pytest.mark.parametrize("limit", [1 << 31, 0])
def test_chosen_pairs_are_those_of_all(monkeypatch, limit):
    monkeypatch.setattr(resistance, "_MOST_WORK", limit)
    parts = of_networkx(nx.disjoint_union(nx.grid_2d_graph(5, 7), nx.path_graph(6)))
    graph = ga.from_edge_index(
        torch.cat((parts.edge_index, parts.edge_index[:, :3]), 1), num_nodes=41, duplicates="keep"
    )
    pairs = torch.tensor([[0, 3, 7, 36, 0, 12], [34, 3, 1, 40, 40, 30]])
    every = analysis.effective_resistance(graph)[pairs[0], pairs[1]]
    assert every.isinf().tolist() == [False, False, False, False, True, False]
    if limit == 0:
        with pytest.raises(GraphError, match="conjugate gradients did not converge within 1 step"):
            analysis.effective_resistance(graph, pairs)
        monkeypatch.setattr(
            resistance, "_banded", lambda matrix, *_: resistance._iterated(matrix, 1, "")
        )
        monkeypatch.setattr(resistance, "_MOST_WORK", 1 << 31)
    found = analysis.effective_resistance(graph, pairs)
    torch.testing.assert_close(found, every, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(
        analysis.effective_resistance(graph, pairs.repeat(1, 9)), every.repeat(9)
    )
    symmetric = graph | graph.reverse()
    torch.testing.assert_close(
        analysis.commute_time(symmetric, pairs),
        analysis.commute_time(symmetric)[pairs[0], pairs[1]],
    )


def test_large_graphs_are_asked_by_pairs_or_refused():
    path = graphs.sliding_window(100_000, 2, causal=True)
    assert analysis.effective_resistance(path, [[5, 0], [99_999, 0]]).tolist() == pytest.approx(
        [99_994, 0]
    )
    with pytest.raises(GraphError, match=r"all pairs of 100,000 nodes .*limit 4,096.*pairs="):
        analysis.effective_resistance(path)
    with pytest.raises(GraphError, match=r"directed graph of 100,000 nodes .*limit 4,096"):
        analysis.commute_time(path, [[0], [1]])
    with pytest.raises(GraphError, match=r"effective_resistance on .*smaller size"):
        analysis.effective_resistance(graphs.full(1_000_000), [[0], [1]])


def test_hostile_pairs_are_refused_and_small_graphs_have_answers():
    graph = graphs.full(5)
    for pairs, words in (
        ([0, 1], r"pairs must have shape \(2, k\), got a Tensor \(2,\)"),
        ([[0], [5]], r"pairs must be in \[0, 5\), the nodes"),
        ([[-1], [0]], r"pairs must be in \[0, 5\), the nodes"),
        ([[0.5], [1.0]], "integers"),
        ("ab", "pairs must be"),
    ):
        for ask in (analysis.effective_resistance, analysis.commute_time):
            with pytest.raises(GraphError, match=words):
                ask(graph, pairs)
    for ask in (analysis.effective_resistance, analysis.commute_time):
        assert ask(graphs.full(0)).shape == (0, 0)
        assert ask(graphs.full(1)).tolist() == [[0]]
        assert ask(graph, torch.empty(2, 0)).shape == (0,)
        assert ask(graph - graph)[0].tolist() == [0, *[torch.inf] * 4]
        with pytest.raises(GraphError, match="square"):
            ask(graphs.cross(3, 5))
