"""Hops, components, cycles and the facts that hold them, judged by networkx on every graph of the
table.
"""

from importlib import import_module

import networkx as nx
import numpy as np
import pytest
import torch
from graph_table import GRAPHS
from judges import as_networkx, distances
from scipy.sparse.csgraph import shortest_path

import graphattn as ga
from graphattn import GraphAttnError
from graphattn.analysis.paths.hops import _by_searches, _by_squaring
from graphattn.analysis.paths.walks import OnMatrix, OnRuns, walk
from graphattn.graph.listed import checked
from graphattn.graphs.network.trees import tree_depth

SQUARE = [name for name, make in GRAPHS.items() if make().is_square]
MILLION = 1_000_000


def random_graph(num_nodes, num_edges, seed):
    place = torch.randperm(num_nodes**2, generator=torch.Generator().manual_seed(seed))[:num_edges]
    return ga.AttentionGraph(
        checked(torch.stack((place % num_nodes, place // num_nodes)), num_nodes, num_nodes)
    )


def expected_hops(graph):
    found = distances(graph)
    longest = max((d for row in found.values() for d in row.values()), default=0)
    return longest, all(len(row) == len(found) for row in found.values())


def reads_past(graph):
    """Whether the pairs joined by a path are all those of a later and an earlier node, and no
    others.
    """
    pairs = {(s, t) for s, row in distances(graph).items() for t in row if s != t}
    n = graph.num_targets
    return pairs == {(s, t) for t in range(n) for s in range(t)} and (n <= 1 or bool(pairs))


def expected_connectivity(graph):
    found = as_networkx(graph)
    if len(found) == 0:
        return 0, 0, 0, True
    meta = nx.condensation(found)
    first = [c for c in meta if meta.in_degree(c) == 0]
    roots = len(meta.nodes[first[0]]["members"]) if len(first) == 1 else 0
    found.remove_edges_from(list(nx.selfloop_edges(found)))
    acyclic = nx.is_directed_acyclic_graph(found)
    return nx.number_weakly_connected_components(found), len(meta), roots, acyclic


CASES = [GRAPHS[name]() for name in SQUARE] + [
    random_graph(13, edges, edges) for edges in (9, 17, 26, 40)
]


@pytest.mark.parametrize("graph", CASES, ids=lambda graph: graph.name)
def test_hops_and_connectivity_are_those_of_networkx(graph):
    found = ga.analysis.hops(graph)
    assert (found.layers, found.everything) == expected_hops(graph)
    assert found.past == reads_past(graph)
    known = ga.analysis.connectivity(graph)
    answer = (known.components, known.strong_components, known.roots, known.acyclic)
    assert answer == expected_connectivity(graph)
    assert known.quasi_strong == (known.roots > 0)
    listed = ga.analysis.connectivity(graph.materialise())
    assert listed == known
    if graph.num_targets > 1:  # the ways that closed forms and small sizes pass by
        for way in (OnMatrix(graph), OnRuns(graph, 1 << 30)):
            bounded = _by_searches(graph, way, 1 << 30)
            assert bounded == expected_hops(graph)
        assert _by_squaring(graph.mask()) == expected_hops(graph)


def test_distances_are_those_of_networkx():
    graph = random_graph(17, 30, 3)
    found = distances(graph)
    for way in (OnMatrix(graph), OnRuns(graph, 1 << 30)):
        for node in range(17):
            assert way.forward(node).tolist() == [found[node].get(t, -1) for t in range(17)]
            assert way.backward(node).tolist() == [found[s].get(node, -1) for s in range(17)]


def test_jumps_of_a_long_chain():
    assert tree_depth(torch.tensor([0, 0, 1, 2, 3, 5])).tolist() == [0, 1, 2, 3, 4, 0]


@pytest.mark.parametrize("size", [2, 7, 31])
def test_known_hops(size):
    chain = ga.graphs.sliding_window(size, 3, causal=False)
    star = ga.graphs.global_tokens(size, (size - 1,))
    assert ga.analysis.hops(ga.graphs.full(size)).layers == 1
    assert (
        ga.analysis.hops(chain).layers == ga.analysis.hops(chain.materialise()).layers == size - 1
    )
    assert ga.analysis.hops(star).layers == (2 if size > 2 else 1)
    for radius in (1, 2, 3, 5):
        window = ga.graphs.sliding_window(size, 2 * radius + 1, causal=False)
        assert ga.analysis.hops(window).layers == -(-(size - 1) // radius)


def test_bipartite_components_are_those_of_networkx():
    for name, make in GRAPHS.items():
        graph = make()
        if graph.is_square or graph.num_targets + graph.num_sources == 0:
            continue
        found = nx.Graph()
        found.add_nodes_from(("t", t) for t in range(graph.num_targets))
        found.add_nodes_from(("s", s) for s in range(graph.num_sources))
        found.add_edges_from((("t", t), ("s", s)) for s, t in graph.edge_index.t().tolist())
        assert ga.facts(graph).components == nx.number_connected_components(found), name


def test_components_of_runs_are_those_of_edges(monkeypatch):
    graph = ga.graphs.documents(lengths=(3, 7, 20, 10), causal=False) | ga.graphs.sliding_window(
        40, 2, causal=True, dilation=30
    )
    expected = ga.facts(graph).components
    cross = GRAPHS["cross_causal_end"]()
    both = ga.facts(cross).components
    module = import_module("graphattn.analysis.bottlenecks.connectivity")
    monkeypatch.setattr(module, "is_listable", lambda graph: False)
    monkeypatch.setattr(module, "_closed", lambda edges: None)
    assert (module.num_components(graph), module.num_components(cross)) == (expected, both)
    assert (
        ga.analysis.connectivity(GRAPHS["longformer"]()).strong_components == 1
    )  # through its hub
    with pytest.raises(GraphAttnError, match="smaller size"):
        ga.analysis.connectivity(graph)


@pytest.mark.parametrize("name", SQUARE)
def test_facts_hold_the_same_answers(name):
    graph = GRAPHS[name]()
    found = ga.facts(graph)
    assert (found.hops, found.reads_everything, found.reads_past) == (
        *expected_hops(graph),
        reads_past(graph),
    )
    assert (
        found.components,
        found.strong_components,
        found.roots,
        found.acyclic,
    ) == expected_connectivity(graph)
    assert found.left_out == {}
    mask = graph.mask()
    assert found.isolated_targets == int((~mask.any(1)).sum())
    assert found.unused_sources == int((~mask.any(0)).sum())
    assert found.self_loops == int(mask.diagonal().sum())
    copies = torch.zeros(mask.shape).index_put_(
        (graph.target, graph.source), torch.ones(graph.num_edges), True
    )
    assert found.symmetric == torch.equal(copies, copies.t())
    assert found.causal == (not bool(mask.triu(1).any()))
    assert str(found).count("\n") > 10
    assert found.to_dict()["num_edges"] == graph.num_edges


def test_a_rule_of_a_million_nodes_answers_or_says_what_it_costs():
    window = ga.graphs.sliding_window(MILLION, 257, causal=False)
    assert ga.analysis.hops(window).layers == -(-(MILLION - 1) // 128)
    grid = ga.graphs.grid_neighbourhood((1000, 1000), (7, 7), causal=False)
    assert ga.analysis.hops(grid).everything
    dilated, plain = (
        ga.graphs.sliding_window(MILLION, 5, causal=True, dilation=8),
        ga.graphs.sliding_window(125_000, 5, causal=True),
    )
    assert ga.analysis.hops(dilated).layers == ga.analysis.hops(plain).layers
    assert (
        ga.analysis.connectivity(ga.graphs.window_partition((1024, 1024), (8, 8))).components
        == 128**2
    )
    function = ga.from_rule(lambda t, s: (t - s) % 7 == 0, MILLION)
    for question in (
        ga.analysis.hops,
        ga.analysis.connectivity,
        ga.analysis.spectral_gap,
        ga.leaks,
    ):
        with pytest.raises(GraphAttnError, match="smaller size"):
            question(function)


def test_searches_stop_at_their_budget_with_the_bounds_found():
    graph = random_graph(1031, 2500, 0)
    exact = ga.analysis.hops(graph)
    with pytest.raises(GraphAttnError, match=r"at least \d+") as caught:
        ga.analysis.hops(graph, budget=100)
    assert int(str(caught.value).split("at least ")[1].split(" ")[0].rstrip(";,")) <= exact.layers
    found = shortest_path(ga.convert.to_scipy(graph).T, unweighted=True)
    assert exact.layers == found[np.isfinite(found)].max()
    assert exact.everything == bool(np.isfinite(found).all())
    with pytest.raises(
        GraphAttnError,
        match=r"causal window of 5, after 0 steps, would take 46 looks at a run \(limit 1",
    ):
        OnRuns(GRAPHS["window"](), 1).forward(0)


@pytest.mark.parametrize("listed", [False, True])
def test_of_a_causal_graph_it_is_said_when_every_node_depends_on_every_earlier_one(
    listed, monkeypatch
):
    monkeypatch.setattr(import_module("graphattn.analysis.paths.hops"), "_CHUNK", 7)
    window, chain = (
        ga.graphs.sliding_window(30, 3, causal=True),
        ga.graphs.sliding_window(30, 2, causal=True),
    )
    # no 22 -> 23
    cut = ga.from_edge_index(
        chain.edge_index[:, chain.edge_index.sum(0) != 2 * 22 + 1], num_nodes=30
    )
    cases = [
        (window, 15, True),
        (chain, 29, True),
        (cut, 22, False),
        (ga.graphs.sliding_window(30, 3, causal=True, dilation=2), 7, False),
    ]
    cases += [(window | ga.graphs.global_tokens(30, (9,)), 2, False), (window.reverse(), 15, False)]
    for graph, layers, past in cases:
        found = ga.analysis.hops(graph.materialise() if listed else graph)
        assert (found.layers, found.past) == (layers, past), graph
    assert (
        str(ga.analysis.hops(window)) == "after 15 layers every node depends on every earlier one"
    )
    assert "each then depends on  every earlier one" in str(ga.facts(window))
    said = "after 22 layers nothing changes any more: some nodes never depend on some others"
    assert str(ga.analysis.hops(cut)) == said
    assert "each then depends on  not every node" in str(ga.facts(cut))
    assert "each then depends on  every node" in str(ga.facts(ga.graphs.full(5)))


def columns(text):
    """Cells of the printed table, by the name of the row."""
    return {
        line.split("  ")[0]: line.split("  ", 1)[1].split()
        for line in text.splitlines()
        if "  " in line
    }


def test_facts_of_graphs_of_heads():
    rows, causal = ga.graphs.sliding_window(12, 3, causal=False), ga.graphs.causal(12)
    heads = ga.PerHead((rows, rows, causal))
    found = ga.facts(heads)
    assert list(found) == [ga.facts(rows), ga.facts(rows), ga.facts(causal)]
    assert found[2] == ga.facts(causal)
    assert len(found) == 3
    assert found.union == ga.facts(rows | causal)
    text = str(found)
    assert text.startswith("3 graphs of heads\n")
    assert str(ga.facts(ga.PerHead((rows,)))).startswith("1 graph of heads\n")
    assert str(ga.facts([rows])).startswith("1 layer\n")
    assert "graphs 0, 1" in text.splitlines()[1]
    assert columns(text)["edges"] == [
        str(graph.num_edges) for graph in (rows, causal, rows | causal)
    ]
    assert found.to_dict()["each"][1] == ga.facts(rows).to_dict()
    assert found.to_dict()["union"]["num_edges"] == (rows | causal).num_edges


def test_facts_of_the_layers_of_a_model():
    pool, window = ga.graphs.cross(5, 12), ga.graphs.sliding_window(5, 2, causal=True)
    found = ga.facts([pool, window, window])
    assert list(found) == [ga.facts(pool), ga.facts(window), ga.facts(window)]
    assert found.union is None
    assert found.sources == (12, 12, 12)
    text = str(found)
    assert "layer 0  layers 1, 2" in text
    assert columns(text)["hops"] == ["-", "4"]
    assert text.endswith(
        "after 3 layers a target depends on 12 of 12 sources (each node keeps what it has)"
    )
    chain = ga.facts([window] * 3)
    reach = ga.analysis.receptive_field([window] * 3, residual=True).sizes[-1]
    assert (
        chain.sources
        == (int(reach.min()), float(reach.double().mean()), int(reach.max()))
        == (1, 2.8, 4)
    )
    assert "depends on 1 to 4, mean 2.8, of 5 sources" in str(chain)
    assert chain.to_dict()["sources_read"] == {"least": 1, "mean": 2.8, "most": 4}
    many = ga.facts([ga.graphs.sliding_window(9, w, causal=True) for w in range(1, 9)])
    assert "2 more different" in str(many)
    alike = random_graph(1031, 4000, 0)
    dear = ga.facts([alike, alike], budget=10)
    assert dear.sources is None
    assert "no sources read through all layers: receptive_field would take" in str(dear)


def test_facts_of_patterns_take_their_size():
    window, full = ga.graphs.sliding_window(..., 3, causal=True), ga.graphs.full(...)
    found = ga.facts([window, full], size=7)
    assert list(found) == [ga.facts(window(7)), ga.facts(full(7))]
    assert ga.facts(window, size=7) == ga.facts(window(7))
    around = ga.graphs.grid_neighbourhood(..., 3, causal=False)
    assert ga.facts([around], size=(3, 4))[0] == ga.facts(around((3, 4)))
    with pytest.raises(
        GraphAttnError, match=r"size of layer 1, .*full.*: pass size=N, or size=\(height, width\)"
    ):
        ga.facts([window(7), full])


def test_what_facts_says_to_try_it_takes():
    graph = random_graph(1031, 2500, 0)
    few = ga.facts(graph, budget=100)
    assert few.hops is None
    assert "try budget=800, or ask" in few.left_out["hops"]
    assert ga.facts(graph, budget=10**9).hops == ga.analysis.hops(graph).layers
    for wrong in (0, -1, 2.5, "x"):
        with pytest.raises(GraphAttnError, match="budget must be a whole number >= 1, got"):
            ga.facts(graph, budget=wrong)


def test_left_out_facts_say_why():
    graph = random_graph(1500, 6000, 0)
    found = ga.facts(graph)
    assert found.spectral_gap is None
    assert "graphattn.analysis has them of larger graphs" in found.left_out["spectral_gap"]
    assert "no spectral gap, conductance, mean resistance" in str(found)


def test_facts_have_conductance_exact_or_in_bounds_and_the_mean_resistance():
    path = ga.facts(ga.graphs.sliding_window(12, 2, causal=True))
    assert path.conductance == pytest.approx([1 / 11, 1 / 11])
    assert path.mean_resistance == pytest.approx(13 / 3)  # the mean distance of a path, (N + 1) / 3
    assert "conductance           0.0909 (exact)\n" in str(path)
    low, high = ga.facts(ga.graphs.sliding_window(40, 2, causal=True)).conductance
    assert low < 1 / 39 == pytest.approx(high)
    assert "to 0.0256 (bounds)" in str(ga.facts(ga.graphs.sliding_window(40, 2, causal=True)))
    cut = ga.facts(ga.graphs.block_local(12, 4, causal=False))
    assert (cut.conductance, cut.mean_resistance) == ([0, 0], None)
    assert (
        ga.facts(ga.graphs.self_loops(5)).conductance,
        ga.facts(ga.graphs.full(1)).mean_resistance,
    ) == (None, None)


def test_facts_of_more_nodes_than_memory_holds_are_refused():
    with pytest.raises(
        GraphAttnError,
        match=r"facts of causal\(1000000000\) would take 4,000,000,000 steps \(limit 67,108,864\)",
    ):
        ga.facts(ga.graphs.causal(10**9))


def test_questions_of_square_graphs_refuse_others():
    cross = GRAPHS["cross"]()
    for question in (
        ga.analysis.hops,
        ga.analysis.connectivity,
        ga.analysis.spectral_gap,
        ga.analysis.universality,
    ):
        with pytest.raises(GraphAttnError, match="7 targets and 13 sources"):
            question(cross)
    assert walk(GRAPHS["window"]()).forward(0)[1] == 1


@pytest.mark.parametrize(
    ("targets", "sources", "parts"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (3, 2, 5), (1, 2, 3)]
)
def test_nodes_without_an_edge_are_components_of_their_own(targets, sources, parts):
    none = ga.from_edge_index(torch.empty(2, 0).long(), num_targets=targets, num_sources=sources)
    assert ga.facts(none).components == parts
