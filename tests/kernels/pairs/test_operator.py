"""The two edge operators, and normalisations that run on them."""

from dataclasses import replace

import pytest
import torch

import graphattn as ga
from graphattn.backends import message_passing
from graphattn.backends.base import BACKENDS
from graphattn.backends.inputs import inputs_of
from graphattn.backends.request import Request
from graphattn.backends.scored import _layout
from graphattn.kernels.pairs.operator import edge_products, edge_sum
from graphattn.nn.normalizers import NORMALIZERS, make_normalizer

WINDOW = ga.graphs.sliding_window(61, 7, causal=False) | ga.graphs.global_tokens(61, [3])
SHUFFLED = ga.from_edge_index(
    WINDOW.edge_index[
        :, torch.randperm(WINDOW.num_edges, generator=torch.Generator().manual_seed(0))
    ],
    num_nodes=61,
)


def nodes(kv, dtype=torch.float64, batch=2):
    generator = torch.Generator().manual_seed(1)
    shapes = ((batch, 61, 6, 5), (batch, 61, kv, 5), (batch, 61, kv, 7))
    return [
        torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes
    ]


def some_bias(removed=True):
    bias = torch.randn(
        SHUFFLED.num_edges, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    if removed:
        bias[::5] = -torch.inf
        bias[3::11, 2] = -torch.inf
    return bias.requires_grad_()


@pytest.mark.parametrize("name", sorted(NORMALIZERS))
@pytest.mark.parametrize("kv", [6, 3])
@pytest.mark.parametrize("biased", [False, True])
def test_weights_output_and_two_derivatives_are_those_of_the_definition(name, kv, biased):
    query, key, value = nodes(kv)
    bias = some_bias() if biased else None
    if name == "sum":  # which divides by it: away from 0
        with torch.no_grad():
            for x in (query, key, *([bias] if biased else [])):
                x.masked_fill_(x < 0, 0.5)
            if biased:
                bias[::5] = -torch.inf
    inputs = inputs_of(query, key, value, SHUFFLED, bias, None, 1.7, 0.0)
    inputs = replace(inputs, normalize=make_normalizer(name, 6))
    leaves = [x for x in (query, key, value, bias) if x is not None]

    def results(backend):
        outputs = BACKENDS[backend].run(SHUFFLED, inputs, weights=True)
        loss = outputs.output.sin().sum() + outputs.alpha.cos().sum()
        first = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
        second = torch.autograd.grad(
            sum(x.cos().sum() for x in first), leaves, materialize_grads=True
        )
        return [outputs.output, outputs.alpha, *first, *second]

    for ours, wanted in zip(results("edges"), results("message_passing"), strict=True):
        assert (ours - wanted).abs().max() <= 1e-12 * wanted.abs().max().clamp(min=1.0)
    assert BACKENDS["edges"].reasons_against(SHUFFLED, Request.of(inputs)) == []


def test_a_removed_edge_passes_not_even_a_nan():
    query, key, value = nodes(3)
    bias = some_bias(removed=False).detach()
    bias[SHUFFLED.source == 7] = -torch.inf
    inputs = replace(
        inputs_of(query, key, value, SHUFFLED, bias), normalize=make_normalizer("sigmoid", 6)
    )
    with torch.no_grad():
        key[:, 7], value[:, 7] = torch.nan, torch.nan
    output = BACKENDS["edges"].run(SHUFFLED, inputs).output
    grads = torch.autograd.grad(output.sum(), (query, key, value))
    assert all(x.isfinite().all() for x in (output, *grads))
    assert all((x[:, 7] == 0).all() for x in grads[1:])


def test_the_function_sees_the_edges_in_the_callers_order():
    seen = []

    def normalize(score, target, num_targets):
        seen.append((target.clone(), num_targets))
        return target.fill_(0).double()[:, None].expand_as(score) + score  # it may write into them

    query, key, value = nodes(6)
    inputs = replace(inputs_of(query, key, value, SHUFFLED), normalize=normalize)
    alpha = BACKENDS["edges"].run(SHUFFLED, inputs, weights=True).alpha
    assert torch.equal(seen[0][0], SHUFFLED.target)
    assert seen[0][1] == 61
    t, s = SHUFFLED.target, SHUFFLED.source
    assert torch.allclose(alpha, (query[:, t] * key[:, s]).sum(-1) * 5**-0.5)


@pytest.mark.parametrize("batch", [0, 1])
def test_nobody_reads(batch):
    graph = ga.from_edge_index([[], []], num_sources=3, num_targets=4)
    query, key, value = (torch.randn(batch, n, 2, 8, requires_grad=True) for n in (4, 3, 3))
    layer, context = ga.nn.GraphAttention(16, 2, normalize="sigmoid"), torch.randn(batch, 3, 16)
    output = layer(torch.randn(batch, 4, 16), graph, context=context)
    assert output.shape == (batch, 4, 16)
    inputs = replace(inputs_of(query, key, value, graph), normalize=make_normalizer("sigmoid", 2))
    output = BACKENDS["edges"].run(graph, inputs).output
    assert output.abs().sum() == 0
    assert all(x.abs().sum() == 0 for x in torch.autograd.grad(output.sum(), (query, key, value)))


@pytest.mark.slow
def test_opcheck():
    query, key, _ = nodes(3, torch.float32)
    layout = _layout(SHUFFLED)[2:]
    weight = torch.randn(2, SHUFFLED.num_edges, 6, requires_grad=True)
    torch.library.opcheck(edge_products, (query, key, None, *layout))
    torch.library.opcheck(edge_sum, (weight, key, 3, False, None, *layout))
    torch.library.opcheck(edge_sum, (weight, query, 3, True, weight.detach() > 0, *layout))


def test_under_torch_func_the_definition_runs(monkeypatch):
    query, key, value = nodes(6)
    inputs = replace(
        inputs_of(query, key, value, SHUFFLED), normalize=make_normalizer("sigmoid", 6)
    )
    calls, attend = [], message_passing.attend
    monkeypatch.setattr(
        message_passing, "attend", lambda *given: (calls.append(1), attend(*given))[1]
    )
    run = BACKENDS["edges"].run
    tangent = torch.func.jvp(
        lambda x: run(SHUFFLED, replace(inputs, value=x)).output, (value,), (value,)
    )[1]
    assert calls
    assert (tangent - run(SHUFFLED, inputs).output).abs().max() < 1e-12
