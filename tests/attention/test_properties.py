"""Random graphs, shapes, dtypes and options: both backends against the formula, and what must not
matter (B33).
"""

import hypothesis.strategies as st
import pytest
import torch
from attention_formula import BACKENDS, assert_near, formula, gradients, may_refuse
from hypothesis import HealthCheck, given, settings

import graphattn as ga

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 4e-3}
quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
few = settings(quick, max_examples=15)


@st.composite
def graphs(draw, T=None, S=None):
    T = draw(st.integers(0, 7)) if T is None else T
    S = draw(st.integers(0, 7)) if S is None else S
    if draw(st.booleans()) and T and S:  # a rule
        rule = ga.graphs.causal(T, S, align=draw(st.sampled_from(["end", "start"])))
        return draw(st.sampled_from([rule, ga.graphs.cross(T, S), ~rule]))
    pair = st.tuples(st.integers(0, max(S - 1, 0)), st.integers(0, max(T - 1, 0)))
    pairs = draw(st.lists(pair, max_size=30, unique=draw(st.booleans()))) if T and S else []
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    return ga.from_edge_index(edges, num_sources=S, num_targets=T, duplicates="keep")


@st.composite
def calls(draw):
    """A graph, the inputs, the options, and a dtype."""
    graph = draw(graphs())
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    width, value_width = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    full = draw(st.lists(st.integers(0, 3), max_size=2))
    made = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from(list(TOLERANCE)))

    def tensor(*shape):
        lead = [1 if draw(st.booleans()) else n for n in full][draw(st.integers(0, len(full))) :]
        return (
            torch.randn(*lead, *shape, generator=made, dtype=torch.float64)
            .to(dtype)
            .requires_grad_()
        )

    inputs = [tensor(graph.num_targets, kv_heads * group, width)]
    inputs += [tensor(graph.num_sources, kv_heads, w) for w in (width, value_width)]
    if draw(st.booleans()):
        inputs.append(tensor(graph.num_edges, draw(st.sampled_from([1, kv_heads * group]))))
    scale = draw(st.sampled_from([0.0, 0.7, -1.3] if width == 0 else [None, None, 0.0, 0.7, -1.3]))
    softcap = draw(st.sampled_from([None, None, 1.9]))
    extras = draw(st.booleans())
    return graph, inputs, {"scale": scale, "softcap": softcap}, extras, dtype


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@quick
@given(call=calls())
def test_any_call_is_the_formula(backend, call):
    graph, inputs, options, extras, dtype = call
    biased = inputs[3:] != []
    widths = (*inputs[0].shape[-2:], inputs[2].shape[-1])
    if may_refuse(graph, backend, score_bias=biased, return_weights=extras) or (
        backend in ("dense", "tiles") and 0 in widths
    ):
        return
    found = ga.attention(
        *inputs[:3],
        graph,
        *inputs[3:],
        **options,
        backend=backend,
        return_weights=extras,
        return_lse=extras,
    )
    exact = [x.detach().double().requires_grad_() for x in inputs]
    lead = torch.broadcast_shapes(*(x.shape[: -2 if i == 3 else -3] for i, x in enumerate(exact)))
    q, k, v = (x.expand(*lead, *x.shape[-3:]) for x in exact[:3])
    wanted, alpha, lse = formula(q, k, v, graph, *exact[3:], **options)
    output = found.output if extras else found
    assert output.dtype == dtype
    assert_near(output, wanted, TOLERANCE[dtype])
    if extras:
        assert_near(found.weights.alpha, alpha.expand(found.weights.alpha.shape), TOLERANCE[dtype])
        assert_near(found.lse, lse, TOLERANCE[dtype])
    if output.numel():
        for mine, theirs in zip(gradients(output, inputs), gradients(wanted, exact), strict=True):
            assert_near(mine, theirs, 8 * TOLERANCE[dtype])
