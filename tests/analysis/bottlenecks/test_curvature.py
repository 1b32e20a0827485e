"""Curvature against the definitions by sets, linear programs, formulas, and GraphRicciCurvature's
values.
"""

import networkx as nx
import numpy as np
import pytest
import torch
from graph_table import GRAPHS
from scipy.optimize import linprog

import graphattn as ga
from graphattn import analysis, graphs
from graphattn.errors import GraphError, OptionError

SQUARE = [name for name, make in GRAPHS.items() if make().is_square]
CURVATURES = (analysis.forman_curvature, analysis.ollivier_ricci_curvature)


def of_networkx(graph):
    return ga.from_networkx(nx.convert_node_labels_to_integers(graph))


def neighbours(graph):
    near = [set() for _ in range(graph.num_targets)]
    for s, t in graph.edge_index.t().tolist():
        if s != t:
            near[s].add(t)
            near[t].add(s)
    return near


def forman(near, i, j):
    """Definition 1 of Topping et al., by sets."""
    d_i, d_j = len(near[i]), len(near[j])
    if min(d_i, d_j) == 1:
        return 0.0
    triangles = len(near[i] & near[j])
    squares, most = 0, 0
    for a, b in ((i, j), (j, i)):
        for k in near[a] - near[b] - {b}:
            cycles = len((near[k] & near[b]) - near[a] - {a})
            squares, most = squares + (cycles > 0), max(most, cycles)
    ricci = 2 / d_i + 2 / d_j - 2 + 2 * triangles / max(d_i, d_j) + triangles / min(d_i, d_j)
    return ricci + (squares / most / max(d_i, d_j) if most else 0.0)


def ollivier(near, i, j, alpha):
    """By scipy's linear program over all pairs of nodes and networkx's distances."""
    distance = dict(
        nx.all_pairs_shortest_path_length(
            nx.Graph((a, b) for a in range(len(near)) for b in near[a])
        )
    )
    of_i, of_j = (
        {end: alpha} | {k: (1 - alpha) / len(near[end]) for k in near[end]} for end in (i, j)
    )
    cost = [distance[a][b] for a in of_i for b in of_j]
    rows = np.kron(np.eye(len(of_i)), np.ones(len(of_j)))
    columns = np.kron(np.ones(len(of_i)), np.eye(len(of_j)))
    found = linprog(cost, A_eq=np.vstack((rows, columns)), b_eq=[*of_i.values(), *of_j.values()])
    return 1 - found.fun


def by_hand(graph, curvature):
    near = neighbours(graph)
    pairs = graph.edge_index.t().tolist()
    known = {
        pair: curvature(near, *pair)
        for pair in {(min(p), max(p)) for p in pairs}
        if pair[0] != pair[1]
    }
    return torch.tensor(
        [known.get((min(p), max(p)), torch.nan) for p in pairs], dtype=torch.float64
    )


@pytest.mark.parametrize("name", SQUARE)
def test_balanced_forman_is_its_definition(name):
    graph = GRAPHS[name]()
    torch.testing.assert_close(
        analysis.forman_curvature(graph), by_hand(graph, forman), equal_nan=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5])
def test_ollivier_ricci_is_optimal_transport(alpha):
    drawn = [
        nx.gnp_random_graph(13, p, seed=seed, directed=True)
        for seed, p in enumerate((0.1, 0.2, 0.4))
    ]
    shapes = [
        nx.barbell_graph(4, 1),
        nx.star_graph(5),
        nx.grid_2d_graph(3, 4),
        nx.lollipop_graph(5, 3),
    ]
    for graph in map(of_networkx, drawn + shapes):
        expected = by_hand(graph, lambda *edge: ollivier(*edge, alpha))
        found = analysis.ollivier_ricci_curvature(graph, alpha)
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def by_edge(graph, values):
    return {
        (s, t): v
        for s, t, v in zip(
            graph.source.tolist(), graph.target.tolist(), values.tolist(), strict=True
        )
    }


def one(values):
    """The value that all edges share."""
    assert float(values.max() - values.min()) < 1e-9
    return float(values[0])


def test_curvatures_with_a_formula():
    """Table 1 of Topping et al.; Jost and Liu 2014 for trees; Lin, Lu and Yau 2011."""
    forman_of, ricci_of = CURVATURES
    for n in (3, 4, 7):
        complete = of_networkx(nx.complete_graph(n))
        assert one(forman_of(complete)) == pytest.approx(n / (n - 1))
        assert one(ricci_of(complete, 0)) == pytest.approx((n - 2) / (n - 1))
        assert one(ricci_of(complete, 0.5)) == pytest.approx(n / (n - 1) / 2)
    for n, value in ((3, 1.5), (4, 1), (5, 0), (9, 0)):
        assert one(forman_of(of_networkx(nx.cycle_graph(n)))) == pytest.approx(value)
    assert one(ricci_of(of_networkx(nx.cycle_graph(9)))) == pytest.approx(0)
    torus = of_networkx(nx.grid_2d_graph(6, 7, periodic=True))
    assert one(forman_of(torus)) == pytest.approx(0)
    tree = of_networkx(nx.balanced_tree(3, 3))
    # both ends of degree 4
    inner = (tree.source < 13) & (tree.target < 13) & (tree.source > 0) & (tree.target > 0)
    assert one(forman_of(tree)[inner]) == pytest.approx(4 / 4 - 2)
    assert one(ricci_of(tree, 0)[inner]) == pytest.approx(-2 * (1 - 1 / 4 - 1 / 4))
    cube = of_networkx(nx.hypercube_graph(4))
    assert one(ricci_of(cube, 0.5)) / 0.5 == pytest.approx(2 / 4)


