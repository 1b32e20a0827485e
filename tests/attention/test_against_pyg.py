"""Against PyG: its softmax over the edges of a target."""

import pytest
import torch
from attention_formula import HEADS, WIDTH, assert_near, gradients, taken, tensors
from graph_table import GRAPHS
from torch_geometric.utils import scatter, softmax

import graphattn as ga
from graphattn.kernels.plain.sums import edge_softmax, scatter_sum


@pytest.mark.parametrize(
    "name", ["listed_random", "repeated_edges", "isolated_targets", "hub", "no_edges"]
)
def test_edge_softmax_is_pygs(name):
    graph = GRAPHS[name]()
    score = torch.randn(graph.num_edges, HEADS, dtype=torch.float64, requires_grad=True)
    alpha, lse = edge_softmax(score, graph.target, graph.num_targets)
    wanted = softmax(score, graph.target, num_nodes=graph.num_targets)
    assert_near(alpha, wanted)
    assert_near(*(gradients(x, [score])[0] for x in (alpha, wanted)))
    assert_near(torch.exp(lse), scatter(score.exp(), graph.target, 0, graph.num_targets, "sum"))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "backend"), taken(["listed_bipartite", "repeated_edges", "isolated_targets", "hub"])
)
def test_attention_is_pygs_softmax_and_sum(name, backend):
    graph = GRAPHS[name]()
    inputs = tensors(graph, kv_heads=HEADS)
    q, k, v = inputs
    source, target = graph.edge_index
    alpha = softmax(
        (q[target] * k[source]).sum(-1) * WIDTH**-0.5, target, num_nodes=graph.num_targets
    )
    wanted = scatter(alpha[..., None] * v[source], target, 0, graph.num_targets, "sum")
    found = ga.attention(*inputs, graph, backend=backend)
    assert_near(found, wanted)
    for mine, theirs in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        assert_near(mine, theirs)
        assert mine.abs().sum() > 0


@pytest.mark.parametrize("dim", [0, 1, -2])
def test_scatter_sum_is_pygs(dim):
    index = torch.tensor([3, 0, 3, 3, 1])
    shape = [2, 3, 7]
    shape[dim] = 5
    value = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found, wanted = scatter_sum(value, index, 4, dim), scatter(value, index, dim, 4, "sum")
    assert_near(found, wanted)
    assert_near(*(gradients(x, [value])[0] for x in (found, wanted)))
