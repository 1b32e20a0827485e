"""Laws of graphs beside networkx, and beside every function and every path there is."""

from itertools import product

import networkx as nx
import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import OptionError

LAYERS = 3


@pytest.mark.parametrize("readout", ["node", "mean", "token"])
def test_regular_graphs_that_networkx_colours_alike_are_one_colour(readout):
    """Of one degree, shares are counts: the colours are those of Weisfeiler and Leman."""
    graphs = [
        nx.cycle_graph(6),
        nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)),
        nx.path_graph(6),
    ]
    hashes = [nx.weisfeiler_lehman_graph_hash(graph, iterations=LAYERS) for graph in graphs]
    assert hashes[0] == hashes[1] != hashes[2]
    inputs = torch.tensor([[degree for _, degree in graph.degree] for graph in graphs])
    own = tuple(ga.from_networkx(graph.to_directed()) for graph in graphs)
    found = ga.laws.colours(inputs, own, LAYERS, readout=readout)
    assert found.shape == {"node": (3, 6)}.get(readout, (3,))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_layers_of_one_graph_or_of_several_are_the_same_colours():
    inputs = torch.randint(2, (11, 7), generator=torch.Generator().manual_seed(3))
    ring = ga.graphs.circulant(7, (0, 1))
    shared = ga.laws.colours(inputs, ring, 2)
    assert np.array_equal(shared, ga.laws.colours(inputs, [ring, ring]))
    assert np.array_equal(shared, ga.laws.colours(inputs, (ring,) * 11, 2))
    reads = {tuple(row[[i, i - 1, i - 2]]) for row in inputs.numpy() for i in range(7)}
    assert len(np.unique(shared)) == len(reads)


def test_a_ceiling_is_the_best_of_all_functions_of_colours():
    colours = [5, 5, 5, 9, 9, 2]
    targets = np.array([0, 1, 1, 2, 0, 2])
    places = np.unique(colours, return_inverse=True)[1]
    best = max(np.mean(np.array(guess)[places] == targets) for guess in product(range(3), repeat=3))
    assert ga.laws.ceiling(colours, targets) == best


def test_what_is_reached_is_what_powers_of_the_adjacency_reach():
    graph = ga.graphs.random_neighbours(13, 2, seed=1)
    needs = ga.graphs.random_neighbours(13, 1, seed=2)
    asked = torch.arange(13)
    adjacency = (graph.mask() | torch.eye(13, dtype=torch.bool)).double()
    reach = torch.linalg.matrix_power(adjacency, LAYERS) > 0
    has_all = ~((needs.mask() & ~reach).any(-1))
    share = float(asked[has_all].sum() / asked.sum())
    assert 0 < share < 1
    assert ga.laws.reached([graph] * LAYERS, needs, asked) == pytest.approx(share)


def test_fidelity_is_the_best_share_of_all_ways_and_mixing_ends_with_the_last_node():
    """Every way of up to three steps from the last node, and of two thousand random walks."""
    window = ga.graphs.sliding_window(7, 3, causal=True)
    reads = {t: window.source[window.target == t].tolist() for t in range(7)}
    ways = [[(6, 1.0)]]
    for _ in range(LAYERS):
        ways.append([(s, p / len(reads[t])) for t, p in ways[-1] for s in reads[t]])
    shares = [
        [sum(p for s, p in of_length if s == node) for node in range(7)] for of_length in ways
    ]
    found = ga.laws.fidelity(window, LAYERS)
    assert found.tolist() == pytest.approx(np.max(shares, axis=0))
    goes_to = {s: window.target[window.source == s].numpy() for s in range(7)}
    random = np.random.default_rng(0)
    steps = ga.laws.mixing(window, within=0.38)
    ended = []
    for count in (steps - 1, steps):
        at = np.zeros(2_000, dtype=int)
        for _ in range(count):
            at = np.array([random.choice(goes_to[node]) for node in at])
        ended.append(np.mean(at == 6))
    assert ended[0] < 0.62 + 0.03
    assert ended[1] > 0.62 - 0.03
    apart = ga.disjoint_union([window, window])
    assert ga.laws.mixing(apart) == np.inf


def test_mixing_goes_on_where_only_every_third_step_comes_nearer():
    """A walk goes from 0 to 1, and from there back by one of nine nodes, or to the last one."""
    onward = [(0, 1), (1, 11), (11, 11)]
    pairs = onward + [(1, node) for node in range(2, 11)] + [(node, 0) for node in range(2, 11)]
    graph = ga.from_edge_index(torch.tensor(pairs).T, num_nodes=12)
    assert ga.laws.mixing(graph) == 3 * 14  # 0.9**14 < 0.25 < 0.9**13


def test_a_walk_is_never_wholly_at_the_last_token():
    """In float64 a share would come near enough to 1 after some steps."""
    with pytest.raises(OptionError, match="within must be a number in"):
        ga.laws.mixing(ga.graphs.causal(2), within=0.0)
