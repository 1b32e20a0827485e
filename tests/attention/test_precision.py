"""Precision: float32 statistics, hubs, and the error of plain dense torch in the same dtype as the
yardstick.
"""

import pytest
import torch
from attention_formula import (
    BACKENDS,
    WEIGHING,
    asked,
    assert_near,
    biases,
    formula,
    gradients,
    tensors,
)
from graph_table import GRAPHS

import graphattn as ga
from graphattn.exactness.bounds import bound

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
NARROW = (torch.float32, torch.bfloat16, torch.float16)


def plain(q, k, v, graph, bias=None, softcap=None):
    """Dense torch in the dtype of the inputs, as one would write it; and its rows without edges are
    0.
    """
    q, k, v = (
        x.transpose(-3, -2) for x in (q, k.repeat_interleave(2, -2), v.repeat_interleave(2, -2))
    )
    score = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    score = score if softcap is None else softcap * torch.tanh(score / softcap)
    mask = graph.mask()
    if bias is not None:
        pairs = score.new_zeros(*score.shape[-3:]).movedim(0, -1)  # (T, S, H)
        score = score + pairs.index_put((graph.target, graph.source), bias.to(score)).movedim(-1, 0)
    isolated = ~mask.any(1, keepdim=True)
    weights = torch.softmax(score.masked_fill(~(mask | isolated), -torch.inf), -1).masked_fill(
        isolated, 0.0
    )
    return (weights @ v).transpose(-3, -2)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    ("name", "options"),
    [("full", "plain"), ("causal", "plain"), ("cells", "softcap"), ("isolated_targets", "bias")]
    + [("hub", options) for options in ("plain", "softcap", "bias")],
)
def test_errors_are_at_most_those_of_dense_torch(name, options, dtype, backend):
    graph = GRAPHS[name]()
    inputs = list(tensors(graph, (3,), width=5, value_width=3, dtype=dtype))
    given = {"softcap": 2.0} if options == "softcap" else {}
    if options == "bias":
        inputs.append(biases(graph).to(dtype).detach().requires_grad_())
    exact = [x.detach().double().requires_grad_() for x in inputs]
    truth = formula(*exact[:3], graph, *exact[3:], **given)[0]
    truths = [truth, *gradients(truth, exact)]
    errors = []
    for function in (plain, ga.attention):
        named = {"backend": backend} if function is ga.attention else {}
        output = function(*inputs[:3], graph, *inputs[3:], **given, **named)
        assert output.dtype == dtype
        found = [output, *gradients(output, inputs)]
        largest = max(float(x.detach().abs().max()) for x in truths[1:])
        sizes = [float(truth.detach().abs().max()), *[largest] * len(inputs)]
        differences = zip(found, truths, sizes, strict=True)
        errors.append(
            [
                float((x.detach().double() - y.detach()).abs().max()) / size
                for x, y, size in differences
            ]
        )
    for i, (theirs, mine) in enumerate(zip(*errors, strict=True)):
        assert mine <= bound(dtype, theirs, gradient=i > 0), (i, mine, theirs)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("listed", "dtype"), [(False, torch.bfloat16), (True, torch.float16)])
def test_a_hub_of_70_000_equal_edges(listed, dtype, backend):
    graph = ga.graphs.cross(2, 70_000)
    if listed:
        edges = torch.stack((torch.randperm(70_000), torch.zeros(70_000, dtype=torch.int64)))
        graph = ga.from_edge_index(edges, num_sources=70_000, num_targets=2)
    q = torch.ones(2, 1, 3, dtype=dtype)
    k = v = torch.ones(70_000, 1, 3, dtype=dtype).requires_grad_()
    assert_near(ga.attention(q, k, v, graph, backend=backend)[0], torch.ones(1, 3), 2**-8)
    extras = asked(backend, {"return_weights": True, "return_lse": True})
    found = ga.attention(q, k, v, graph, backend=backend, **extras)
    if backend in WEIGHING:
        assert_near(found.weights.alpha[graph.target == 0].sum(), torch.tensor(1.0), 2**-8)
        assert found.weights.alpha.dtype == torch.float32
    assert_near(found.lse[0], torch.tensor([3**0.5]) + torch.tensor(70_000.0).log(), 1e-3 * 2**-4)
    assert found.lse.dtype == torch.float32
    (dv,) = torch.autograd.grad(found.output.float().sum(), v)
    assert_near(dv.double().sum(), torch.tensor((2 - listed) * 3.0), 2**-7)


def test_degree_2048_in_bfloat16(backend):
    graph = ga.graphs.cross(3, 2048)
    q, k, v = tensors(graph, width=5, value_width=3, dtype=torch.bfloat16, requires_grad=False)
    truth = formula(q.double(), k.double(), v.double(), graph)[0]
    rounding = (truth.bfloat16().double() - truth).abs().max()
    error = (ga.attention(q, k, v, graph, backend=backend).double() - truth).abs().max()
    assert error <= 2 * rounding
