"""Derivatives of first and second order, and dropout."""

import pytest
import torch
from attention_formula import BACKENDS, assert_near, biases, formula, gradients, may_refuse, tensors
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
    return ga.from_edge_index(torch.tensor(pairs).t(), num_sources=S, num_targets=T, duplicates="keep")


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


@both
def test_weights_and_lse(backend):
    graph = small("isolated")
    inputs = (*tensors(graph, heads=2, kv_heads=1, width=2, value_width=3), biases(graph, heads=2))

    def extras(q, k, v, bias):
        found = ga.attention(q, k, v, graph, bias, backend=backend, return_weights=True, return_lse=True)
        return found.output, found.weights.alpha, found.lse[1:3]  # the others are -inf

    assert gradcheck(extras, inputs, nondet_tol=0.0)
    assert gradgradcheck(extras, inputs, nondet_tol=0.0, fast_mode=True)


def test_one_gradient_per_copy_of_an_edge():
    graph = GRAPHS["repeated_edges"]()
    inputs = (*tensors(graph), biases(graph))
    found, wanted = ga.attention(*inputs[:3], graph, inputs[3]), formula(*inputs[:3], graph, inputs[3])[0]
    assert_near(found, wanted)
    mine, theirs = gradients(found, inputs)[3], gradients(wanted, inputs)[3]
    assert_near(mine, theirs)
    copies = mine[torch.tensor([0, 2, 4])]  # 0 -> 1, three times, each with a bias of its own
    assert copies.shape == (3, 6)
    assert not torch.allclose(copies[0], copies[1])


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


@both
@pytest.mark.parametrize("extras", [{}, {"return_lse": True}])
def test_query_key_and_value_may_be_one_tensor(extras, backend):
    graph = GRAPHS["listed_random"]()
    (x, _, _) = tensors(graph)
    found = ga.attention(x, x, x, graph, backend=backend, **extras)
    found = found.output if extras else found
    wanted = formula(x, x, x, graph)[0]
    assert_near(found, wanted)
    (mine,) = torch.autograd.grad(found.square().sum(), x, create_graph=True)
    (theirs,) = torch.autograd.grad(wanted.square().sum(), x, create_graph=True)
    assert_near(mine, theirs)
    assert_near(*(torch.autograd.grad(g.square().sum(), x)[0] for g in (mine, theirs)))


# --- dropout


def dropped(graph, backend, p=0.3, lead=(), **extras):
    """The weights of the first sources after dropout, from values that are the unit vectors; and those before it."""
    q, k, _ = tensors(graph, lead)
    few = torch.eye(graph.num_sources, 8, dtype=torch.float64)  # wider values would have the kernels compiled anew
    v = few.unsqueeze(1).expand(-1, 3, -1)
    after = ga.attention(q, k, v, graph, dropout_p=p, backend=backend, **extras)
    before = ga.attention(q, k, v, graph, backend=backend)
    return (after.output if extras else after), before


@both
@pytest.mark.parametrize("extras", [{}, {"return_lse": True}])
def test_each_weight_is_dropped_or_scaled_up(extras, backend):
    graph = GRAPHS["causal"]()
    torch.manual_seed(0)
    after, before = dropped(graph, backend, 0.3, **extras)
    kept = after != 0
    assert_near(after[kept], before[kept] / 0.7)
    share = kept.sum() / (before != 0).sum()
    assert 0.6 < share < 0.8
    assert not torch.equal(kept[:, 0], kept[:, 1])  # per head


@both
def test_the_expectation_is_the_output(backend):
    graph = GRAPHS["tall_causal"]()
    torch.manual_seed(0)
    after, before = dropped(graph, backend, 0.3, (2000,))
    deviation = before.square().mul(0.3 / 0.7).sum(0).sqrt() / 2000  # of the mean over independent masks
    error = (after - before).mean(0).abs()
    assert (error <= 5 * deviation + 1e-12).all()
    assert error.max() > 0


@both
@pytest.mark.parametrize("extras", [{}, {"return_lse": True}])
def test_the_seed_fixes_the_mask_forward_and_backward(extras, backend):
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph)

    def run(seed):
        torch.manual_seed(seed)
        found = ga.attention(*inputs, graph, dropout_p=0.4, backend=backend, **extras)
        return found.output if extras else found

    one, two, other = run(3), run(3), run(4)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    # The output is linear in the value, so <grad_value, value> = <grad, output> only if the mask is the same.
    weight = torch.randn_like(one)
    (dv,) = torch.autograd.grad(one, inputs[2], weight, retain_graph=True)
    assert_near((dv * inputs[2]).sum(), (weight * one).sum())
    # And the query's gradient is that of the weights which were kept.
    (dq,) = torch.autograd.grad(one, inputs[0], weight)
    step = 1e-6 * torch.randn(inputs[0].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ends = []
    for sign in (1, -1):
        torch.manual_seed(3)
        moved = inputs[0].detach() + sign * step
        found = ga.attention(moved, *inputs[1:], graph, dropout_p=0.4, backend=backend, **extras)
        ends.append((weight * (found.output if extras else found)).sum())
    assert_near((dq * step).sum() * 1e6, (ends[0] - ends[1]) / 2 * 1e6, 1e-7)


@both
def test_returned_weights_and_lse_are_those_before_dropout(backend):
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph)
    runs = [
        ga.attention(*inputs, graph, dropout_p=p, backend=backend, return_weights=True, return_lse=True)
        for p in (0.0, 0.6)
    ]
    assert torch.equal(runs[0].weights.alpha, runs[1].weights.alpha)
    assert torch.equal(runs[0].lse, runs[1].lse)
    assert not torch.allclose(runs[0].output, runs[1].output)


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