def test_values_published_by_graph_ricci_curvature():
    """Edges of Zachary's karate club in networkx's order, alpha 1/2: test_OllivierRicci.py of
    saibalmars' package.
    """
    published = [
        0.111111,
        -0.14375,
        0.041667,
        -0.114583,
        -0.28125,
        -0.28125,
        0.0625,
        -0.2,
        -0.114583,
        0.0625,
        0.0,
        0.0625,
        0.0625,
        -0.03125,
        0.0625,
        -0.427083,
        0.044444,
        0.166667,
        0.194444,
        0.244444,
        0.166667,
        0.111111,
        0.166667,
        -0.041667,
        0.05,
        0.125,
        0.1,
        0.1,
        0.2,
        -0.175,
        0.033333,
        -0.233333,
        0.416667,
        0.25,
        0.216667,
        0.291667,
        0.5,
        0.5,
        0.291667,
        0.375,
        0.375,
        0.375,
        -0.025,
        0.011765,
        -0.044118,
        -0.288235,
        0.125,
        0.088235,
        0.125,
        0.088235,
        0.125,
        0.088235,
        -0.254902,
        0.125,
        0.088235,
        0.125,
        0.088235,
        0.1,
        0.225,
        0.2,
        -0.066667,
        -0.076471,
        0.5,
        0.125,
        0.083333,
        0.166667,
        0.375,
        -0.073529,
        -0.147059,
        0.166667,
        -0.068627,
        -0.041667,
        -0.014706,
        -0.041667,
        -0.044118,
        -0.166667,
        -0.122549,
        0.267157,
    ]
    club = nx.karate_club_graph()
    graph = of_networkx(club)
    values = by_edge(graph, analysis.ollivier_ricci_curvature(graph))
    assert [values[edge] for edge in club.edges()] == pytest.approx(published, abs=1e-6)


@pytest.mark.parametrize("curvature", CURVATURES)
def test_a_bottleneck_is_negative_and_a_second_way_relieves_it(curvature):
    barbell = nx.barbell_graph(5, 0)  # nodes 4 and 5 join two cliques
    before = curvature(of_networkx(barbell))
    graph = of_networkx(barbell)
    bridge = graph.source + graph.target == 9
    assert bool((before[bridge] < 0).all())
    assert bool((before[~bridge] > 0).all())
    barbell.add_edge(3, 6)
    wider = of_networkx(barbell)
    after = curvature(wider)[(wider.source == 4) & (wider.target == 5)]
    assert float(after) > float(before[bridge][0])


@pytest.mark.parametrize("curvature", CURVATURES)
def test_direction_copies_and_loops(curvature):
    two_ways = of_networkx(nx.connected_watts_strogatz_graph(17, 4, 0.3, seed=3))
    values = by_edge(two_ways, curvature(two_ways))
    edges = two_ways.edge_index[:, two_ways.source < two_ways.target]
    loop = torch.tensor([[3], [3]])
    shuffled = torch.cat((edges.flip(0), loop, edges[:, :5]), 1)[
        :, torch.randperm(edges.shape[1] + 6)
    ]
    graph = ga.from_edge_index(shuffled, num_nodes=17, duplicates="keep")
    for (s, t), value in zip(graph.edge_index.t().tolist(), curvature(graph).tolist(), strict=True):
        assert (value != value) if s == t else value == pytest.approx(values[s, t])


@pytest.mark.parametrize("curvature", CURVATURES)
def test_hostile_graphs(curvature):
    for graph in (graphs.full(0), graphs.full(5) - graphs.full(5)):
        assert curvature(graph).shape == (0,)
    assert curvature(graphs.self_loops(3)).isnan().tolist() == [True] * 3
    assert curvature(graphs.sliding_window(2, 2, causal=True).without_self_loops()).shape == (1,)
    with pytest.raises(GraphError, match="square"):
        curvature(graphs.cross(3, 5))
    with pytest.raises(
        GraphError, match=r"of full\(600\) would take [\d,]+ steps \(limit 8,589,934,592"
    ):
        curvature(graphs.full(600))
    with pytest.raises(GraphError, match="smaller size"):
        curvature(graphs.full(1_000_000))


def test_alpha_is_a_share():
    for alpha in (1, -0.1, "half"):
        with pytest.raises(OptionError, match="alpha must be"):
            analysis.ollivier_ricci_curvature(graphs.full(3), alpha)
