"""Extreme scores, odd sizes and options; on both backends."""

import math

import pytest
import torch
from attention_formula import (
    BACKENDS,
    EXACT,
    HEADS,
    assert_near,
    biases,
    formula,
    gradients,
    tensors,
)
from graph_table import GRAPHS

import graphattn as ga

INF, NAN = math.inf, math.nan
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
EXTRAS = ({}, {"return_lse": True})  # SDPA, and the dense product written out

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def run(*args, **kwargs):
    found = ga.attention(*args, **kwargs)
    return found if isinstance(found, torch.Tensor) else found.output


@pytest.mark.parametrize("extras", EXTRAS)
def test_scores_of_ten_thousand(backend, extras):
    graph = GRAPHS["listed_random"]()
    q, k, v = tensors(graph, dtype=torch.float32)
    bias = biases(graph).detach()
    # a spread of 2e4 that float32 holds exactly
    bias = torch.where(bias > 0, 1e4, -1e4) + bias.round()
    found = run(q, k, v, graph, bias.float(), 0.0, backend=backend, **extras)
    assert_near(found, formula(q.double(), k.double(), v.double(), graph, bias, 0.0)[0], 1e-6)
    assert all(grad.isfinite().all() for grad in gradients(found, (q, k, v)))
    q, k = (x.detach().sign() * 100 for x in (q, k))  # from the product, too
    found = run(q, k, v, graph, None, 1.0, backend=backend, **extras)
    assert_near(found, formula(q.double(), k.double(), v.double(), graph, None, 1.0)[0], 1e-6)


@pytest.mark.parametrize("extras", EXTRAS)
def test_a_target_of_huge_scores_leaves_the_others_alone(backend, extras):
    graph = GRAPHS["hub"]()
    q, k, v = tensors(graph, dtype=torch.float32, requires_grad=False)
    bias = torch.where(graph.target == 30, 1e4, -1e4)
    found = run(q, k, v, graph, bias, backend=backend, **extras)
    # 1e4 + score rounds at 1e-3
    assert_near(found, formula(q.double(), k.double(), v.double(), graph)[0], 1e-3)
    assert found[1:30].abs().min() > 0


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_scores_minus_inf(backend, dtype, extras):
    graph = GRAPHS["cross"]()
    q, k, v = tensors(graph, dtype=dtype)
    bias = biases(graph).detach()
    bias[graph.target == 3] = -INF
    bias[graph.target == 5, 1] = -INF  # in one head only
    bias.requires_grad_()
    found = ga.attention(q, k, v, graph, bias, backend=backend, **extras)
    output = found.output if extras else found
    assert torch.equal(output[3], torch.zeros_like(output[3]))
    assert torch.equal(output[5, 1], torch.zeros_like(output[5, 1]))
    assert output[5, 0].abs().min() > 0
    if extras:
        assert (found.lse[3] == -INF).all()
        assert found.lse[5, 1] == -INF
        assert found.lse.isfinite().sum() == found.lse.numel() - HEADS - 1
    dq, dk, dv, db = gradients(output, (q, k, v, bias))
    assert all(grad.isfinite().all() and grad.abs().sum() > 0 for grad in (dq, dk, dv, db))
    assert torch.equal(dq[3], torch.zeros_like(dq[3]))
    assert torch.equal(db[graph.target == 3], torch.zeros(13, HEADS, dtype=torch.float64))


