"""A MeshGraphNet against PyG's ``MetaLayer`` with the same perceptrons."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import MetaLayer

import graphattn as ga
from graphattn.errors import ShapeError
from graphattn.graphs import hierarchy

N = 23


class EdgeModel(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, source, target, edge_attr, u, batch):
        return edge_attr + self.block.of_edges(torch.cat((edge_attr, source, target), 1))


class NodeModel(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, edge_index, edge_attr, u, batch):
        total = torch.zeros_like(x).index_add(0, edge_index[1], edge_attr)
        return x + self.block.of_nodes(torch.cat((total, x), 1))


@pytest.fixture
def case():
    """A model of 3 blocks, nodes, positions and a graph in an order of its own."""
    torch.manual_seed(0)
    model = ga.models.MeshGraphNet(5, 2, 8, 3, axes=2).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    pairs = torch.cartesian_prod(torch.arange(N), torch.arange(N))
    edge_index = pairs[torch.randperm(len(pairs))[:70]].T.contiguous()
    graph = ga.from_edge_index(edge_index, num_sources=N, num_targets=N)
    return model, torch.randn(N, 5).double(), torch.rand(N, 2).double(), graph


def test_outputs_and_gradients_are_those_of_meta_layers(case):
    model, x, pos, graph = case
    answers, gradients = [], []
    weights = torch.randn(N, 2).double()
    for is_ours in (True, False):
        model.zero_grad()
        nodes, places = (tensor.clone().requires_grad_() for tensor in (x, pos))
        if is_ours:
            y = model(nodes, hierarchy(places, graph=graph))
        else:
            y = model.embedding(nodes)
            edges = ga.nn.edge_geometry(graph, places)
            edges = model.edges.perceptron(edges)
            for block in model.blocks:
                layer = MetaLayer(EdgeModel(block), NodeModel(block))
                y, edges, _ = layer(y, graph.edge_index, edges)
            y = model.head(y)
        (y * weights).sum().backward()
        answers.append(y.detach())
        gradients.append([leaf.grad for leaf in (nodes, places, *model.parameters())])
    assert float(answers[0].std(0).min()) > 1e-3
    torch.testing.assert_close(answers[0], answers[1], rtol=0, atol=1e-12)
    for own, theirs in zip(*gradients, strict=True):
        assert float(theirs.abs().max()) > 0
        torch.testing.assert_close(own, theirs, rtol=1e-12, atol=1e-12)


def test_graphs_are_taken_in_turn_and_each_keeps_its_edges(case):
    model, x, pos, graph = case
    first, second = graph, graph.reverse()
    shape = hierarchy(pos, graph=(first, second))
    y = model.embedding(x)
    edges = [model.edges(one, shape.levels[0]) for one in (first, second)]
    for number, place in enumerate((0, 1, 0)):
        y, edges[place] = model.blocks[number](y, (first, second)[place], edges[place])
    torch.testing.assert_close(model(x, shape), model.head(y), rtol=0, atol=0)


def test_a_node_without_edges_reads_itself_alone_and_examples_share_a_graph(case):
    model, x, pos, graph = case
    alone = graph & ga.from_edge_index(
        torch.tensor([[1, 2, 3], [2, 3, 4]]), num_sources=N, num_targets=N
    )
    shape = hierarchy(pos, graph=alone)
    other = x.clone()
    other[1:] += 1
    torch.testing.assert_close(model(x, shape)[0], model(other, shape)[0], rtol=0, atol=0)
    both = model(torch.stack((x, other)), hierarchy(pos, graph=graph))
    assert both.shape == (2, N, 2)
    torch.testing.assert_close(both[1], model(other, hierarchy(pos, graph=graph)))


def test_a_level_without_a_graph_is_refused(case):
    model, x, pos, _ = case
    with pytest.raises(ShapeError, match="shape must have a graph on its level, got none"):
        model(x, hierarchy(pos, graph=()))
