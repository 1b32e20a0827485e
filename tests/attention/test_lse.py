"""The log-sum-exp as an output of its own: its gradients alone, beside the output's, and twice."""

import pytest
import torch
from attention_formula import BACKENDS, assert_near, formula, skip_if_refused, tensors
from graph_table import GRAPHS

import graphattn as ga

both = pytest.mark.parametrize("backend", BACKENDS)


@both
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("name", ["listed_random", "causal", "listed_bipartite", "isolated_targets", "longformer"])
def test_gradients_through_lse(name, share, backend):
    graph = GRAPHS[name]()
    skip_if_refused(graph, backend)
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


@both
def test_second_derivatives_through_lse(backend):
    graph = ga.graphs.sliding_window(5, 3)
    inputs = tensors(graph, heads=2, kv_heads=1, width=2, value_width=3)

    def both_outputs(*inputs):
        found = ga.attention(*inputs, graph, backend=backend, return_lse=True)
        return found.output, found.lse

    assert torch.autograd.gradcheck(both_outputs, inputs)
    assert torch.autograd.gradgradcheck(both_outputs, inputs)
