"""Case B29: inference_mode, no_grad and autocast; statistics stay float32."""

import pytest
import torch
from attention_formula import BACKENDS, assert_near, biases, formula, gradients, tensors
from graph_table import GRAPHS

import graphattn as ga

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
EXTRAS = ({}, {"return_weights": True, "return_lse": True}, {"softcap": 2.0})


def build(name):
    """A fresh graph, with nothing cached."""
    return GRAPHS[name]()


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("name", ["window", "listed_bipartite", "isolated_targets", "causal", "rule_or_listed"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_b29_a_graph_first_used_without_gradients_then_trains(mode, name, extras, backend):
    graph = build(name)
    with mode():
        inputs = tensors(graph, (2,), requires_grad=False)
        found = ga.attention(*inputs, graph, backend=backend, **extras)
        output = found if isinstance(found, torch.Tensor) else found.output
        assert not output.requires_grad
    inputs = tensors(graph, (2,))
    found = ga.attention(*inputs, graph, backend=backend, **extras)
    trained = found if isinstance(found, torch.Tensor) else found.output
    wanted = formula(*inputs, graph, softcap=extras.get("softcap"))[0]
    assert_near(output, wanted)
    assert_near(trained, wanted)
    for mine, theirs in zip(gradients(trained, inputs), gradients(wanted, inputs), strict=True):
        assert_near(mine, theirs)


def test_b29_a_graph_made_under_inference_mode(backend):
    with torch.inference_mode():
        edge_index = build("listed_bipartite").edge_index.clone()
        graph = ga.from_edge_index(edge_index, 19, 13)
        both = graph | ga.from_mask(torch.ones(13, 19, dtype=torch.bool).tril())
    inputs = tensors(graph)
    for g in (graph, both, graph.subgraph(targets=range(13))):
        assert_near(ga.attention(*inputs, g, backend=backend), formula(*inputs, g)[0])


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("inner", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_b29_autocast_changes_nothing(dtype, inner, extras, backend):
    """The operator computes in its inputs' dtype; a layer's projections are what autocast narrows."""
    graph = build("listed_bipartite")
    inputs = tensors(graph, (2,), dtype=dtype)
    outputs = []
    for enabled in (False, True):
        with torch.autocast("cpu", inner, enabled=enabled):
            found = ga.attention(*inputs, graph, biases(graph), backend=backend, **extras)
        output = found if isinstance(found, torch.Tensor) else found.output
        assert output.dtype == dtype
        parts = [output] if output is found else [output, found.weights.alpha, found.lse]
        outputs.append([*parts, *gradients(output, inputs)])
    for mine, theirs in zip(*outputs, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("inner", [torch.bfloat16, torch.float16])
def test_b29_derivatives_taken_under_autocast(inner, dtype, backend):
    """torch advises against it, and narrows the second derivative of any product; the first stays as it is."""
    graph = build("listed_bipartite")
    inputs = tensors(graph, dtype=dtype)
    outputs = []
    for enabled in (False, True):
        with torch.autocast("cpu", inner, enabled=enabled):
            output = ga.attention(*inputs, graph, backend=backend)
            plain = torch.autograd.grad(output.square().sum(), inputs, retain_graph=True)
            first = torch.autograd.grad(output.square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(x.square().sum() for x in first), inputs)
        outputs.append([*plain, *first, *second])
    for mine, theirs in zip(*outputs, strict=True):
        assert_near(mine, theirs, 1e-12 if dtype == torch.float64 else 1e-5)
        assert mine.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_b29_statistics_are_float32(dtype, backend):
    graph = ga.graphs.cross(3, 4099)
    q, k, v = tensors(graph, dtype=dtype, requires_grad=False)
    with torch.autocast("cpu", dtype):
        found = ga.attention(q, k, v, graph, backend=backend, return_weights=True, return_lse=True)
    assert found.lse.dtype == found.weights.alpha.dtype == torch.float32
    total = found.weights.dense().sum(-1)
    assert_near(total, torch.ones_like(total), 1e-5)
    assert found.output.dtype == dtype


@pytest.mark.parametrize("inner", [torch.bfloat16, torch.float16])
def test_b29_a_layer_under_autocast(inner, backend):
    graph = build("listed_random")
    torch.manual_seed(0)
    layer = ga.nn.GraphAttention(24, 6, edge_dim=None, num_kv_heads=3, backend=backend)
    x = torch.randn(2, 17, 24)
    wanted = layer(x, graph)
    with torch.autocast("cpu", inner):
        found, weights = layer(x, graph, return_weights=True)
    assert found.dtype == inner
    assert weights.alpha.dtype == torch.float32
    assert_near(found, wanted, 0.03 if inner == torch.bfloat16 else 0.004)
    found.float().square().sum().backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters())
    assert layer.q_proj.weight.grad.abs().sum() > 0
