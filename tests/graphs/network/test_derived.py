"""Line graphs against networkx, hypergraphs against incidence products, types against their
rule.
"""

import networkx
import pytest
import torch

from graphattn import from_edge_index, graphs
from graphattn.convert import to_networkx

generator = torch.Generator().manual_seed(3)


def digraph(N, density):
    mask = torch.rand(N, N, generator=generator) < density
    target, source = torch.nonzero(mask, as_tuple=True)
    order = torch.randperm(target.numel(), generator=generator)  # edges in no order
    return from_edge_index(torch.stack((source, target))[:, order], num_nodes=N)


DIGRAPHS = [
    digraph(7, 0.4),
    digraph(13, 0.2),
    digraph(5, 1.0),
    digraph(3, 0.0),
    digraph(0, 0.0),
    graphs.causal(6),
    graphs.circulant(5, (1, -1)),
]


@pytest.mark.parametrize("graph", DIGRAPHS, ids=str)
def test_directed_line_graphs_are_networkxs(graph):
    theirs = networkx.line_graph(to_networkx(graph))
    number = {edge: i for i, edge in enumerate(map(tuple, graph.edge_index.t().tolist()))}
    wanted = {(number[a], number[b]) for a, b in theirs.edges}
    for forth in (False, True):
        line = graphs.line_graph(graph, non_backtracking=forth)
        assert line.num_nodes == graph.num_edges
        pairs = {
            (number[u, v], number[w, x])
            for (u, v), (w, x) in theirs.edges
            if not (forth and x == u)
        }
        assert set(map(tuple, line.edge_index.t().tolist())) == pairs
        assert not line.has_repeated_edges
        key = line.target * max(1, line.num_nodes) + line.source
        assert torch.equal(key, key.sort().values)
        assert forth or pairs == wanted


@pytest.mark.sample(3)
@pytest.mark.parametrize("graph", DIGRAPHS, ids=str)
def test_undirected_line_graphs_are_networkxs(graph):
    graph = graph | graph.reverse()
    line = graphs.line_graph(graph, directed=False)
    edges = [(s, t) for s, t in graph.edge_index.t().tolist() if s <= t]
    number = {frozenset(edge): i for i, edge in enumerate(edges)}
    theirs = networkx.line_graph(to_networkx(graph).to_undirected())
    wanted = {(number[frozenset(a)], number[frozenset(b)]) for a, b in theirs.edges if a != b}
    assert line.num_nodes == len(edges)
    assert set(map(tuple, line.edge_index.t().tolist())) == wanted | {(b, a) for a, b in wanted}


def test_hypergraphs_are_their_incidence():
    incidence = torch.rand(11, 5, generator=generator) < 0.4
    # a node of no hyperedge, a hyperedge without nodes
    incidence[3], incidence[:, 2] = False, False
    node, hyperedge = torch.nonzero(incidence, as_tuple=True)
    graph = graphs.hypergraph(node, hyperedge, 11, 5)
    assert torch.equal(graph.mask(), incidence.T)
    assert torch.equal(graph.edge_index, torch.stack((node, hyperedge)))
    both_ways = graph.reverse() @ graph
    assert torch.equal(both_ways.mask(), incidence.long() @ incidence.long().T > 0)
    assert graphs.hypergraph(torch.tensor([4]), torch.tensor([1])).mask().shape == (2, 5)
    assert graphs.hypergraph(torch.tensor([]), torch.tensor([])).mask().shape == (0, 0)


def test_types_read_types():
    types = torch.randint(3, (29,), generator=generator)
    for a in range(4):
        for b in range(4):
            graph = graphs.between_types(types, a, b)
            assert graph.is_rule
            assert torch.equal(graph.mask(), (types[:, None] == b) & (types == a))
            assert graph.num_edges == int((types == a).sum() * (types == b).sum())
            assert torch.equal(graph.reverse().mask(), graphs.between_types(types, b, a).mask())
    large = graphs.between_types(torch.arange(1_000_000) // 500_000, 0, 1)
    assert large.num_edges == 500_000**2
