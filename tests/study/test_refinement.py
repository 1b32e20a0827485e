"""Colours of refinement against independent ones, and against what models can tell apart."""

from collections import Counter
from math import gcd

import networkx
import numpy as np
import pytest
import torch
from tiny_study import tiny_comparison

import graphattn as ga
from graphattn import study
from graphattn.study.laws import Colours, ceilings
from graphattn.study.network import POSITIONS, Network
from graphattn.study.train import Reading

LAYERS = 2
QUICK = (("relative", True), ("rotary", False), ("pairs", False))


def compared(graphs, targets, positions="none", inputs=None, arm=None, **changes):
    """Samples with graphs of their own, and alike in everything else."""
    nodes = max(graph.num_nodes for graph in graphs)
    if inputs is None:
        inputs = torch.zeros(len(graphs), nodes, dtype=torch.int64)
    data = study.Data(inputs, torch.as_tensor(targets), test=1, **changes)
    arms = {"own": arm or (lambda sample: graphs[sample.index])}
    return tiny_comparison(
        arms, data, positions=positions, controls=(), budgets=study.Budget(None, 3)
    )


def skips(step, nodes=11):
    """A circular skip link graph: 1-WL cannot tell it from others of its size."""
    return ga.graphs.circulant(nodes, (-step, -1, 0, 1, step))


def graph_of(theirs):
    """A graph of networkx, both ways."""
    return ga.from_networkx(networkx.convert_node_labels_to_integers(theirs).to_directed())


def hops_of(theirs):
    """Hops between all nodes, (N, N); one more than any where there is no way."""
    hops = torch.full((len(theirs), len(theirs)), len(theirs))
    number = {node: i for i, node in enumerate(theirs)}
    for node, of_node in networkx.all_pairs_shortest_path_length(theirs):
        for other, count in of_node.items():
            hops[number[node], number[other]] = count
    return hops


def shrikhande():
    """The graph of Shrikhande, of 16 nodes."""
    result = networkx.Graph()
    for i in range(4):
        for j in range(4):
            for a, b in ((0, 1), (1, 0), (1, 1)):
                result.add_edge(4 * i + j, 4 * ((i + a) % 4) + (j + b) % 4)
    return result


def alike_to_2_wl(*graphs):
    """True if folklore 2-WL gives graphs the same colours: exact, by numbering them."""
    tables = []
    for graph in graphs:
        adjacency = networkx.to_numpy_array(graph, dtype=int)
        tables.append(adjacency + 2 * np.eye(len(adjacency), dtype=int))
    for _ in range(5):
        numbers = {}
        new = []
        for table in tables:
            nodes = range(len(table))
            triples = [
                [(table[u, v], *sorted(zip(table[u], table[:, v], strict=True))) for v in nodes]
                for u in nodes
            ]
            of_pairs = [[numbers.setdefault(x, len(numbers)) for x in row] for row in triples]
            new.append(np.array(of_pairs))
        tables = new
    counts = [np.sort(table.ravel()).tolist() for table in tables]
    return all(count == counts[0] for count in counts)


def decalin():
    """Two hexagons with an edge in common."""
    result = networkx.cycle_graph(10)
    result.add_edge(0, 5)
    return result


def bicyclopentyl():
    """Two pentagons, and an edge between them."""
    result = networkx.disjoint_union(networkx.cycle_graph(5), networkx.cycle_graph(5))
    result.add_edge(0, 5)
    return result


