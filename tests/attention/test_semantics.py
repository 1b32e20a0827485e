"""What attention means, on every graph of the table and on every backend, in float64."""

import functools

import pytest
import torch
from attention_formula import (
    BACKENDS,
    EXACT,
    HEADS,
    WIDTH,
    asked,
    assert_near,
    biases,
    formula,
    gradients,
    taken,
    tensors,
)
from graph_table import GRAPHS, KINDS

import graphattn as ga
from graphattn.backends import choose

OPTIONS = {
    "plain": {},
    "scale": {"scale": -0.3},
    "softcap": {"scale": 0.9, "softcap": 1.7},
    "bias": {"score_bias": True},
    "all but weights": {"scale": 0.8, "softcap": 2.3, "score_bias": True, "return_lse": True},
    "everything": {
        "scale": 0.8,
        "softcap": 2.3,
        "score_bias": True,
        "return_weights": True,
        "return_lse": True,
    },
}
# two roundings of it
NEAR = {torch.float64: EXACT, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def seeded(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def calls():
    """Plain calls and calls with all options on every graph; each option by itself on graphs of
    every kind.
    """
    for name, options in OPTIONS.items():
        apart = {option: True for option in ("score_bias", "return_weights") if option in options}
        yield from (
            (name, *pair)
            for pair in taken(GRAPHS if name in ("plain", "everything") else KINDS, **apart)
        )


def parts(result):
    """What is differentiable of a result, all of it; the lse of a target without edges is -inf."""
    output, weights, lse = result
    alpha = () if weights is None else (weights,)
    return torch.cat([x.flatten() for x in (output, *alpha, lse[lse > -torch.inf])])


@functools.lru_cache(1)
def expected(options, name):
    """The graph, the inputs and options, what the formula gives, and its gradients; once for all
    backends.
    """
    graph, options = GRAPHS[name](), dict(OPTIONS[options])
    inputs = list(tensors(graph, (2,) if "return_lse" in options else ()))
    if options.pop("score_bias", False):
        inputs.append(biases(graph))
    numbers = {key: value for key, value in options.items() if key in ("scale", "softcap")}
    wanted = formula(*inputs[:3], graph, *inputs[3:], **numbers)
    output, alpha, lse = wanted
    if "return_lse" in options:
        output = parts((output, alpha if "return_weights" in options else None, lse))
    return graph, inputs, options, wanted, gradients(output, inputs)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("options", "name", "backend"), list(calls()))
def test_output_weights_lse_and_gradients_are_the_formulas(options, name, backend):
    graph, inputs, options, wanted, wanted_gradients = expected(options, name)
    result = ga.attention(*inputs[:3], graph, *inputs[3:], **options, backend=backend)
    if "return_lse" in options:
        alpha = None if result.weights is None else result.weights.alpha
        result = result.output, alpha, result.lse
        for mine, theirs in zip(result, wanted, strict=True):
            if mine is not None:
                assert_near(mine, theirs)
        result = parts(result)
    else:
        assert_near(result, wanted[0])
    mine = gradients(result, inputs)
    for one, other in zip(mine, wanted_gradients, strict=True):
        assert_near(one, other)
    if graph.num_edges and name not in ("directed_ring", "one_node"):
        assert all(grad.abs().sum() > 0 for grad in mine)


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("full", torch.float64), ("hub", torch.float64), *(("causal", d) for d in NEAR)],
)
def test_scales_of_zero_and_below_are_the_formulas(name, dtype, backend):
    graph = GRAPHS[name]()
    # widths alike, which fused kernels ask for
    q, k, v = tensors(graph, (2,), value_width=WIDTH, dtype=dtype)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    for scale in (0.0, -0.7, -5e-324):
        output, _, lse = formula(*wide, graph, scale=scale)
        result = ga.attention(q, k, v, graph, scale=scale, backend=backend)
        assert_near(result, output, NEAR[dtype])
        for mine, theirs in zip(gradients(result, (q, k, v)), gradients(output, wide), strict=True):
            assert_near(mine, theirs, NEAR[dtype])
        assert_near(
            ga.attention(q, k, v, graph, scale=scale, backend=backend, return_lse=True).lse,
            lse,
            NEAR[dtype],
        )


@pytest.mark.parametrize("length", [8, 600])  # SDPA's kernels split longer queries
@pytest.mark.parametrize("scale", [0.0, -1e-3, -0.7])
def test_a_causal_layer_takes_scales_of_zero_and_below(scale, length):
    graph = ga.graphs.causal(length, length - 1, align="start")
    layer = ga.nn.GraphAttention(6, 2, scale=scale).double()
    x, context = (seeded((n, 6)).requires_grad_() for n in (length, length - 1))
    q, k, v = (
        proj(given).unflatten(-1, (2, 3))
        for proj, given in ((layer.q_proj, x), (layer.k_proj, context), (layer.v_proj, context))
    )
    score = (scale * torch.einsum("thd,shd->hts", q, k)).masked_fill(~graph.mask(), -torch.inf)
    wanted = layer.out_proj(torch.einsum("hts,shd->thd", score.softmax(-1), v).flatten(-2))
    found = layer(x, graph, context=context)
    assert_near(found, wanted)
    for mine, theirs in zip(
        gradients(found, (x, context)), gradients(wanted, (x, context)), strict=True
    ):
        assert_near(mine, theirs)


