"""Measures of bottlenecks on graphs whose values are known: a barbell, a path, a tree, a Cayley
graph, an expander.
"""

import networkx as nx
import pytest

import graphattn as ga
from graphattn import analysis

#: Girth 8, and as far from bipartite halves as a cubic graph of 30 nodes can be: eigenvalues 3, 2,
#: 0, -2, -3.
TUTTE_COXETER = nx.LCF_graph(30, [-13, -9, 7, -7, 9, 13], 5)


def of(graph):
    return ga.from_networkx(nx.convert_node_labels_to_integers(graph, ordering="sorted"))


def at(graph, values, s, t):
    (value,) = values[(graph.source == s) & (graph.target == t)].tolist()
    return value


#: A graph, an edge of it, and there: resistance, commute time, balanced Forman, Ollivier-Ricci
#: (alpha 0).
KNOWN = {
    "the bridge of a barbell": (
        of(nx.barbell_graph(5, 0)),
        (4, 5),
        1,
        42,
        4 / 5 - 2,
        -2 * (1 - 2 / 5),
    ),
    "the middle of a path": (of(nx.path_graph(9)), (4, 5), 1, 2 * 8, 0, 0),
    "the trunk of a tree": (
        of(nx.balanced_tree(2, 4)),
        (1, 3),
        1,
        2 * 30,
        4 / 3 - 2,
        -2 * (1 - 2 / 3),
    ),
    "the hypercube, a Cayley graph": (of(nx.hypercube_graph(4)), (0, 1), 15 / 32, 30, 2 / 4, 0),
    "a cubic expander": (of(TUTTE_COXETER), (0, 1), 29 / 45, 58, 4 / 3 - 2, -2 * (1 - 2 / 3)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_an_edge_has_the_values_of_the_formulas(name):
    """Resistances of edge-transitive graphs by Foster's theorem, curvatures by degrees where no
    short cycle passes.
    """
    graph, (s, t), resistance, commute, forman, ricci = KNOWN[name]
    assert float(analysis.effective_resistance(graph)[s, t]) == pytest.approx(resistance)
    assert float(analysis.commute_time(graph, [[s], [t]])[0]) == pytest.approx(commute)
    assert at(graph, analysis.forman_curvature(graph), s, t) == pytest.approx(forman)
    assert at(graph, analysis.ollivier_ricci_curvature(graph, alpha=0), s, t) == pytest.approx(
        ricci
    )


def test_conductance_of_a_cayley_graph_is_cheegers_lower_bound():
    """A hypercube of dimension 4 is best cut across one dimension: 8 of 32 ends of edges."""
    cube = analysis.conductance(of(nx.hypercube_graph(4)))
    assert (cube.exact, cube.upper) == (True, pytest.approx(1 / 4))
    assert cube.second_eigenvalue == pytest.approx(2 / 4)
    assert analysis.conductance(of(nx.hypercube_graph(5))).lower == pytest.approx(1 / 5)


def test_no_two_nodes_of_an_expander_are_far_in_resistance():
    """Between the bounds of Lovasz 1993, "Random Walks on Graphs: A Survey", corollary 3.3; a path
    of as many nodes breaks what the expander's eigenvalue allows."""
    graph = of(TUTTE_COXETER)
    found = analysis.conductance(graph)
    assert found.second_eigenvalue == pytest.approx(1 - 2 / 3)
    assert found.lower == pytest.approx(1 / 6)
    resistance = analysis.effective_resistance(graph)
    apart = resistance[resistance > 0]
    most = 2 / 3 / found.second_eigenvalue
    assert 1 / 3 <= float(apart.min()) <= float(apart.max()) <= most
    assert float(analysis.effective_resistance(of(nx.path_graph(30))).max()) > most
