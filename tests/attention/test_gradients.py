"""Derivatives of first and second order, and dropout."""

import pytest
import torch
from attention_formula import (
    BACKENDS,
    WEIGHING,
    asked,
    assert_near,
    biases,
    gradients,
    may_refuse,
    tensors,
)
from graph_table import GRAPHS
from torch.autograd import gradcheck, gradgradcheck

import graphattn as ga
from graphattn.errors import BackendError

SMALL = {
    "isolated": ([(0, 1), (2, 1), (3, 2), (0, 2), (1, 2)], 4, 5),
    "repeated": ([(0, 1), (0, 1), (2, 1), (3, 0), (1, 0), (1, 0)], 3, 4),
    "causal": None,
}
OPTIONS = {"plain": {}, "everything": {"softcap": 1.3, "scale": -0.7, "bias": True}}

both = pytest.mark.parametrize("backend", BACKENDS)


def small(name):
    if SMALL[name] is None:
        return ga.graphs.causal(3)
    pairs, T, S = SMALL[name]
    return ga.from_edge_index(
        torch.tensor(pairs).t(), num_sources=S, num_targets=T, duplicates="keep"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "backend"),
    [
        (name, options, backend)
        for name, options in (("causal", "plain"), *((name, "everything") for name in SMALL))
        for backend in BACKENDS
        if not may_refuse(small(name), backend, score_bias=options == "everything")
    ]
    + [("repeated", "plain", "dense")],
)
def test_gradcheck_and_gradgradcheck(name, options, backend):
    graph, options = small(name), dict(OPTIONS[options])
    inputs = list(tensors(graph, heads=2, kv_heads=1, width=2, value_width=3))
    biased = options.pop("bias", False)
    if biased:
        inputs.append(biases(graph, heads=2))

    def output(q, k, v, bias=None):
        return ga.attention(q, k, v, graph, bias, **options, backend=backend)

    assert gradcheck(output, inputs, nondet_tol=0.0)
    assert gradgradcheck(output, inputs, nondet_tol=0.0, fast_mode=True)


@pytest.mark.sample(3)
@both
def test_weights_and_lse(backend):
    graph = small("isolated")
    inputs = (*tensors(graph, heads=2, kv_heads=1, width=2, value_width=3), biases(graph, heads=2))

    options = asked(backend, {"return_weights": True, "return_lse": True})

    def extras(q, k, v, bias):
        found = ga.attention(q, k, v, graph, bias, backend=backend, **options)
        outputs = found.output, found.lse[1:3]  # the others are -inf
        if backend in WEIGHING:
            outputs = (*outputs, found.weights.alpha)
        return outputs

    assert gradcheck(extras, inputs, nondet_tol=0.0)
    assert gradgradcheck(extras, inputs, nondet_tol=0.0, fast_mode=True)


@both
@pytest.mark.parametrize("needed", [0, 1, 2, 4, 8, 6, 9, 11])
def test_any_subset_of_inputs_asks_for_gradients(needed, backend):
    graph = GRAPHS["listed_bipartite"]()
    inputs = (*tensors(graph), biases(graph))
    output = ga.attention(*inputs[:3], graph, inputs[3], backend=backend)
    all_of_them = gradients(output, inputs)
    asking = [bool(needed >> i & 1) for i in range(4)]
    given = [x.detach().requires_grad_(asks) for x, asks in zip(inputs, asking, strict=True)]
    output = ga.attention(*given[:3], graph, given[3], backend=backend)
    assert output.requires_grad == any(asking)
    if any(asking):
        found = gradients(output, [x for x in given if x.requires_grad])
        wanted = [grad for grad, asks in zip(all_of_them, asking, strict=True) if asks]
        for mine, theirs in zip(found, wanted, strict=True):
            assert_near(mine, theirs)
            assert mine.abs().sum() > 0


def test_second_derivatives_through_dropout():
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph)
    first = ga.attention(*inputs, graph, dropout_p=0.3, backend="dense")
    with pytest.raises(BackendError, match='through dropout need backend="message_passing"'):
        torch.autograd.grad(first.sum(), inputs, create_graph=True)
    torch.manual_seed(0)
    output = ga.attention(*inputs, graph, dropout_p=0.3, backend="message_passing")
    (dq,) = torch.autograd.grad(output.square().sum(), inputs[0], create_graph=True)
    assert torch.autograd.grad(dq.square().sum(), inputs[1])[0].abs().sum() > 0