def test_compiled_code_takes_scales_of_zero_and_below():
    graph = ga.graphs.causal(8)
    q, k, v = tensors(graph, value_width=WIDTH, requires_grad=False)
    scales = (0.0, -0.7)
    compiled = torch.compile(
        lambda: [ga.attention(q, k, v, graph, scale=s) for s in scales], backend="eager"
    )
    for scale, found in zip(scales, compiled(), strict=True):
        assert_near(found, formula(q, k, v, graph, scale=scale)[0])


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("leads", "bias_lead"),
    [
        (((2,), (2,), (2,)), (2,)),
        (((2,), (2,), (2,)), (3, 1)),
        (((2,), (2,), (2,)), ()),
        (((2, 1), (3,), ()), None),
        (((2, 1), (3,), ()), (5, 1, 1)),
        (((), (2,), (2,)), ()),
        (((), (), ()), (2,)),
        (((3, 1), (1, 2), (2,)), (3, 2)),
        (((0,), (0,), (0,)), ()),
        (((0,), (1,), (0,)), None),
    ],
)
def test_leading_dimensions_broadcast(leads, bias_lead, backend):
    graph = GRAPHS["listed_bipartite"]()
    q, k, v = (tensors(graph, lead)[i] for i, lead in enumerate(leads))
    bias = None if bias_lead is None else biases(graph, bias_lead)
    inputs = [x for x in (q, k, v, bias) if x is not None]
    found, wanted = (
        ga.attention(q, k, v, graph, bias, backend=backend),
        formula(q, k, v, graph, bias)[0],
    )
    assert_near(found, wanted)
    for mine, theirs in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        assert_near(mine, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bias_shapes_mean_the_same(backend):
    graph = GRAPHS["listed_random"]()
    q, k, v = tensors(graph, (2,))
    per_edge = biases(graph, heads=1).detach().squeeze(-1)
    wanted = ga.attention(q, k, v, graph, per_edge, backend=backend)
    for same in (
        per_edge[:, None],
        per_edge[:, None].expand(-1, HEADS),
        per_edge[None, :, None].expand(2, -1, HEADS),
    ):
        assert_near(ga.attention(q, k, v, graph, same, backend=backend), wanted)
    assert not torch.allclose(wanted, ga.attention(q, k, v, graph, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "name", ["listed_random", "hub", "longformer", "cells", "cross_causal_end"]
)
def test_a_non_neighbour_is_not_read_bit_for_bit(name, backend):
    graph = GRAPHS[name]()
    t = int(torch.where(graph.in_degree > 1, graph.in_degree, 99).argmin())
    silent = ~graph.contains(t, torch.arange(graph.num_sources))
    assert silent.any()
    q, k, v = tensors(graph)
    before = ga.attention(q, k, v, graph, backend=backend)[t]
    grads = torch.autograd.grad(before.sum(), (k, v))
    assert all(torch.equal(grad[silent], torch.zeros_like(grad[silent])) for grad in grads)
    assert all(grad[~silent].abs().sum() > 0 for grad in grads)
    changed = [x.detach().clone() for x in (k, v)]
    for x in changed:
        x[silent] = 1e3 * torch.randn_like(x[silent])
    assert torch.equal(ga.attention(q, *changed, graph, backend=backend)[t], before)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["listed_random", "hub", "directed_ring", "isolated_targets"])
def test_a_removed_edge_is_seen(name, backend):
    graph = GRAPHS[name]()
    q, k, v = tensors(graph, requires_grad=False)
    whole = ga.attention(q, k, v, graph, backend=backend)
    for e in range(0, graph.num_edges, 7):
        rest = torch.arange(graph.num_edges) != e
        less = ga.from_edge_index(graph.edge_index[:, rest], graph.num_sources, graph.num_targets)
        differs = (ga.attention(q, k, v, less, backend=backend) - whole).abs().amax((-1, -2)) > 1e-9
        assert torch.nonzero(differs).flatten().tolist() == [int(graph.target[e])]


@pytest.mark.parametrize("backend", BACKENDS)
def test_edge_order_belongs_to_the_caller(backend):
    graph = GRAPHS["listed_random"]()
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(7))
    shuffled = ga.from_edge_index(graph.edge_index[:, order], num_nodes=graph.num_nodes)
    q, k, v = tensors(graph)
    bias = biases(graph)
    asks = asked(backend, {"return_weights": True, "return_lse": True})
    one = ga.attention(q, k, v, graph, bias, backend=backend, **asks)
    two = ga.attention(q, k, v, shuffled, bias[order], backend=backend, **asks)
    assert_near(two.output, one.output)
    if two.weights is not None:
        assert_near(two.weights.alpha, one.weights.alpha[order])
        assert torch.equal(two.weights.graph.edge_index, shuffled.edge_index)
    grads = [gradients(x.output, (q, k, v, bias)) for x in (one, two)]
    for mine, theirs in zip(*grads, strict=True):
        assert_near(mine, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_self_loops_are_ordinary_edges(backend):
    graph = GRAPHS["listed_random"]()
    q, k, v = tensors(graph)
    outputs = [
        ga.attention(q, k, v, g, backend=backend)
        for g in (graph, graph.with_self_loops(), graph.without_self_loops())
    ]
    for output, g in zip(
        outputs, (graph, graph.with_self_loops(), graph.without_self_loops()), strict=True
    ):
        assert_near(output, formula(q, k, v, g)[0])
    assert not torch.allclose(outputs[1], outputs[2])


def test_direction_and_loops_are_the_edges_own():
    graph = ga.from_edge_index(torch.tensor([[0], [2]]), num_nodes=3)  # 0 -> 2: 2 reads 0
    value = torch.arange(1.0, 4.0).reshape(3, 1, 1)
    for backend in BACKENDS:
        output = ga.attention(value, value, value, graph, backend=backend)
        assert output.flatten().tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_share_key_and_value_heads_in_blocks(backend):
    graph = GRAPHS["causal"]()
    q, k, v = tensors(graph)
    whole = ga.attention(q, k, v, graph, backend=backend)
    for head in range(HEADS):
        kv = slice(head // 2, head // 2 + 1)
        alone = ga.attention(q[:, head : head + 1], k[:, kv], v[:, kv], graph, backend=backend)
        assert_near(alone, whole[:, head : head + 1])


@pytest.mark.parametrize("name", ["full", "hub", "repeated_edges", "zero_targets"])
def test_what_explain_chooses_is_what_runs(name, monkeypatch):
    graph, ran = GRAPHS[name](), []
    for backend in map(type, choose.BACKENDS.values()):

        def spy(self, *args, _run=backend.run, **kwargs):
            ran.append(self.name)
            return _run(self, *args, **kwargs)

        monkeypatch.setattr(backend, "run", spy)
    chosen = ga.explain(
        graph, heads=6, kv_heads=3, head_dim=5, value_dim=7, dtype=torch.float64
    ).chosen
    ga.attention(*tensors(graph), graph)
    assert ran == [chosen]


@pytest.mark.parametrize("heads", [1, 64])
def test_small_graphs_are_not_asked_of_all_and_the_choice_is_the_same(heads, monkeypatch):
    request = choose.Request(heads=heads, kv_heads=heads, head_dim=32, value_dim=32)
    asked = []
    known = {name: choose.explain_choice(make(), request).chosen for name, make in GRAPHS.items()}
    explained = choose.explain_choice
    monkeypatch.setattr(
        choose, "explain_choice", lambda *given: asked.append(given) or explained(*given)
    )
    for name, make in GRAPHS.items():
        assert choose.choose(make(), request) == known[name], name
    assert len(asked) < len(known)


def test_a_second_graph_of_the_same_shape_is_another_graph():
    made = torch.Generator().manual_seed(3)
    edges = [torch.randperm(13 * 13, generator=made)[:41] for _ in range(5)]
    graphs = [ga.from_edge_index(torch.stack((e % 13, e // 13)), num_nodes=13) for e in edges]
    for dtype in (torch.float64, torch.float32):
        for graph in (*graphs, *reversed(graphs)):
            q, k, v = tensors(graph, dtype=dtype)
            for backend in BACKENDS:
                wanted = formula(q.double(), k.double(), v.double(), graph)[0]
                found = ga.attention(q, k, v, graph, backend=backend)
                assert found.dtype == dtype
                assert_near(found, wanted, 1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("backend", [backend for _, backend in taken(["repeated_edges"])])
def test_copies_of_an_edge_are_a_bias_of_log_multiplicity(backend, softcap):
    graph = GRAPHS["repeated_edges"]()
    inputs = tensors(graph)
    found = ga.attention(*inputs, graph, softcap=softcap, backend=backend, return_lse=True)
    once = graph | graph
    copies = torch.bincount(graph.target * 7 + graph.source, minlength=35)[
        once.target * 7 + once.source
    ]
    wanted = ga.attention(
        *inputs, once, copies.double().log(), softcap=softcap, backend=backend, return_lse=True
    )
    assert_near(found.output, wanted.output)
    assert_near(found.lse, wanted.lse)
    for mine, theirs in zip(
        gradients(found.output, inputs), gradients(wanted.output, inputs), strict=True
    ):
        assert_near(mine, theirs)
    merged = ga.attention(*inputs, once, softcap=softcap, backend=backend)
    assert not torch.allclose(merged, found.output, atol=1e-3)  # what a bool mask would give
