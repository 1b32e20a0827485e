"""Against code nobody here wrote: SDPA and FlexAttention; float64, outputs and gradients to
1e-12.
"""

import functools

import pytest
import torch
from attention_formula import BACKENDS, HEADS, assert_near, gradients, tensors
from graph_table import GRAPHS
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

import graphattn as ga

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def heads_first(function, q, k, v):
    """Run a function of (B, H, N, D) on node-first tensors."""
    output = function(*(x.transpose(-3, -2) for x in (q, k, v)))
    return output.transpose(-3, -2)


def compare(theirs, ours, inputs, zero=()):
    assert_near(ours, theirs)
    found = zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True)
    for i, (mine, wanted) in enumerate(found):
        assert_near(mine, wanted)
        assert i in zero or mine.abs().sum() > 0


@pytest.mark.parametrize(
    ("name", "scale"),
    [("full", None), ("listed_bipartite", 0.37), ("isolated_targets", -0.37), ("longformer", None)],
)
def test_sdpa_with_a_mask(name, scale, backend):
    graph = GRAPHS[name]()
    inputs = tensors(graph, (2,))
    theirs = heads_first(
        lambda q, k, v: sdpa(q, k, v, graph.mask(), scale=scale, enable_gqa=True), *inputs
    )
    compare(theirs, ga.attention(*inputs, graph, scale=scale, backend=backend), inputs)


def test_sdpa_with_an_additive_mask(backend):
    graph = GRAPHS["listed_bipartite"]()
    inputs = (
        *tensors(graph, (2,), heads=3),
        torch.randn(graph.num_edges, 3, dtype=torch.float64, requires_grad=True),
    )
    nothing = torch.full((3, 13, 19), -torch.inf, dtype=torch.float64)
    places = (torch.arange(3)[:, None], graph.target, graph.source)
    mask = nothing.index_put(places, inputs[3].mT)
    theirs = heads_first(lambda q, k, v: sdpa(q, k, v, mask), *inputs[:3])
    compare(theirs, ga.attention(*inputs[:3], graph, inputs[3], backend=backend), inputs)


@pytest.mark.parametrize(("T", "S"), [(13, 13), (7, 13), (13, 7), (1, 5), (5, 1)])
def test_sdpa_is_causal_aligned_at_the_start(T, S, backend):
    graph = ga.graphs.causal(T, S, align="start")
    inputs = tensors(graph, (2,), heads=3)
    theirs = heads_first(lambda q, k, v: sdpa(q, k, v, is_causal=True), *inputs)
    zero = (0, 1) if min(T, S) == 1 else ()  # a single source has weight 1 whatever its score
    compare(theirs, ga.attention(*inputs, graph, backend=backend), inputs, zero)
    theirs = heads_first(lambda q, k, v: sdpa(q, k, v, causal_upper_left(T, S)), *inputs)
    compare(theirs, ga.attention(*inputs, graph, backend=backend), inputs, zero)


# with T > S torch makes NaN of the first rows
@pytest.mark.parametrize(("T", "S"), [(13, 13), (7, 13), (1, 5)])
def test_sdpa_is_causal_aligned_at_the_end(T, S, backend):
    graph = ga.graphs.causal(T, S, align="end")
    inputs = tensors(graph, (2,), heads=3)
    theirs = heads_first(lambda q, k, v: sdpa(q, k, v, causal_lower_right(T, S)), *inputs)
    compare(theirs, ga.attention(*inputs, graph, backend=backend), inputs)
    other = ga.attention(*inputs, ga.graphs.causal(T, S, align="start"), backend=backend)
    assert T == S or not torch.allclose(theirs, other)


def test_sdpa_with_grouped_heads(backend):
    graph = GRAPHS["causal"]()
    inputs = tensors(graph, (2,), heads=6, kv_heads=2)
    theirs = heads_first(lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True), *inputs)
    compare(theirs, ga.attention(*inputs, graph, backend=backend), inputs)
    # the other convention is not ours
    interleaved = tuple(x.repeat(1, 1, 3, 1) for x in inputs[1:])
    assert not torch.allclose(theirs, ga.attention(inputs[0], *interleaved, graph, backend=backend))


# FlexAttention has no backward on the CPU: outputs and lse


@functools.cache
def by_flex(name, scale=None):
    """FlexAttention with a softcap, or with a relative bias where no scale is given: output and
    lse, node-first.
    """
    torch._dynamo.reset()  # it compiles itself, and fails where sizes and scales changed before
    graph, slope = GRAPHS[name](), torch.linspace(0.1, 0.7, HEADS, dtype=torch.float64)
    heads = [x.transpose(-3, -2) for x in tensors(graph, (2,), requires_grad=False)]

    def softcap(score, batch, head, target, source):
        return 1.9 * torch.tanh(score / 1.9)

    def alibi(score, batch, head, target, source):
        return score - slope[head] * (target - source).abs()

    given = *heads, softcap if scale else alibi, ga.convert.to_block_mask(graph)
    output, lse = flex_attention(*given, scale=scale, enable_gqa=True, return_lse=True)
    torch._dynamo.reset()
    return output.transpose(-3, -2), lse.mT, -slope * (graph.target - graph.source).abs()[:, None]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["listed_random", "packed_documents", "cross_causal_end"])
def test_flex_attention_with_softcap_and_mask_mod(name, backend):
    graph = GRAPHS[name]()
    inputs, (output, lse, _) = tensors(graph, (2,), requires_grad=False), by_flex(name, 0.8)
    found = ga.attention(*inputs, graph, scale=0.8, softcap=1.9, backend=backend, return_lse=True)
    assert_near(found.output, output)
    assert_near(found.lse, lse)


def test_flex_attention_with_a_relative_bias(backend):
    graph = GRAPHS["wide_window"]()
    inputs, (output, _, bias) = tensors(graph, (2,), requires_grad=False), by_flex("wide_window")
    assert_near(ga.attention(*inputs, graph, bias, backend=backend), output)
