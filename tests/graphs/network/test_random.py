"""Random networks: what must hold of every draw, and what must hold on average."""

import math

import networkx
import numpy as np
import pytest
import torch

from graphattn import from_edge_index, from_rule, graphs
from graphattn.convert import to_networkx, to_scipy
from graphattn.errors import GraphError
from graphattn.graphs.network.random import laplacian_gap as measured_gap
from graphattn.graphs.of_graphs import controls


def assert_simple(graph):
    assert not graph.is_rule
    assert not graph.has_repeated_edges
    assert graph.equals(graph.reverse())
    assert not bool((graph.source == graph.target).any())
    order = torch.argsort(graph.target * max(1, graph.num_nodes) + graph.source)
    assert torch.equal(order, torch.arange(graph.num_edges))


def laplacian_gap(graph):
    matrix = networkx.laplacian_matrix(to_networkx(graph).to_undirected()).toarray()
    return np.sort(np.linalg.eigvalsh(matrix.astype(float)))[1]


@pytest.mark.parametrize("D", [1, 2, 3])
def test_expanders_reach_their_gap(D):
    bound = 2 * D - 2 * math.sqrt(2 * D - 1) - 0.1
    for N in (101, 521) if D == 3 else (101,):  # eigenvalues of all, and the one that is needed
        graph = graphs.expander(N, D, 5)
        assert_simple(graph)
        assert laplacian_gap(graph) >= bound - 0.02
        assert measured_gap(to_scipy(graph).astype(float)) == pytest.approx(
            laplacian_gap(graph), abs=0.02
        )
        assert int(graph.in_degree.max()) <= 2 * D
    chain = graphs.circulant(101, (-1, 1)).materialise()
    # a ring of the same degree is no expander
    assert laplacian_gap(chain) < 2 * 2 - 2 * math.sqrt(3) - 0.1


@pytest.mark.parametrize(("n", "d", "seed"), [(40, 2, 3), (67, 3, 0), (31, 4, 11)])
def test_an_expander_is_one_of_the_draws_of_exphormers_code(n, d, seed):
    """There an edge from i to pi(i) and one back for each permutation, loops and copies kept."""
    random = np.random.default_rng(seed)
    draws = []
    for _ in range(20):
        ends = [(i, int(j)) for _ in range(d) for i, j in enumerate(random.permutation(range(n)))]
        draws.append({frozenset(edge) for edge in ends if edge[0] != edge[1]})
    edges = graphs.expander(n, d, seed).edge_index.t().tolist()
    assert {frozenset(edge) for edge in edges} in draws


def test_expanders_of_up_to_ten_nodes_are_complete():
    for N in range(11):
        assert graphs.expander(N, 3).equals(graphs.full(N).without_self_loops())
    assert not graphs.expander(11, 1).equals(graphs.full(11).without_self_loops())


