"""networkx, both ways and with both readings of its arrows; A28 to A31."""

import networkx as nx
import numpy as np
import pytest
import torch
from convert_graphs import REPEATED, TABLE, counts_of

from graphattn.convert import from_networkx, to_networkx
from graphattn.errors import GraphError

EVERY = pytest.mark.parametrize("name", TABLE)
ARROWS = pytest.mark.parametrize("arrows", ["flow", "attends"])


@EVERY
@ARROWS
def test_there_and_back(name, arrows):
    graph, counts = TABLE[name]
    G = to_networkx(graph, arrows=arrows)
    assert G.is_directed()
    assert G.is_multigraph() == (name in REPEATED)
    if graph.is_square:
        again = from_networkx(G, arrows=arrows, duplicates="keep")
    else:
        sides = (
            [("s", i) for i in range(graph.num_sources)],
            [("t", j) for j in range(graph.num_targets)],
        )
        again = from_networkx(
            G, arrows=arrows, sources=sides[0], targets=sides[1], duplicates="keep"
        )
    assert np.array_equal(counts_of(again), counts)
    assert again.equals(graph)


@EVERY
@ARROWS
def test_the_mask_is_the_transpose_of_the_adjacency(name, arrows):
    """networkx's own matrix has a row for each tail; parallel edges are summed in it."""
    graph, counts = TABLE[name]
    G = to_networkx(graph, arrows=arrows)
    if not G.number_of_nodes():
        return  # networkx refuses a matrix of nothing
    adjacency = nx.to_numpy_array(G, nodelist=list(G.nodes))
    if not graph.is_square:
        S = graph.num_sources
        assert not adjacency[:S, :S].any()
        assert not adjacency[S:, S:].any()
        adjacency = adjacency[:S, S:] if arrows == "flow" else adjacency[S:, :S]
    assert np.array_equal(adjacency.T if arrows == "flow" else adjacency, counts)


def test_information_flows_along_networkx_arrows():
    """What networkx calls the ancestors of a node is what reaches it through layers."""
    graph, _ = TABLE["without loops"]
    G = to_networkx(graph - (graph @ graph))  # a path
    assert nx.ancestors(G, 3) == {0, 1, 2}
    assert from_networkx(G).k_hop(4).mask()[3].nonzero().flatten().tolist() == [0, 1, 2]


def test_bipartite_nodes_are_marked():
    graph, _ = TABLE["isolated targets"]
    G = to_networkx(graph)
    assert [n for n, side in G.nodes(data="bipartite") if side == 0] == [("s", i) for i in range(5)]
    assert [n for n, side in G.nodes(data="bipartite") if side == 1] == [("t", j) for j in range(7)]
    assert nx.is_bipartite(G)


def test_labels_are_numbered_in_the_order_of_the_nodes():
    G = nx.DiGraph()
    G.add_nodes_from(["zebra", ("tuple", 1), 3.5, "ant", frozenset({1})])
    G.add_edges_from([("ant", "zebra"), (("tuple", 1), "ant"), ("zebra", 3.5)])
    graph, nodes = from_networkx(G, return_nodes=True)
    assert nodes == list(G.nodes)
    named = [(nodes[s], nodes[t]) for s, t in graph.edge_index.t().tolist()]
    assert named == list(G.edges)
    again = to_networkx(graph, nodes=nodes)
    assert again.adj == G.adj
    assert list(again.nodes) == list(G.nodes)


def test_integer_labels_are_labels_like_any_other():
    G = nx.DiGraph([(7, 5), (5, 3)])
    graph, nodes = from_networkx(G, return_nodes=True)
    assert nodes == [7, 5, 3]
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]


def test_the_graph_has_its_name():
    G = nx.DiGraph([(0, 1)], name="citations")
    assert from_networkx(G).name == "citations"
    assert from_networkx(G, name="mine").name == "mine"
    assert from_networkx(nx.DiGraph([(0, 1)])).name == "networkx"


def test_undirected_edges_lead_both_ways():
    G = nx.Graph([(0, 1), (2, 1), (3, 3), (0, 4)])
    for arrows in ("flow", "attends"):
        graph = from_networkx(G, arrows=arrows)
        assert torch.equal(graph.mask(), graph.mask().t())
        adjacency = nx.to_numpy_array(G, nodelist=list(G.nodes))
        assert np.array_equal(counts_of(graph), adjacency)
    flow = from_networkx(G)
    number = {label: i for i, label in enumerate(G.nodes)}
    expected = [e for u, v in G.edges for e in ([(u, v), (v, u)] if u != v else [(u, v)])]
    assert flow.edge_index.t().tolist() == [[number[u], number[v]] for u, v in expected]


