"""Edges chosen by content: equal to a plain loop, with gradients; nothing of the future; a removed
block is seen.
"""

import pickle
import re
from functools import cache

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError
from graphattn.graphs import (
    block_local,
    causal,
    clusters,
    full,
    global_tokens,
    routed,
    sliding_window,
    top_k,
)

B, T, H, KV, D = 2, 23, 4, 2, 5
OWN = block_local(..., 4, causal=True)
CENTROIDS = torch.randn(3, D, generator=torch.Generator().manual_seed(3))


def best_tokens(q, k, t):
    return (k[: t + 1] @ q[t]).topk(min(4, t + 1)).indices.tolist()


def best_blocks(q, k, t):
    """MoBA: the own block so far, and the two best before by the mean of their keys."""
    own = t // 4
    means = [k[4 * i : 4 * i + 4].mean(0) @ q[t] for i in range(own)]
    best = sorted(range(own), key=lambda i: -means[i])[:2]
    return [s for s in range(t + 1) if s // 4 in (own, *best)]


def same_route(q, k, t):
    route = (CENTROIDS.double() @ torch.cat((q[t : t + 1], k)).T).argmax(0)
    return [s for s in range(t + 1) if route[s + 1] == route[0]]


RECIPES = {
    "tokens": (top_k(..., 4, within=causal(...)), best_tokens),
    "blocks": (top_k(..., 2, blocks=4, within=causal(...) - OWN) | OWN, best_blocks),
    "routes": (routed(..., CENTROIDS) & causal(...), same_route),
}


def operands(*lead):
    random = torch.Generator().manual_seed(1)
    return [
        torch.randn(*lead, T, n, D, dtype=torch.float64, generator=random, requires_grad=True)
        for n in (H, KV, KV)
    ]


@cache
def by_loop(name):
    """Output and gradients of a plain loop."""
    given = operands(B)
    expected = loop(*given, RECIPES[name][1])
    return expected.detach(), torch.autograd.grad(expected.sin().sum(), given)


def loop(q, k, v, reads):
    rows = []
    for b in range(q.shape[0]):
        for t in range(T):
            for h in range(H):
                sources = reads(q[b, :, h].detach(), k[b, :, h * KV // H].detach(), t)
                key, value = (x[b, sources, h * KV // H] for x in (k, v))
                rows.append(
                    (key @ q[b, t, h] * D**-0.5).softmax(0) @ value if sources else 0 * q[b, t, h]
                )
    return torch.stack(rows).view(*q.shape)


@pytest.mark.parametrize("backend", ["auto", "dense", "tiles", "edges", "message_passing"])
@pytest.mark.parametrize("name", RECIPES)
def test_every_backend_equals_a_plain_loop_with_gradients(name, backend):
    given, (expected, gradients) = operands(B), by_loop(name)
    found = ga.attention(*given, RECIPES[name][0], backend=backend)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(torch.autograd.grad(found.sin().sum(), given), gradients, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
        assert float(theirs.abs().max()) > 0.1


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_depends_on_a_later_token_and_an_example_gives_what_it_gives_alone(name):
    graph, (q, k, v) = RECIPES[name][0], [x.detach() for x in operands(B)]
    out = ga.attention(q, k, v, graph)
    assert torch.allclose(ga.attention(q[1], k[1], v[1], graph), out[1], rtol=0, atol=1e-12)
    later = [x.clone() for x in (q, k, v)]
    for x in later:
        x[:, 14:] = torch.nan
    assert torch.equal(
        ga.attention(*later, graph, backend="edges")[:, :14].isfinite(),
        torch.ones(B, 14, H, D).bool(),
    )
    for x in later:
        x[:, 14:] = 3.0
    assert torch.allclose(ga.attention(*later, graph)[:, :14], out[:, :14], rtol=0, atol=1e-12)
    assert not ga.leaks([graph(T)])


def test_a_chosen_block_that_is_removed_is_seen():
    graph, (q, k, v) = RECIPES["blocks"][0], [x.detach() for x in operands(B)]
    weights = ga.attention(q, k, v, graph, return_weights=True).weights.dense()[0, 0, -1]
    block = int(weights[:20].view(5, 4).sum(-1).argmax())  # in use by the last token of head 0
    less = (
        graph - full(...)
        if block < 0
        else graph - ga.from_mask((torch.arange(T) // 4 == block).expand(T, T))
    )
    changed = (ga.attention(q, k, v, less) - ga.attention(q, k, v, graph)).abs().amax(-1) > 1e-6
    assert changed[0, -1, 0]
    assert not changed[:, : 4 * block].any()


def test_edges_of_a_call_are_those_of_the_weights():
    q, k, v = (x.detach() for x in operands(B))
    graph = RECIPES["tokens"][0](T)
    out = ga.attention(q, k, v, graph, return_weights=True, return_lse=True)
    chosen = graph.edges(q, k)
    side_by_side = chosen.mask().view(B * H, T, B * H, T).diagonal(dim1=0, dim2=2).movedim(-1, 0)
    assert torch.equal(side_by_side, out.weights.dense().flatten(0, 1) > 0)
    assert chosen.num_edges == int((out.weights.alpha > 0).sum())
    assert torch.allclose(
        out.lse, ga.attention(q, k, v, graph, return_lse=True).lse, rtol=0, atol=1e-12
    )
    assert graph.union().equals(causal(T))


def test_heads_share_what_a_score_of_their_own_chooses():
    q, k, v = (x.detach() for x in operands(B))
    shared = torch.randn(B, 2, T, 6, generator=torch.Generator().manual_seed(2))
    graph = top_k(..., 2, blocks=clusters(torch.arange(T) % 6), score=lambda query, key: shared)
    weights = ga.attention(q, k, v, graph, return_weights=True).weights.dense() > 0
    read = weights.new_zeros(B, 2, T, 6).scatter(-1, shared.topk(2).indices, True)[
        ..., torch.arange(T) % 6
    ]
    assert torch.equal(weights, read.repeat_interleave(2, 1))


def test_a_layer_takes_its_graph_biases_and_a_cache():
    torch.manual_seed(0)
    layer, x = (
        ga.nn.GraphAttention(8, 2, rotary=ga.nn.Rotary(4)).double(),
        torch.randn(B, T, 8).double(),
    )
    graph = RECIPES["blocks"][0]
    cache, out = ga.nn.KeyValueCache(), layer(x, graph)
    parts = [layer(part, graph, cache=cache) for part in x.split([9, 1, 1, 12], 1)]
    assert torch.allclose(torch.cat(parts, 1), out, rtol=0, atol=1e-12)
    bias = torch.zeros(graph(T).num_edges, 2).double()
    assert torch.allclose(layer(x, graph, score_bias=bias), out, rtol=0, atol=1e-12)
    assert not torch.allclose(
        layer(x, graph, score_bias=ga.nn.ALiBi(2)(graph(T)).double()), out, atol=1e-3
    )
    encoder = ga.models.Encoder(2, 8, 2).double()
    encoder(x, [graph, causal(...)], score_bias=ga.nn.T5Bias(2).double()).sum().backward()


def test_a_few_edges_of_a_key_without_a_number_leave_other_targets_as_they_are():
    q, k, v = (x.detach() for x in operands(B))
    k[0, 9] = torch.nan
    out = ga.attention(q, k, v, RECIPES["tokens"][0], backend="edges")
    assert out[0, :9].isfinite().all()
    assert out[0, 9:].isnan().all()
    assert out[1].isfinite().all()


def test_chosen_graphs_are_pickled_and_print():
    graph = RECIPES["blocks"][0](9)
    again = pickle.loads(pickle.dumps(graph))
    assert repr(again) == repr(graph)
    assert again.union().equals(graph.union())
    given = [x.detach()[:, :9] for x in operands(B)]
    assert torch.equal(ga.attention(*given, again), ga.attention(*given, graph))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: (causal(...) - top_k(..., 2))(5),
            "has no edges that may be chosen; join a choice by |, &, @",
        ),
        (lambda: top_k(..., 2, within=top_k(..., 3))(5), "has an option that is chosen, too"),
        (
            lambda: top_k(..., 2)(torch.zeros(5, 3)),
            "chooses its edges by queries and keys, not by positions",
        ),
        (lambda: (~top_k(..., 2))(5), "has no edges that may be chosen"),
        (lambda: top_k(..., 2).with_global_tokens(1)(5), "has no edges that may be chosen"),
        (
            lambda: top_k(..., 2, within=causal(7))(5),
            "within, or blocks, must have 5 targets and 5 sources, got AttentionGraph",
        ),
        (
            lambda: top_k(..., 2, blocks=clusters(torch.tensor([0, 2, 2])))(3),
            "block 1 has none; renumber them",
        ),
        (lambda: top_k(torch.zeros(2, 2), 1, blocks=2), "blocks of a number need within"),
        (lambda: top_k(torch.zeros(2, 2), 1, score=max), "score computes open scores"),
        (
            lambda: ga.attention(*[torch.zeros(5, 4, 3)] * 3, top_k(..., 1, score=lambda q, k: q)),
            "the result of score must have shape (1, h, 5, 5), got a Tensor (1, 5, 4, 3)",
        ),
        (
            lambda: ga.attention(*[torch.zeros(5, 4, 3)] * 3, routed(..., CENTROIDS)),
            "centroids must be (C, D), or (H",
        ),
        (lambda: ga.save(top_k(..., 2)(5), "choice.json"), "Chosen; pass its .union()"),
        (lambda: top_k(..., 1.5), "k must be a whole number, got 1.5"),
        (lambda: top_k(..., 2)(5) | causal(5), "joins no graph; join patterns, then give a size"),
        (lambda: causal(5) | top_k(..., 2)(5), "joins no graph; join patterns, then give a size"),
        (lambda: ~top_k(..., 2)(5), "joins no graph"),
        (lambda: ga.explain(top_k(..., 1)(5)), "graph must be an AttentionGraph"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(GraphError, match=re.escape(words)):
        make()


def test_other_operands_of_the_algebra_are_those_of_each_head():
    given = [x.detach() for x in operands(B)]
    sparse = (
        top_k(..., 1, within=causal(...))
        | sliding_window(..., 3, causal=True)
        | global_tokens(T, (0,)) & causal(...)
    )
    weights = ga.attention(*given, sparse, return_weights=True).weights.dense() > 0
    always = (sliding_window(T, 3, causal=True) | global_tokens(T, (0,)) & causal(T)).mask()
    assert (weights | ~always).all()
    assert (weights & ~always).any(-1).any(-1).all()  # every head adds edges of its own
    assert torch.equal((top_k(..., 1).k_hop(2))(T).union().mask(), torch.ones(T, T).bool())


@pytest.mark.parametrize("shape", [(2, 0), (0, 5), (3, 0, 5)])
@pytest.mark.parametrize(
    "graph", [top_k(..., 2), top_k(..., 2, blocks=4), routed(..., CENTROIDS)], ids=str
)
def test_no_nodes_and_no_examples_have_an_output_of_their_shape(graph, shape):
    x = torch.randn(*shape, H, D)
    assert ga.attention(x, x, x, graph).shape == x.shape
    assert ga.attention(x, x, x, graph, return_weights=True).output.shape == x.shape


SCORES = torch.zeros(B, H, T, T)


@pytest.mark.parametrize("wrong", [SCORES.bool(), SCORES.to(torch.float8_e4m3fn)])
def test_scores_that_are_no_real_numbers_are_refused(wrong):
    x = torch.randn(B, T, H, D)
    with pytest.raises(RuntimeError, match=r"support|implemented"):
        ga.attention(x, x, x, top_k(..., 2, score=lambda query, key: wrong))


def test_given_features_without_a_number_are_refused():
    good, bad = torch.ones(3, 2), torch.full((3, 2), torch.nan)
    for given, name in (((bad, good), "features"), ((good, bad), "centroids")):
        with pytest.raises(GraphError, match=f"{name} must be without NaN"):
            routed(*given)


def test_questions_of_a_choice_say_what_may_be_asked():
    with pytest.raises(
        GraphError, match=r"got Chosen; pass its \.union\(\), every edge that may be chosen"
    ):
        ga.facts(top_k(..., 2)(8))
    assert ga.facts(top_k(..., 2)(8).union()).num_edges == 64
    for name in ("mask", "edge_index", "in_degree"):
        with pytest.raises(
            AttributeError,
            match=rf"Chosen has no {name}.*use \.union\(\)\.{name}, .* \.edges\(query, key\)",
        ):
            getattr(top_k(..., 2)(8), name)
    assert "edges that may be chosen</code><br><img" in top_k(..., 2)(8)._repr_html_()


@pytest.mark.parametrize("shape", [(), (B,), (1,)], ids=["shared", "of each example", "of one"])
@pytest.mark.parametrize("heads", [1, H])
def test_a_bias_is_that_of_the_edges_that_are_chosen(shape, heads):
    """As on every edge that may be chosen, the others hidden; the bias alone changes no choice."""
    query, key, value = operands(B)
    graph = RECIPES["blocks"][0](T)
    random = torch.Generator().manual_seed(2)
    bias = torch.randn(*shape, graph.num_edges, heads, dtype=torch.float64, generator=random)
    bias.requires_grad_()
    found, wanted = (
        ga.attention(query, key, value, graph, score_bias=bias, backend=backend)
        for backend in ("auto", "dense")
    )
    assert torch.allclose(found, wanted, rtol=0, atol=1e-12)
    cotangent = torch.randn(found.shape, dtype=torch.float64, generator=random)
    leaves = (query, key, value, bias)
    pairs = zip(
        *(torch.autograd.grad(out, leaves, cotangent) for out in (found, wanted)), strict=True
    )
    assert all(torch.allclose(mine, other, rtol=0, atol=1e-12) for mine, other in pairs)
    plain = ga.attention(query, key, value, graph)
    assert not torch.allclose(found, plain)
