"""The log-sum-exp as an output of its own: its gradients alone and beside the output's."""

import pytest
import torch
from attention_formula import BACKENDS, assert_near, formula, tensors
from graph_table import GRAPHS

import graphattn as ga


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("name", ["listed_random", "causal", "listed_bipartite", "isolated_targets", "longformer"])
def test_gradients_through_lse(name, share, backend):
    graph = GRAPHS[name]()
    inputs = tensors(graph, (2,))
    found = ga.attention(*inputs, graph, backend=backend, return_lse=True)
    output, _, lse = formula(*inputs, graph)
    assert_near(found.lse, lse)
    has_edges = lse.isfinite()
    weight = torch.randn(lse[has_edges].shape, dtype=torch.float64), share * torch.randn_like(output)
    pairs = ((found.lse[has_edges], found.output), (lse[has_edges], output))
    mine, theirs = (torch.autograd.grad(pair, inputs, weight) for pair in pairs)
    for got, wanted in zip(mine, theirs, strict=True):
        assert_near(got, wanted)