@pytest.mark.parametrize(
    "G", [nx.karate_club_graph(), nx.petersen_graph(), nx.grid_2d_graph(3, 5)], ids=str
)
def test_generators(G):
    graph = from_networkx(G)
    assert graph.num_edges == 2 * G.number_of_edges()
    assert graph.in_degree.tolist() == [degree for _, degree in G.degree()]


def test_a_multidigraph_keeps_its_multiplicity_both_ways():
    G = nx.MultiDiGraph([("a", "b"), ("a", "b"), ("b", "a"), ("c", "c"), ("c", "c"), ("c", "c")])
    graph, nodes = from_networkx(G, duplicates="keep", return_nodes=True)
    assert graph.num_edges == 6
    again = to_networkx(graph, nodes=nodes)
    assert isinstance(again, nx.MultiDiGraph)
    assert sorted(again.edges()) == sorted(G.edges())


def test_by_default_parallel_edges_are_refused():
    G = nx.MultiDiGraph([("a", "b"), ("b", "a"), ("a", "b")])
    with pytest.raises(GraphError, match=r'are both 0 -> 1: repeated edges.*duplicates="merge"'):
        from_networkx(G)
    assert from_networkx(G, duplicates="merge").num_edges == 2
    assert from_networkx(nx.MultiDiGraph([("a", "b"), ("b", "a")])).num_edges == 2


def test_an_undirected_multigraph():
    G = nx.MultiGraph([(0, 1), (0, 1), (1, 2), (2, 2), (2, 2)])
    graph = from_networkx(G, duplicates="keep")
    assert np.array_equal(counts_of(graph), [[0, 2, 0], [2, 0, 1], [0, 1, 2]])


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_an_empty_graph(kind):
    graph, nodes = from_networkx(kind(), return_nodes=True)
    assert (graph.num_nodes, graph.num_edges, nodes) == (0, 0, [])
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_index.shape == (2, 0)
    isolated = kind()
    isolated.add_nodes_from(range(5))
    assert from_networkx(isolated).num_nodes == 5


USERS = nx.Graph([("u1", "film"), ("u2", "film"), ("u2", "book")])
USERS.add_node("u3")


def test_two_sets_of_nodes_out_of_an_undirected_graph():
    graph = from_networkx(USERS, sources=["book", "film"], targets=["u3", "u2", "u1"])
    assert graph.mask().tolist() == [[False, False], [True, True], [False, True]]
    assert from_networkx(USERS, sources=["u3", "u2", "u1"], targets=["book", "film"]).equals(
        graph.reverse()
    )


def test_edges_that_do_not_lead_from_sources_to_targets_are_not_dropped():
    with pytest.raises(
        GraphError, match="edges must lead from sources to targets, got 'u2' to 'book'"
    ):
        from_networkx(USERS, sources=["film"], targets=["u1", "u2", "u3"])
    directed = nx.DiGraph([("s", "t")])
    assert from_networkx(directed, sources=["s"], targets=["t"]).num_edges == 1
    assert from_networkx(directed, sources=["t"], targets=["s"], arrows="attends").num_edges == 1
    with pytest.raises(GraphError, match=r"exchange sources and targets, or pass the other arrows"):
        from_networkx(directed, sources=["t"], targets=["s"])


SQUARE = TABLE["causal"][0]
REFUSALS = [
    (lambda: from_networkx(USERS, arrows="back"), 'arrows must be "flow" or "attends"'),
    (lambda: to_networkx(SQUARE, arrows=None), 'arrows must be "flow"'),
    (lambda: from_networkx(USERS, sources=["u1"]), "sources and targets must be given together"),
    (
        lambda: from_networkx(USERS, sources=["u9"], targets=["u1"]),
        "sources must be nodes of G, got 'u9'",
    ),
    (
        lambda: from_networkx(USERS, sources=["u1"], targets=["u2", "u2"]),
        "targets must be distinct",
    ),
    (
        lambda: from_networkx(USERS, sources=["u1"], targets=["u2"], return_nodes=True),
        "return_nodes excludes sources and targets",
    ),
    (lambda: to_networkx(SQUARE, nodes="abc"), "nodes must be 7 distinct labels, got 3"),
    (
        lambda: to_networkx(SQUARE, nodes="abcdeff"),
        "nodes must be 7 distinct labels, got 7 .6 distinct.",
    ),
    (lambda: to_networkx(TABLE["cross"][0], nodes="abc"), "nodes needs a square graph"),
]


@pytest.mark.parametrize(("ask", "words"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(ask, words):
    with pytest.raises(GraphError, match=words):
        ask()