def test_the_best_of_the_tries_is_taken():
    """Draws until the bound is reached; where none reaches it, the widest gap is kept."""
    gaps = [laplacian_gap(graphs.expander(23, 2, 4, tries=tries)) for tries in (1, 2, 4, 100)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 4 - 2 * math.sqrt(3) - 0.1 <= gaps[-1]
    # more than complete
    never = [laplacian_gap(graphs.expander(11, 9, 7, tries=tries)) for tries in (1, 2, 4)]
    assert never == sorted(never)


def test_random_regular():
    for N, degree in ((0, 0), (1, 0), (2, 1), (7, 4), (30, 3), (101, 6)):
        graph = graphs.random_regular(N, degree, 3)
        assert_simple(graph)
        assert graph.in_degree.tolist() == [degree] * N == graph.out_degree.tolist()
        assert graph.equals(graphs.random_regular(N, degree, 3))
    assert not graphs.random_regular(30, 3, 1).equals(graphs.random_regular(30, 3, 2))


def test_small_worlds():
    assert graphs.small_world(0, 0, 0.5).num_nodes == 0
    assert graphs.small_world(29, 6, 0).equals(graphs.circulant(29, (-3, -2, -1, 1, 2, 3)))
    graph = graphs.small_world(101, 6, 0.3, 5)
    assert_simple(graph)
    assert graph.num_edges == 101 * 6
    theirs = networkx.watts_strogatz_graph(101, 6, 0.3, 5)
    assert torch.equal(graph.mask(), torch.tensor(networkx.to_numpy_array(theirs)).bool())
    ring, world = (
        networkx.average_shortest_path_length(to_networkx(graphs.small_world(101, 4, p)))
        for p in (0, 0.2)
    )
    assert world < ring / 2


def table():
    loops = graphs.sliding_window(23, 5, causal=False)
    yield loops
    yield loops.without_self_loops()
    yield graphs.causal(17)
    yield graphs.full(7)
    yield graphs.full(7).without_self_loops()
    yield graphs.cross(5, 11)
    yield graphs.global_tokens(29, (0, 3)) | graphs.self_loops(29)
    yield from_edge_index(torch.tensor([[3, 0, 1, 2, 2], [0, 2, 2, 2, 5]]), num_nodes=7)
    yield from_edge_index(torch.tensor([[3, 0, 1, 12, 2], [0, 2, 2, 2, 4]]), 13, 5)
    yield graphs.full(0)
    yield graphs.full(1)
    yield graphs.full(3) - graphs.full(3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no other graph")
@pytest.mark.parametrize("keep", ["in-degrees", "degrees"])
def test_degrees_and_self_loops_are_kept(keep):
    for graph in table():
        for seed in (0, 5):
            control = graphs.degree_matched_random(graph, seed, keep=keep)
            assert not control.is_rule
            assert not control.has_repeated_edges
            assert torch.equal(control.in_degree, graph.in_degree)
            if keep == "degrees":
                assert torch.equal(control.out_degree, graph.out_degree)
            if graph.is_square:
                assert torch.equal(control.mask().diagonal(), graph.mask().diagonal())
            assert control.equals(graphs.degree_matched_random(graph, seed, keep=keep))
            order = torch.argsort(control.target * max(1, graph.num_sources) + control.source)
            assert torch.equal(order, torch.arange(control.num_edges))


@pytest.mark.filterwarnings("ignore:no other graph")
def test_swaps_of_a_symmetric_graph_keep_symmetry():
    window = graphs.sliding_window(53, 5, causal=False)
    cells = graphs.documents(torch.arange(53) // 6, causal=False)
    for graph in (window, cells, graphs.full(0), graphs.full(5), window - graphs.self_loops(53)):
        control = graphs.degree_matched_random(graph, 3)
        assert control.is_symmetric
        assert not control.has_repeated_edges
        assert torch.equal(control.in_degree, graph.in_degree)
        assert torch.equal(control.mask().diagonal(), graph.mask().diagonal())
    assert (graphs.degree_matched_random(cells, 3) & cells).num_edges < 0.4 * cells.num_edges
    ring = graphs.circulant(401, (-2, -1, 1, 2))
    control = graphs.degree_matched_random(ring, 3)
    assert (control & ring).num_edges < 50  # 16 are expected of 1604


def test_swaps_of_a_causal_graph_read_no_later_node():
    """A causal window is the only graph of its degrees: no sum of distances is smaller."""
    window = graphs.sliding_window(53, 5, causal=True)
    with pytest.warns(UserWarning, match="no other graph with the degrees"):
        assert graphs.degree_matched_random(window, 7).equals(window)
    graph = from_rule(lambda t, s: (t >= s) & ((7 * t + s * s + t * s) % 11 < 4), 53)
    control = graphs.degree_matched_random(graph, 7)
    assert bool((control.source <= control.target).all())
    assert torch.equal(control.in_degree, graph.in_degree)
    assert torch.equal(control.out_degree, graph.out_degree)
    assert (control & graph).num_edges < 0.7 * graph.num_edges


@pytest.mark.slow
def test_a_graph_that_is_alone_with_its_degrees_is_told():
    """The line warned of is the caller's, and what it says to try finds another graph."""
    for alone in (graphs.sliding_window(31, 4, causal=True), graphs.global_tokens(9, (2,))):
        with pytest.warns(UserWarning, match='keep="in-degrees"') as found:
            assert graphs.degree_matched_random(alone, 1).equals(alone)
        assert [warning.filename for warning in found] == [__file__]
        assert not graphs.degree_matched_random(alone, 1, keep="in-degrees").equals(alone)
    for alone in (graphs.full(6), graphs.self_loops(4), graphs.full(5).without_self_loops()):
        for keep in ("degrees", "in-degrees"):
            with pytest.warns(UserWarning, match="none has its in-degrees"):
                assert graphs.degree_matched_random(alone, keep=keep).equals(alone)


def test_a_graph_that_has_another_is_no_reason_to_warn(recwarn):
    ring = graphs.circulant(19, (-1, 1))
    graphs.degree_matched_random(ring)
    graphs.degree_matched_random(ring, keep="in-degrees")
    # swaps that return in an even number of rounds, and swaps of a round that exclude each other
    for edges in ([[0, 1], [2, 3]], [[1, 1, 0, 2], [0, 2, 3, 3]]):
        tiny = from_edge_index(torch.tensor(edges), 4, 4)
        for seed in range(9):
            assert not graphs.degree_matched_random(tiny, seed).equals(tiny)
            assert not graphs.degree_matched_random(tiny, seed, keep="in-degrees").equals(tiny)
    assert not recwarn.list


def mean_reach(graph, layers):
    """Nodes that a node depends on in so many layers, in the mean, by products of the mask."""
    step = (graph.mask() | torch.eye(graph.num_nodes, dtype=torch.bool)).double()
    return float((torch.linalg.matrix_power(step, layers) > 0).double().sum(1).mean())


POINTS = torch.rand(67, 3, generator=torch.Generator().manual_seed(0))
CLOSE = {
    "grid": graphs.grid_neighbourhood((8, 9), 3, causal=False),
    "window": graphs.sliding_window(71, 5, causal=False),
    "kNN": graphs.knn(POINTS, 7),
    "cells": graphs.documents(torch.arange(65) // 5, causal=False),
    "causal": from_rule(lambda t, s: (t >= s) & (t - s < 11) & ((t * t + s) % 3 < 2), 61),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "layers"),
    [
        pytest.param(name, layers, marks=[] if fast else pytest.mark.slow)
        for number, name in enumerate(CLOSE)
        for layers in (2, 3)
        for fast in (number > 0 and layers == 2 + number % 2,)
    ],
)
def test_reach_is_kept_with_degrees_where_layers_are_given(name, layers):
    graph = CLOSE[name]
    control = graphs.degree_matched_random(graph, 3, layers=layers)
    wanted = mean_reach(graph, layers)
    assert mean_reach(control, layers) == pytest.approx(wanted, rel=0.05)
    assert torch.equal(control.in_degree, graph.in_degree)
    assert torch.equal(control.out_degree, graph.out_degree)
    assert torch.equal(control.mask().diagonal(), graph.mask().diagonal())
    assert control.is_symmetric == graph.is_symmetric
    assert not control.has_repeated_edges
    others = graph.num_edges - graph._num_loops()
    shared = (control & graph).num_edges - graph._num_loops()
    assert shared < {"causal": 0.9}.get(name, 0.5) * others  # few causal graphs have the degrees
    assert control.equals(graphs.degree_matched_random(graph, 3, layers=layers))
    if name == "causal":
        assert bool((control.source <= control.target).all())
    elif name != "cells":  # what swaps alone reach
        free = graphs.degree_matched_random(graph, 3)
        assert mean_reach(free, layers) > 1.4 * wanted


def test_a_null_that_cannot_be_found_is_refused():
    for alone in (graphs.sliding_window(23, 5, causal=True), graphs.full(7), graphs.self_loops(7)):
        with pytest.raises(GraphError, match="no other graph with the degrees of"):
            graphs.degree_matched_random(alone, layers=2)
    with pytest.raises(GraphError, match='layers needs keep="degrees"'):
        graphs.degree_matched_random(graphs.full(7), keep="in-degrees", layers=2)
    with pytest.raises(GraphError, match="layers needs a square graph"):
        graphs.degree_matched_random(graphs.cross(5, 11), layers=2)


def test_reach_that_swaps_do_not_find_is_told(monkeypatch):
    monkeypatch.setattr(controls, "_TRIES", 0)
    window = graphs.sliding_window(71, 5, causal=False)
    with pytest.raises(GraphError, match=r"in 2 layers a node depends on 8\.\d nodes, and on 1\d"):
        graphs.degree_matched_random(window, layers=2)


def test_a_search_for_reach_ends_after_so_many_words(monkeypatch):
    window = graphs.sliding_window(71, 5, causal=False)
    monkeypatch.setattr(controls, "_WORDS", 3_000)
    with pytest.raises(GraphError, match=r"in 2 layers a node depends on 8\.\d nodes, and on 1\d"):
        graphs.degree_matched_random(window, layers=2)
    edges = [side.numpy() for side in (window.target, window.source)]
    random = np.random.default_rng(0)
    left = controls._annealed(window, *edges, [1, 1], 3_000, random)[1]
    assert -300 < left < 300  # what one swap reads


def test_every_source_is_drawn_alike():
    """Each free pair of a row of degree d out of n is an edge with probability d / n; and so is
    each pair of pairs.
    """
    rows, n, d = 4000, 40, 3
    index = torch.stack((torch.arange(d).repeat(rows), torch.arange(rows).repeat_interleave(d)))
    for width in (n, 5):  # few of many, and many of few
        graph = from_edge_index(index, width, rows)
        control = graphs.degree_matched_random(graph, 7, keep="in-degrees")
        mask = control.mask().double()
        expected = rows * d / width
        assert (mask.sum(0) - expected).abs().max() < 5 * math.sqrt(expected)
        together = (mask.T @ mask)[~torch.eye(width, dtype=torch.bool)]
        expected = rows * d * (d - 1) / (width * (width - 1))
        assert (together - expected).abs().max() < 5 * math.sqrt(expected)


def test_swaps_forget_the_graph():
    """After the swaps an edge of a ring is there no more often than chance has it."""
    graph = graphs.circulant(401, (-1, 1, 2))
    control = graphs.degree_matched_random(graph, 3)
    assert (control & graph).num_edges < 30  # 9 are expected of 1203
    assert set(control.out_degree.tolist()) == {3}
    free = graphs.degree_matched_random(graph, 3, keep="in-degrees")
    assert set(free.in_degree.tolist()) == {3}
    assert int(free.out_degree.max()) > 5