#: Two graphs, and what tells them apart: their edges, hops on all pairs, 2-WL.
PAIRS = {
    "decalin and bicyclopentyl": (decalin(), bicyclopentyl(), (False, True, True)),
    # GD-WL does, but biases of a softmax leave equal nodes equal
    "a hexagon and two triangles": (
        networkx.cycle_graph(6),
        networkx.disjoint_union(networkx.cycle_graph(3), networkx.cycle_graph(3)),
        (False, False, True),
    ),
    "the dodecahedron and Desargues' graph": (
        networkx.dodecahedral_graph(),
        networkx.desargues_graph(),
        (False, False, True),
    ),
    "the rook's graph and Shrikhande's": (
        networkx.line_graph(networkx.complete_bipartite_graph(4, 4)),
        shrikhande(),
        (False, False, False),
    ),
    "a path and a star": (networkx.path_graph(5), networkx.star_graph(4), (True, True, True)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_ceilings_are_those_of_what_random_weights_tell_apart(name):
    """Nodes are given their degrees; what hops tell apart 2-WL does."""
    *pair, (by_edges, by_hops, by_pairs) = PAIRS[name]
    assert alike_to_2_wl(*pair) != by_pairs
    hops = torch.stack([hops_of(graph) for graph in pair])
    degrees = torch.tensor([[count for _, count in graph.degree] for graph in pair])
    for arm, positions, told_apart in (
        (None, "none", by_edges),
        (ga.graphs.full(len(pair[0])), "pairs", by_hops),
        (ga.graphs.full(len(pair[0])), "none", name == "a path and a star"),
    ):
        about = compared(
            [graph_of(graph) for graph in pair], [0, 1], positions, degrees, arm, pairs=hops
        )
        found = ceilings(about, about.graphs["own"])["colours"]
        outputs = untrained(about, positions)
        apart = float((outputs[0] - outputs[1]).abs().max())
        if told_apart:
            assert (found, apart > 1e-4) == ({}, True)
        else:
            assert (found, apart < 1e-12) == ({positions: 0.5}, True)


def untrained(about, positions, scale=1.0):
    """Outputs of a model of random weights."""
    torch.manual_seed(1)
    network = Network(about.model, about.data, about.readout, positions).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    with torch.no_grad():
        return Reading(about.data, about.graphs["own"])(network, torch.arange(len(about.data)))


def test_circular_skip_links_are_told_apart_by_hops_from_a_node_that_differs():
    graphs = [skips(2), skips(3), skips(2), skips(3), skips(3)]
    hops = []
    for graph in graphs:
        walks = torch.linalg.matrix_power(graph.mask().double(), 2) > 0
        hops.append(2 - walks.long() - graph.mask().long())
    given = {"positions": ("none", "pairs"), "pairs": torch.stack(hops)}
    about = compared(graphs, [0, 1, 0, 1, 1], **given)
    own = ceilings(about, about.graphs["own"])["colours"]
    assert own == {"none": 3 / 5, "pairs": 3 / 5}
    about = compared(graphs, [0, 1, 0, 1, 1], arm=ga.graphs.full(11), **given)
    alike = ceilings(about, about.graphs["own"])["colours"]
    assert alike == {"none": 3 / 5, "pairs": 3 / 5}
    marked = torch.zeros(5, 11, dtype=torch.int64)
    marked[:, 4] = 1
    about = compared(graphs, [0, 1, 0, 1, 1], inputs=marked, arm=ga.graphs.full(11), **given)
    assert ceilings(about, about.graphs["own"])["colours"] == {"none": 3 / 5}
    outputs = untrained(about, "pairs")
    assert float((outputs[0] - outputs[1]).abs().max()) > 1e-4


def test_classes_that_are_independent_of_colours_are_not_read():
    """Of two tokens, classes of pairs that are equal, and the others; and that go with a token."""
    inputs = torch.tensor([[0, 1]] * 4)
    pairs = torch.tensor([[[0, 0]] * 2, [[1, 1]] * 2, [[0, 1]] * 2, [[1, 0]] * 2])
    given = {"inputs": inputs, "arm": ga.graphs.full(2), "pairs": pairs}
    about = compared([ga.graphs.full(2)], [0, 1, 2, 3], "pairs", **given)
    colours = Colours(about, about.graphs["own"], "pairs").of_answers(torch.arange(4))
    assert len(set(colours.tolist())) == 3
    assert colours[0] == colours[1]
    outputs = untrained(about, "pairs")
    assert float((outputs[0] - outputs[1]).abs().max()) < 1e-12
    assert float((outputs[0] - outputs[2]).abs().max()) > 1e-4


def shares(colours):
    """How often each occurs, by their common divisor."""
    counts = Counter(colours)
    divisor = gcd(*counts.values())
    return tuple(sorted((colour, count // divisor) for colour, count in counts.items()))


@pytest.mark.parametrize("seed", range(2))
def test_colours_part_graphs_as_exact_shares_do(seed):
    """Graphs of 5 to 7 nodes, many of which are alike; 1-WL parts what shares part, and more."""
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randint(2, (90, 7), generator=random)
    sizes = torch.randint(5, 8, (90,), generator=random)
    graphs = []
    exact = []
    of_1_wl = []
    for row, size in zip(inputs.tolist(), sizes.tolist(), strict=True):
        number = int(torch.randint(9, (1,), generator=random))
        graph = networkx.gnm_random_graph(size, 5, seed=number)
        colours = {node: (row[node],) for node in graph}
        networkx.set_node_attributes(graph, {i: str(row[i]) for i in graph}, "t")
        options = {"node_attr": "t", "iterations": LAYERS}
        of_1_wl.append(networkx.weisfeiler_lehman_graph_hash(graph, **options))
        for _ in range(LAYERS):
            colours = {
                v: (colours[v], shares(colours[u] for u in graph[v]))
                if graph[v]
                else (colours[v], ())
                for v in graph
            }
        exact.append(shares(colours.values()))
        directed = graph.to_directed()
        graphs.append(ga.from_networkx(directed))
    about = compared(graphs, torch.arange(90), inputs=inputs, sizes=sizes)
    found = Colours(about, about.graphs["own"], "none").of_answers(torch.arange(90)).tolist()
    both = set(zip(found, exact, strict=True))
    assert len(both) == len(set(found)) == len(set(exact)) < 90
    assert len(set(zip(found, of_1_wl, strict=True))) == len(set(of_1_wl)) >= len(set(found))


def test_a_mean_counts_no_nodes():
    """Equal nodes that all read all: 1-WL counts them, a softmax does not."""
    own = [ga.graphs.full(3), ga.graphs.full(4), ga.graphs.full(5)]
    about = compared(own, [0, 1, 2], sizes=torch.tensor([3, 4, 5]))
    assert ceilings(about, about.graphs["own"])["colours"] == {"none": 1 / 3}
    outputs = untrained(about, "none", scale=2.0)
    assert float((outputs - outputs[:1]).abs().max()) < 1e-12


@pytest.mark.parametrize(
    ("positions", "own"),
    [
        pytest.param(positions, own, marks=[] if (positions, own) in QUICK else pytest.mark.slow)
        for positions in POSITIONS
        for own in (True, False)
    ],
)
def test_colours_are_equal_where_outputs_of_random_weights_are(positions, own):
    """40 samples of 5 nodes, each twice, of two tokens, along a graph of its own or of all."""
    random = torch.Generator().manual_seed(3)
    inputs = torch.randint(2, (40, 5), generator=random).repeat(2, 1)
    pos = torch.randint(2, (40, 5, 2), generator=random).float().repeat(2, 1, 1)
    pairs = torch.randint(2, (40, 5, 5), generator=random).repeat(2, 1, 1)
    masks = torch.rand(5, 5, 5, generator=random) < 0.4
    graphs = [ga.from_mask(mask) for mask in masks]
    arm = graphs[0]
    if own:

        def arm(sample):
            return graphs[sample.index % 5]

    targets = torch.arange(80)
    about = compared(graphs, targets, positions, inputs, arm, pos=pos, pairs=pairs)
    colours = Colours(about, about.graphs["own"], positions).of_answers(targets)
    rows = [tuple(row) for row in untrained(about, positions, scale=0.4).mul(1e8).round().tolist()]
    both = set(zip(colours.tolist(), rows, strict=True))
    assert len(both) == len(set(colours.tolist())) == len(set(rows)) <= 40
