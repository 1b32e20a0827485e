"""Graphs with nothing in them: outputs of 0, lse of -inf, gradients of exactly 0."""

import pytest
import torch
from attention_formula import BACKENDS, HEADS, VALUE_WIDTH, asked, taken, tensors
from graph_table import GRAPHS

import graphattn as ga

EXTRAS = ({}, {"return_lse": True, "return_weights": True})


def run(name, extras, backend, **options):
    """Output, the rest, and the gradients of every input."""
    graph = GRAPHS[name]()
    inputs = tensors(graph, (2,))
    found = ga.attention(*inputs, graph, backend=backend, **asked(backend, extras), **options)
    output = found.output if extras else found
    return graph, output, found, torch.autograd.grad(output.sum(), inputs)


both = pytest.mark.parametrize("backend", BACKENDS)
all_extras = pytest.mark.parametrize("extras", EXTRAS)


@pytest.mark.sample(4)
@both
@all_extras
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"dropout_p": 0.3}, {"scale": 0.0}])
@pytest.mark.parametrize("name", ["no_edges", "no_edges_rule", "one_lonely_node"])
def test_no_edges(name, options, extras, backend):
    graph, output, found, grads = run(name, extras, backend, **options)
    assert torch.equal(
        output, torch.zeros(2, graph.num_targets, HEADS, VALUE_WIDTH, dtype=torch.float64)
    )
    assert all(torch.equal(grad, torch.zeros_like(grad)) for grad in grads)
    if extras:
        assert torch.equal(
            found.lse, torch.full((2, graph.num_targets, HEADS), -torch.inf, dtype=torch.float64)
        )
    if extras and found.weights is not None:
        assert found.weights.alpha.shape == (2, 0, HEADS)
        assert not found.weights.dense().any()
        assert found.weights.dense().shape == (2, HEADS, graph.num_targets, graph.num_sources)


@both
@all_extras
def test_gradients_of_no_edges_have_derivatives(extras, backend):
    graph = GRAPHS["no_edges"]()
    inputs = tensors(graph)
    bias = torch.zeros(0, HEADS, dtype=torch.float64, requires_grad=True)
    found = ga.attention(*inputs, graph, bias, backend=backend, **asked(backend, extras))
    output = found.output if extras else found
    for _ in range(3):
        grads = torch.autograd.grad(output.sum(), [*inputs, bias], create_graph=True)
        assert not any(grad.any() for grad in grads)
        output = sum(grad.square().sum() for grad in grads)


@both
@all_extras
def test_no_edges_and_a_bias(extras, backend):
    graph = GRAPHS["no_edges"]()
    bias = torch.zeros(0, HEADS, dtype=torch.float64, requires_grad=True)
    found = ga.attention(*tensors(graph), graph, bias, backend=backend, **asked(backend, extras))
    output = found.output if extras else found
    assert not output.any()
    assert torch.autograd.grad(output.sum(), bias)[0].shape == (0, HEADS)


@all_extras
@pytest.mark.parametrize(("name", "backend"), taken(["zero_targets", "zero_nodes"]))
def test_no_targets(name, extras, backend):
    graph, output, found, grads = run(name, extras, backend)
    assert output.shape == (2, 0, HEADS, VALUE_WIDTH)
    assert all(torch.equal(grad, torch.zeros_like(grad)) for grad in grads)
    if extras:
        assert found.lse.shape == (2, 0, HEADS)
    if extras and found.weights is not None:
        assert found.weights.dense().shape == (2, HEADS, 0, graph.num_sources)


@all_extras
@pytest.mark.parametrize(("name", "backend"), taken(["zero_sources"]))
def test_no_sources(name, extras, backend):
    _, output, found, grads = run(name, extras, backend)
    assert torch.equal(output, torch.zeros(2, 5, HEADS, VALUE_WIDTH, dtype=torch.float64))
    assert torch.equal(grads[0], torch.zeros_like(grads[0]))
    if extras:
        assert (found.lse == -torch.inf).all()


@pytest.mark.sample(4)
@both
@all_extras
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_isolated_targets(dtype, extras, backend):
    graph = GRAPHS["isolated_targets"]()
    alone = graph.in_degree == 0
    assert alone.sum() == 10
    inputs = tensors(graph, (2,), dtype=dtype)
    found = ga.attention(*inputs, graph, backend=backend, **asked(backend, extras))
    output = found.output if extras else found
    assert torch.equal(output[:, alone], torch.zeros_like(output[:, alone]))
    assert output[:, ~alone].abs().min() > 0
    dq, dk, dv = torch.autograd.grad(output.square().sum(), inputs)
    assert torch.equal(dq[:, alone], torch.zeros_like(dq[:, alone]))
    assert all(grad.abs().sum() > 0 for grad in (dq, dk, dv))
    if extras:
        assert (found.lse[:, alone] == -torch.inf).all()
        assert found.lse[:, ~alone].isfinite().all()


@both
@all_extras
@pytest.mark.parametrize("alone", range(4))
def test_an_empty_batch_sends_zeros_to_the_one_input_that_wants_a_gradient(alone, extras, backend):
    graph = GRAPHS["window"]()
    bias = torch.randn(graph.num_edges, HEADS, dtype=torch.float64)
    inputs = [
        x.detach().requires_grad_(i == alone) for i, x in enumerate((*tensors(graph, (0,)), bias))
    ]
    result = ga.attention(*inputs[:3], graph, inputs[3], backend=backend, **asked(backend, extras))
    (grad,) = torch.autograd.grad((result.output if extras else result).sum(), inputs[alone])
    assert torch.equal(grad, torch.zeros_like(inputs[alone]))