@pytest.mark.parametrize("extras", EXTRAS)
def test_all_products_minus_inf(backend, extras):
    graph = GRAPHS["cross"]()
    q, k, v = tensors(graph, heads=1, kv_heads=1, width=1, dtype=torch.float32)
    with torch.no_grad():
        q.fill_(1e-3)[2] = 1e20
        k.fill_(-1e20)
    found = run(q, k, v, graph, scale=1.0, backend=backend, **extras)
    assert torch.equal(found[2], torch.zeros_like(found[2]))
    assert_near(found[0, 0], v.detach().mean((0, 1)), 1e-6)
    assert all(grad.isfinite().all() for grad in gradients(found, (q, k, v)))


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_a_row_of_finfo_min_is_uniform(backend, dtype):
    graph = GRAPHS["cross"]()
    q, k, v = tensors(graph, dtype=dtype, requires_grad=False)
    bias = torch.zeros(graph.num_edges).masked_fill(
        graph.target == 3, torch.finfo(torch.float32).min
    )
    found = ga.attention(q, k, v, graph, bias, backend=backend)
    assert_near(found[3], v.double().mean(0).repeat_interleave(2, 0), 4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("extras", EXTRAS)
def test_a_bias_of_minus_inf_is_an_edge_removed(backend, extras):
    graph = GRAPHS["listed_random"]()
    gone = torch.arange(graph.num_edges) % 3 == 0
    rest = ga.from_edge_index(graph.edge_index[:, ~gone], num_nodes=graph.num_nodes)
    q, k, v = tensors(graph)
    bias = biases(graph).detach()
    bias[gone] = -INF
    found, wanted = (
        run(q, k, v, graph, bias, backend=backend, **extras),
        run(q, k, v, rest, bias[~gone]),
    )
    assert_near(found, wanted)
    for mine, theirs in zip(gradients(found, (q, k, v)), gradients(wanted, (q, k, v)), strict=True):
        assert_near(mine, theirs)


@pytest.mark.parametrize("extras", EXTRAS)
def test_a_product_beyond_float16(backend, extras):
    graph = GRAPHS["causal"]()
    q, k, v = tensors(graph, dtype=torch.float16, requires_grad=False)
    q, k = (x.sign() * 128 for x in (q, k))
    assert (q[0, 0] * q[0, 0]).sum() == INF  # 81,920 in float16
    found = run(q, k, v, graph, backend=backend, **extras)
    assert_near(found, formula(q.double(), k.double(), v.double(), graph)[0], 2e-3)


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_single_source_is_copied_bit_for_bit(backend, dtype, extras):
    graph = GRAPHS["directed_ring"]()
    q, k, v = tensors(graph, dtype=dtype, requires_grad=False)
    found = run(q, k, v, graph, scale=3.0, backend=backend, **extras)
    assert torch.equal(found[graph.target], v[graph.source].repeat_interleave(2, 1))


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("special", ["subnormal", "minus_zero", "largest"])
def test_no_nan_from_the_ends_of_the_range(backend, special, which, extras):
    graph = GRAPHS["listed_random"]()
    limits = torch.finfo(torch.float32)
    number = {"subnormal": limits.tiny / 8, "minus_zero": -0.0, "largest": limits.max}[special]
    inputs = tensors(graph, dtype=torch.float32)
    with torch.no_grad():
        for i, x in enumerate(inputs):  # the other factor is small enough for the product
            x.mul_(1e-3) if i != which else x.fill_(number)
    output = run(*inputs, graph, backend=backend, **extras)
    assert not output.isnan().any()
    # There the gradient of the scores overflows. Torch's kernel computes scores of 1e35 again in
    # its backward, and they round otherwise there if they do.
    again = backend == "tiles" and extras
    if not (special == "largest" and (which == 2 or again)):
        assert not any(grad.isnan().any() for grad in gradients(output, inputs))


@pytest.mark.parametrize(
    ("width", "value_width", "dtype", "tolerance"),
    [(1, 1, torch.float64, EXACT), (3, 1, torch.float64, EXACT), (13, 19, torch.float32, 1e-6)],
)
def test_any_width(backend, width, value_width, dtype, tolerance):
    graph = GRAPHS["causal"]()
    q, k, v = tensors(graph, width=width, value_width=value_width, dtype=dtype)
    found, wanted = (
        ga.attention(q, k, v, graph, backend=backend),
        formula(*(x.double() for x in (q, k, v)), graph)[0],
    )
    assert_near(found, wanted, tolerance)
    for mine, theirs in zip(gradients(found, (q, k, v)), gradients(wanted, (q, k, v)), strict=True):
        assert_near(mine, theirs, tolerance)


@pytest.mark.parametrize(
    "sizes", [{"width": 0}, {"value_width": 0}, {"heads": 0, "kv_heads": 0}, {"heads": 0}]
)
def test_width_and_heads_of_zero(backend, sizes):
    graph = GRAPHS["listed_random"]()
    q, k, v = tensors(graph, **sizes)
    request = {
        "heads": q.shape[1],
        "kv_heads": k.shape[1],
        "head_dim": q.shape[2],
        "value_dim": v.shape[2],
    }
    reasons = {c.name: c.reasons for c in ga.explain(graph, **request).candidates}[backend]
    assert reasons == ("an axis has size 0",) * (backend in ("dense", "tiles"))
    found = ga.attention(q, k, v, graph, backend=backend)
    assert found.shape == (17, q.shape[1], v.shape[2])
    found.sum().backward()
    if sizes == {"width": 0}:  # nothing to compare by: the mean
        assert_near(found, formula(q, k, v, graph, scale=1.0)[0])
        assert v.grad.abs().sum() > 0


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("low", [-1e4, -1e9, -1e17, "lowest"])
def test_gradients_where_every_score_is_very_low(low, dtype, extras, backend):
    """A stored lse of -1e9 has no room for log n: whoever finds the weights from it again finds
    weights of 1.
    """
    graph = ga.graphs.full(4)
    q, k, v = tensors(graph, dtype=dtype, heads=2, kv_heads=1, width=8, value_width=8)
    bias = torch.full((16, 2), torch.finfo(dtype).min if low == "lowest" else low, dtype=dtype)
    found = run(q, k, v, graph, bias, backend=backend, **extras)
    grads = gradients(found, (q, k, v))
    score = torch.einsum("thd,sd->hts", q, k[:, 0]) * 8**-0.5 + bias[0, 0]  # and so rounded
    alpha = torch.softmax(score, -1)
    wanted = torch.einsum("hts,sd->thd", alpha, v[:, 0])
    near = {torch.float64: 1e-6, torch.float32: 3e-3}[dtype] if low == -1e4 else 1e-6
    assert_near(found, wanted, near)
    for mine, theirs in zip(grads, gradients(wanted, (q, k, v)), strict=True):
        assert_near(mine, theirs, near)
