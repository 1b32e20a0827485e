"""inference_mode, no_grad and autocast; statistics stay float32."""

import pytest
import torch
from attention_formula import BACKENDS, asked, assert_near, biases, formula, gradients, tensors
from graph_table import GRAPHS

import graphattn as ga

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
EXTRAS = ({}, {"return_weights": True, "return_lse": True}, {"softcap": 2.0})


def build(name):
    """A fresh graph, with nothing cached."""
    return GRAPHS[name]()


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize(
    ("name", "mode"), [("window", torch.inference_mode), ("rule_or_listed", torch.no_grad)]
)
def test_a_graph_first_used_without_gradients_then_trains(mode, name, extras, backend):
    graph = build(name)
    with mode():
        inputs = tensors(graph, (2,), requires_grad=False)
        found = ga.attention(*inputs, graph, backend=backend, **asked(backend, extras))
        output = found if isinstance(found, torch.Tensor) else found.output
        assert not output.requires_grad
    inputs = tensors(graph, (2,))
    found = ga.attention(*inputs, graph, backend=backend, **asked(backend, extras))
    trained = found if isinstance(found, torch.Tensor) else found.output
    wanted = formula(*inputs, graph, softcap=extras.get("softcap"))[0]
    assert_near(output, wanted)
    assert_near(trained, wanted)
    for mine, theirs in zip(gradients(trained, inputs), gradients(wanted, inputs), strict=True):
        assert_near(mine, theirs)


def test_a_graph_made_under_inference_mode(backend):
    with torch.inference_mode():
        edge_index = build("listed_bipartite").edge_index.clone()
        graph = ga.from_edge_index(edge_index, 19, 13)
        both = graph | ga.from_mask(torch.ones(13, 19, dtype=torch.bool).tril())
    inputs = tensors(graph)
    for g in (graph, both, graph.subgraph(targets=range(13))):
        assert_near(ga.attention(*inputs, g, backend=backend), formula(*inputs, g)[0])


def sdpa(query, key, value, graph):
    q, k, v = (x.transpose(-3, -2) for x in (query, key, value))
    mask = graph.mask()
    output = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, enable_gqa=True
    ).transpose(-3, -2)
    return output.masked_fill(~mask.any(1)[:, None, None], 0.0)


def mixed(graph, dtypes):
    return [
        x.detach().to(dtype).requires_grad_()
        for x, dtype in zip(tensors(graph, (2,)), dtypes, strict=True)
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("extras", "inner"),
    [({}, torch.float16), (EXTRAS[1], torch.bfloat16), (EXTRAS[2], torch.bfloat16)],
)
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float16, torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.float32, torch.float32),
        (torch.float64, torch.float64, torch.float64),
    ],
    ids=lambda dtypes: "-".join(str(dtype).removeprefix("torch.") for dtype in dtypes),
)
def test_autocast_casts_what_it_casts_for_sdpa(dtypes, inner, extras, backend):
    graph = build("listed_bipartite")
    inputs, bias = mixed(graph, dtypes), biases(graph)
    with torch.autocast("cpu", inner):
        found = ga.attention(*inputs, graph, bias, backend=backend, **asked(backend, extras))
        theirs = sdpa(*inputs, graph)
        plain = ga.attention(*inputs, graph, backend=backend)
    assert plain.dtype == theirs.dtype
    eps = torch.finfo(theirs.dtype).eps
    assert_near(plain, theirs, 4 * eps)
    for mine, other, x in zip(
        gradients(plain, inputs), gradients(theirs, inputs), inputs, strict=True
    ):
        assert mine.dtype == other.dtype == x.dtype
        assert_near(mine, other, 8 * max(eps, torch.finfo(x.dtype).eps))
    cast = [x if x.dtype == torch.float64 else x.to(inner) for x in inputs]
    wanted = ga.attention(*cast, graph, bias, backend=backend, **asked(backend, extras))
    both = [
        [x] if isinstance(x, torch.Tensor) else [x.output, x.lse, *_alpha(x)]
        for x in (found, wanted)
    ]
    for mine, other in zip(
        *(parts + gradients(parts[0], [*inputs, bias]) for parts in both), strict=True
    ):
        assert torch.equal(mine, other)


def _alpha(found):
    return [] if found.weights is None else [found.weights.alpha]


def test_autocast_leaves_float64_as_it_is(backend):
    graph = build("listed_bipartite")
    for dtypes in (
        (torch.float64, torch.float32, torch.float32),
        (torch.float32, torch.bfloat16, torch.float64),
    ):
        with (
            torch.autocast("cpu", torch.bfloat16),
            pytest.raises(ga.errors.ShapeError, match="autocast keeps float64"),
        ):
            ga.attention(*mixed(graph, dtypes), graph, backend=backend)


def test_a_context_held_in_float32_is_read_under_autocast(backend):
    graph = build("listed_bipartite")
    torch.manual_seed(0)
    layer = ga.nn.GraphAttention(24, 6, num_kv_heads=3, backend=backend)
    x, context = torch.randn(13, 24), torch.randn(19, 24)
    held, wanted = layer.hold(context), layer(x, graph, context=context)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x, graph, context=held)
    assert found.dtype == torch.bfloat16
    assert_near(found, wanted, 0.03)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("inner", [torch.bfloat16, torch.float16])
def test_derivatives_taken_under_autocast(inner, dtype, backend):
    """torch advises against it, and narrows the second derivative of any product; the first stays
    as it is.
    """
    graph = build("listed_bipartite")
    inputs = tensors(graph, dtype=dtype)
    cast = [x if dtype == torch.float64 else x.to(inner) for x in inputs]
    outputs = []
    for enabled, given in ((False, cast), (True, inputs)):
        with torch.autocast("cpu", inner, enabled=enabled):
            output = ga.attention(*given, graph, backend=backend)
            plain = torch.autograd.grad(output.square().sum(), inputs, retain_graph=True)
            first = torch.autograd.grad(output.square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(x.square().sum() for x in first), inputs)
        outputs.append([*plain, *first, *second])
    for mine, theirs in zip(*outputs, strict=True):
        assert_near(mine, theirs, 1e-12 if dtype == torch.float64 else 4 * torch.finfo(inner).eps)
        assert mine.abs().sum() > 0
