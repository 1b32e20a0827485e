"""Conductance against networkx over all cuts, formulas of known graphs, and Cheeger's bounds."""

from importlib import import_module
from itertools import combinations
from math import sqrt

import networkx as nx
import pytest
import torch

import graphattn as ga
from graphattn import analysis, graphs
from graphattn.errors import GraphError

module = import_module("graphattn.analysis.bottlenecks.conductance")


def of_networkx(graph):
    return ga.from_networkx(nx.convert_node_labels_to_integers(graph))


def over_all_cuts(under):
    nodes = list(under)
    parts = [part for size in range(1, len(nodes) // 2 + 1) for part in combinations(nodes, size)]
    return min(nx.conductance(under, part) for part in parts)


DRAWN = {
    "barbell": nx.Graph(sorted(nx.barbell_graph(4, 1).edges)),  # nodes in order
    "random": nx.connected_watts_strogatz_graph(9, 4, 0.4, seed=1),
    "tree": nx.balanced_tree(2, 2),
    "star": nx.star_graph(6),
    "expander": nx.random_regular_graph(3, 10, seed=0),
}


@pytest.mark.parametrize("name", DRAWN)
def test_exact_conductance_is_the_least_of_networkx_and_lies_in_cheegers_bounds(name):
    graph = of_networkx(DRAWN[name])
    found = analysis.conductance(graph)
    assert found.exact
    assert found.lower == found.upper == pytest.approx(over_all_cuts(DRAWN[name]))
    assert nx.conductance(DRAWN[name], found.part.tolist()) == pytest.approx(found.upper)
    second = nx.normalized_laplacian_spectrum(DRAWN[name])[1]
    assert found.second_eigenvalue == pytest.approx(second)
    assert second / 2 - 1e-12 <= found.upper <= sqrt(2 * second) + 1e-12


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("dense", [512, 4])
def test_bounds_hold_what_is_exact(monkeypatch, name, dense):
    exact = analysis.conductance(of_networkx(DRAWN[name])).upper
    monkeypatch.setattr(module, "_EXACT", 2)
    # ARPACK needs nodes
    monkeypatch.setattr(module, "_DENSE", dense if name == "expander" else 512)
    found = analysis.conductance(of_networkx(DRAWN[name]))
    assert not found.exact
    assert found.lower - 1e-12 <= exact <= found.upper + 1e-12
    assert found.upper <= sqrt(2 * found.second_eigenvalue) + 1e-12
    assert nx.conductance(DRAWN[name], found.part.tolist()) == pytest.approx(found.upper)


def test_conductance_with_a_formula():
    assert analysis.conductance(graphs.full(8)).upper == pytest.approx(4 * 4 / (4 * 7))
    assert analysis.conductance(graphs.circulant(12, (1,))).upper == pytest.approx(2 / 12)
    path = analysis.conductance(graphs.sliding_window(400, 2, causal=True))
    assert path.upper == pytest.approx(1 / 399)
    assert sorted(path.part.tolist()) in (list(range(200)), list(range(200, 400)))
    assert path.second_eigenvalue == pytest.approx(
        1 - torch.cos(torch.tensor(torch.pi / 399).double()).item()
    )


def test_a_bottleneck_is_narrow_and_an_expander_is_not():
    barbell = analysis.conductance(of_networkx(nx.barbell_graph(30, 0)))
    assert barbell.upper == pytest.approx(1 / (30 * 29 + 1))
    assert sorted(barbell.part.tolist()) in (list(range(30)), list(range(30, 60)))
    large = analysis.conductance(graphs.expander(2000, 4, seed=0))
    assert large.lower > 0.05
    assert "half the second eigenvalue" in str(large)
    assert large.to_dict()["part"] == large.part.tolist()


def test_direction_loops_copies_and_a_removed_edge():
    both = of_networkx(DRAWN["barbell"])
    one_way = ga.from_edge_index(both.edge_index[:, both.source < both.target], num_nodes=9)
    assert analysis.conductance(one_way).upper == analysis.conductance(both).upper
    assert analysis.conductance(both.with_self_loops()).upper == analysis.conductance(both).upper
    wider = torch.cat((both.edge_index, torch.tensor([[3, 4], [4, 3]])), 1)
    copied = ga.from_edge_index(wider, num_nodes=9, duplicates="keep")
    # the other side, 12 + 1, of the single edge
    assert analysis.conductance(copied).upper == pytest.approx(1 / 13)
    cut = both - ga.from_edge_index(torch.tensor([[4, 5], [5, 4]]), num_nodes=9)
    found = analysis.conductance(cut)
    assert (found.upper, found.exact, found.part.tolist()) == (0, True, [5, 6, 7, 8])


def test_hostile_graphs():
    for graph in (
        graphs.full(0),
        graphs.full(1),
        graphs.self_loops(5),
        graphs.full(5) - graphs.full(5),
    ):
        with pytest.raises(GraphError, match="needs an edge between two nodes"):
            analysis.conductance(graph)
    # nodes 0, 2 and 4 are on no side
    alone = ga.from_edge_index(torch.tensor([[1], [3]]), num_nodes=5)
    assert analysis.conductance(alone).upper == 1
    with pytest.raises(GraphError, match="square"):
        analysis.conductance(graphs.cross(3, 5))
    with pytest.raises(GraphError, match="smaller size"):
        analysis.conductance(graphs.full(1_000_000))


def test_eigenvalues_that_crowd_are_refused(monkeypatch):
    monkeypatch.setattr(module, "_RESTARTS", 1)
    with pytest.raises(GraphError, match="did not separate two eigenvalues"):
        analysis.conductance(graphs.sliding_window(3000, 2, causal=True))
