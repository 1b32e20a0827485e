"""The biases of Graphormer beside its algorithm: Floyd-Warshall with a table of inner nodes."""

from itertools import pairwise

import networkx
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, ShapeError
from graphattn.nn import ShortestPathBias

H, F, MOST = 3, 5, 4
FAR = 510


def molecule(number):
    """Rings of even length, so that shortest paths are not unique, or two parts; and a row of
    features for each bond, of which both of its edges have a copy.
    """
    worlds = (
        networkx.convert_node_labels_to_integers(networkx.hexagonal_lattice_graph(2, 2)),
        networkx.disjoint_union(networkx.cycle_graph(8), networkx.path_graph(7)),
        networkx.grid_2d_graph(3, 4),
        networkx.empty_graph(2),
    )
    world = networkx.convert_node_labels_to_integers(worlds[number])
    one_way = torch.tensor(list(world.edges), dtype=torch.int64).reshape(-1, 2).t()
    drawn = torch.Generator().manual_seed(number)
    one_way = torch.randperm(world.number_of_nodes(), generator=drawn)[one_way]
    edges = torch.cat((one_way, one_way.flip(0)), 1)
    features = torch.randn(one_way.shape[1], F, generator=drawn, dtype=torch.float64)
    return ga.from_edge_index(edges, num_nodes=world.number_of_nodes()), features.requires_grad_()


def floyd_warshall(n, edges):
    length = [[0 if i == j else FAR for j in range(n)] for i in range(n)]
    inner = [[-1] * n for _ in range(n)]
    for i, j in edges:
        length[i][j] = 1
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if length[i][j] > length[i][k] + length[k][j]:
                    length[i][j] = length[i][k] + length[k][j]
                    inner[i][j] = k
    return length, inner


def nodes_between(inner, i, j):
    k = inner[i][j]
    if k == -1:
        return []
    return [*nodes_between(inner, i, k), k, *nodes_between(inner, k, j)]


def of_the_paper(along, features, table, weight, virtual):
    """(N, N, H), row by query: spatial encoding, edge encoding, virtual node's distance."""
    n = along.num_nodes
    pairs = along.edge_index.t().tolist()
    number = {tuple(pair): e for e, pair in enumerate(pairs)}
    length, inner = floyd_warshall(n, pairs)
    bias = torch.zeros(n + virtual, n + virtual, H, dtype=torch.float64)
    if virtual:
        bias[0] = bias[:, 0] = table[-1]
    rows = []
    for i in range(n):
        for j in range(n):
            far = length[i][j]
            row = table[5 if far == FAR else min(far, 4)]
            if 0 < far < FAR:
                nodes = [i, *nodes_between(inner, i, j), j]
                steps = list(pairwise(nodes))[:MOST]
                terms = [features[number[e]] @ w for e, w in zip(steps, weight, strict=False)]
                row = row + sum(terms) / len(steps)
            rows.append(row)
    inside = torch.stack(rows).unflatten(0, (n, n))
    if not virtual:
        return inside
    return torch.cat((bias[:1], torch.cat((bias[1:, :1], inside), 1)))


def shaken(**options):
    torch.manual_seed(0)
    bias = ShortestPathBias(H, 4, edge_dim=F, max_edges=MOST, **options).double()
    for parameter in bias.parameters():
        torch.nn.init.normal_(parameter)
    return bias


@pytest.mark.parametrize("virtual", [False, True])
def test_a_batch_has_the_numbers_and_gradients_of_the_paper(virtual):
    bias = shaken(virtual_node=virtual)
    molecules, features = zip(*map(molecule, range(4)), strict=True)
    graphs = ga.PerExample([ga.graphs.full(m.num_nodes + virtual) for m in molecules])
    found = bias(graphs, ga.PerExample(molecules), torch.cat([x.repeat(2, 1) for x in features]))
    of_each = [
        of_the_paper(m, x.repeat(2, 1), bias.table.weight, bias.weight, virtual)
        for m, x in zip(molecules, features, strict=True)
    ]
    expected = torch.cat([x.flatten(0, 1) for x in of_each])
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    inputs = [*features[:3], bias.table.weight, bias.weight]
    cotangent = torch.randn_like(found)
    mine, theirs = (torch.autograd.grad(y, inputs, cotangent) for y in (found, expected))
    for one, other in zip(mine, theirs, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)
        assert one.abs().sum() > 0


def test_a_disjoint_union_has_the_paths_of_its_parts():
    bias = shaken()
    parts, of_bonds = zip(*map(molecule, range(3)), strict=True)
    features = [x.repeat(2, 1) for x in of_bonds]
    along = ga.disjoint_union(list(parts))
    graph = ga.disjoint_union([ga.graphs.full(part.num_nodes) for part in parts])
    found = bias(graph, along, torch.cat(features))
    of_each = [
        bias(ga.graphs.full(m.num_nodes), m, x) for m, x in zip(parts, features, strict=True)
    ]
    assert torch.allclose(found, torch.cat(of_each), atol=1e-14)
    apart = ga.graphs.full(along.num_nodes)
    assert (bias.paths(apart, along) >= 0).any(1).sum() == (bias.lengths(graph, along) > 0).sum()


def test_one_bond_less_is_seen():
    bias = shaken()
    along, features = molecule(0)
    features = features.repeat(2, 1)
    graph = ga.graphs.full(along.num_nodes)
    keep = torch.arange(along.num_edges) != 3
    fewer = ga.from_edge_index(along.edge_index[:, keep], num_nodes=along.num_nodes)
    changed = bias(graph, along, features) != bias(graph, fewer, features[keep])
    assert changed.any()
    assert not changed.all()


def test_directed_paths_are_counted_from_the_target():
    bias = shaken()
    along = ga.from_edge_index(torch.tensor([[2, 0, 1], [0, 1, 3]]), num_nodes=4)
    graph = ga.from_edge_index(torch.tensor([[2, 3, 0], [3, 2, 0]]), num_nodes=4)
    assert bias.paths(graph, along).tolist() == [[2, 1, 0, -1], [-1] * 4, [-1] * 4]
    assert bias.lengths(graph, along).tolist() == [3, -1, 0]


def test_refusals():
    along, features = molecule(0)
    graph = ga.graphs.full(along.num_nodes)
    with pytest.raises(ShapeError, match="a row for each edge of along"):
        shaken()(graph, along)
    with pytest.raises(GraphError, match="of the nodes of along beside the virtual one"):
        shaken(virtual_node=True)(graph, along, features)
