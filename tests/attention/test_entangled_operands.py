"""Operands that are computed from each other: every derivative counts each path once."""

import pytest
import torch

import graphattn as ga
from graphattn.backends import BACKENDS


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_key_and_value_computed_from_the_query(backend):
    torch.manual_seed(0)
    graph = ga.graphs.sliding_window(5, 3, causal=True)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)

    def energy(x):
        result = ga.attention(
            x, torch.sin(x), torch.cos(x), graph, backend=backend, return_lse=True
        )
        return result.output, result.lse, ga.attention(x, x, x, graph, backend=backend)

    assert torch.autograd.gradcheck(energy, x)
    assert torch.autograd.gradgradcheck(energy, x, fast_mode=True)


@pytest.mark.parametrize("backend", ["edges", "message_passing"])
def test_edge_features_computed_from_the_nodes(backend):
    torch.manual_seed(0)
    graph = ga.graphs.knn(torch.randn(7, 3, dtype=torch.float64), 3)
    layer = ga.nn.GraphAttention(6, 2, edge_dim=6, backend=backend).double()
    x = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)

    def energy(x):
        return layer(x, graph, edge_attr=torch.sin(x[graph.source] - x[graph.target]))

    assert torch.autograd.gradcheck(energy, x)
    assert torch.autograd.gradgradcheck(energy, x, fast_mode=True)
