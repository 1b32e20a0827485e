"""Graphs of heads: one call equals a call for each head, and the union with a bias of -inf."""

import pytest
import torch

import graphattn as ga
from graphattn import PerHead, graphs
from graphattn.errors import GraphAttnError

torch.manual_seed(0)
GENERATOR = torch.Generator().manual_seed(5)
LISTED = ga.from_mask(torch.rand(12, 12, generator=GENERATOR) < 0.3)
ROWS, COLUMNS = graphs.window_partition((3, 4), (1, 4)), graphs.window_partition((3, 4), (3, 1))
SHUFFLED = ga.from_edge_index(
    LISTED.edge_index[:, torch.randperm(LISTED.num_edges, generator=GENERATOR)], num_nodes=12
)
FAMILIES = {
    "rules": PerHead((ROWS, COLUMNS)),
    "a rule and a list": PerHead((graphs.causal(12), SHUFFLED)),
    "lists": PerHead((SHUFFLED, LISTED.reverse())),
    "three, two the same": PerHead((ROWS, ROWS, SHUFFLED)),
    "with isolated targets": PerHead((LISTED - graphs.full(12), graphs.full(12))),
}


def inputs(heads, kv_heads, *lead, width=5):
    shapes = ((heads, width), (kv_heads, width), (kv_heads, 3))
    return [torch.randn(*lead, 12, *s, dtype=torch.float64, requires_grad=True) for s in shapes]


def dense(query, key, value, graph, bias=None):
    """Each head by itself, in plain torch."""
    heads, outputs, weights = query.shape[-2], [], []
    for h in range(heads):
        one = graph.graphs[h * len(graph.graphs) // heads]
        kv = h * key.shape[-2] // heads
        score = query[..., h, :] @ key[..., kv, :].transpose(-1, -2) * query.shape[-1] ** -0.5
        if bias is not None:
            union, table = graph.union(), torch.zeros(12, 12, dtype=torch.float64)
            score = score + table.index_put((union.target, union.source), bias[:, h])
        score = score.masked_fill(~one.mask(), -torch.inf)
        alpha = (
            torch.softmax(score, -1).nan_to_num(0.0)
            if bool(one.mask().any())
            else torch.zeros_like(score)
        )
        weights.append(alpha)
        outputs.append(alpha @ value[..., kv, :])
    return torch.stack(outputs, -2), torch.stack(weights, -3)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("groups", "kv_heads"), [(1, 1), (2, 2), (2, 1)])
def test_equals_each_head_by_itself_with_gradients(name, groups, kv_heads):
    graph = FAMILIES[name]
    heads = groups * len(graph.graphs)
    operands = inputs(heads, heads if kv_heads == 2 else kv_heads)
    found = ga.attention(*operands, graph, return_weights=True, return_lse=True)
    expected, weights = dense(*operands, graph)
    torch.testing.assert_close(found.output, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.weights.dense(), weights, rtol=0, atol=1e-12)
    assert found.weights.graph.equals(graph.union())
    assert found.lse.shape == (12, heads)
    seed = torch.randn_like(expected)
    for mine, theirs in zip(
        torch.autograd.grad(found.output, operands, seed),
        torch.autograd.grad(expected, operands, seed),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", ["auto", "dense", "edges", "tiles", "message_passing"])
def test_a_bias_in_the_order_of_the_union_and_a_batch(backend):
    graph = FAMILIES["a rule and a list"]
    operands, bias = (
        inputs(4, 2, 3),
        torch.randn(graph.num_edges, 4, dtype=torch.float64, requires_grad=True),
    )
    output = ga.attention(*operands, graph, score_bias=bias, backend=backend)
    expected, _ = dense(*operands, graph, bias)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    mine, theirs = (torch.autograd.grad(x.square().sum(), bias)[0] for x in (output, expected))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    one = ga.attention(*operands, graph, score_bias=bias[:, :1])
    assert torch.equal(one, ga.attention(*operands, graph, score_bias=bias[:, :1].expand(-1, 4)))


def test_key_heads_shared_unevenly_with_the_groups():
    # groups of 2 and 1 of 3 heads each, read 2 heads of key: 0 0 0 1 1 1
    graph = FAMILIES["three, two the same"]
    operands = inputs(6, 2)
    torch.testing.assert_close(
        ga.attention(*operands, graph), dense(*operands, graph)[0], rtol=0, atol=1e-12
    )
    crossing = PerHead((ROWS, COLUMNS, SHUFFLED))
    torch.testing.assert_close(
        ga.attention(*operands, crossing), dense(*operands, crossing)[0], rtol=0, atol=1e-12
    )


def test_graphs_of_heads_are_a_rule_where_every_head_has_one():
    rule, listed = ga.graphs.causal(5), ga.graphs.causal(5).materialise()
    assert ga.PerHead((rule, rule)).is_rule
    for pair in ((rule, listed), (listed, rule), (listed, listed)):
        assert not ga.PerHead(pair).is_rule


def test_one_removed_edge_is_seen_in_its_heads_alone():
    operands = inputs(4, 4)
    one = ga.from_mask(
        torch.ones(12, 12, dtype=torch.bool).index_put(
            (torch.tensor(3), torch.tensor(5)), torch.tensor(False)
        )
    )
    whole = ga.attention(*operands, PerHead((graphs.full(12), graphs.full(12))))
    cut = ga.attention(*operands, PerHead((graphs.full(12), one)))
    differs = (whole - cut).abs().amax(-1) > 1e-6
    assert differs.nonzero().tolist() == [[3, 2], [3, 3]]


def test_weights_know_which_head_has_an_edge():
    graph = PerHead((graphs.self_loops(12), graphs.causal(12)))
    weights = ga.attention(*inputs(2, 2), graph, return_weights=True).weights
    source, weight = weights.top(2)
    assert source[5, 0].tolist() == [5, -1]
    assert weight[5, 0].tolist() == [1, 0]
    assert (source[5, 1] >= 0).all()
    assert weights.present().sum(0).tolist() == [12, 78]


@pytest.mark.slow
def test_compiled_calls_on_graphs_of_heads_and_patterns():
    graph = FAMILIES["a rule and a list"]
    fresh = ga.PerHead(graph.graphs)  # of which nothing is known yet
    q, k, v = (x.detach().float() for x in inputs(4, 4, width=4))
    window = graphs.sliding_window(..., 3, causal=True)  # used in two sizes

    def call(q, k, v, b):
        short = ga.attention(q[:7], k[:7], v[:7], window)
        return (
            ga.attention(q, k, v, fresh, score_bias=b) + ga.attention(q, k, v, window) + short.sum()
        )

    compiled, bias = torch.compile(call, fullgraph=True), torch.randn(graph.num_edges, 4)
    expected = ga.attention(q, k, v, graph, score_bias=bias) + ga.attention(
        q, k, v, graphs.sliding_window(12, 3, causal=True)
    )
    expected = (
        expected + ga.attention(q[:7], k[:7], v[:7], graphs.sliding_window(7, 3, causal=True)).sum()
    )
    torch.testing.assert_close(compiled(q, k, v, bias), expected)


def test_verify_and_explain_take_graphs_of_heads():
    graph = FAMILIES["a rule and a list"]
    assert ga.verify(graph).ok
    shown = ga.explain(graph, heads=4)
    parts = [line for line in str(shown).splitlines() if line.startswith("heads ")]
    assert [line.split(":")[0] for line in parts] == ["heads 0 to 1", "heads 2 to 3"]
    assert [group["heads"] for group in shown.to_dict()["groups"]] == [[0, 2], [2, 4]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: ga.attention(x, x, x, FAMILIES["three, two the same"]),
            "3 graphs needs a multiple of 3 heads, got 4",
        ),
        (
            lambda x: ga.attention(x, x, x, graphs.window_partition(..., 2)),
            "axes of a grid, and got 12 nodes",
        ),
        (
            lambda x: ga.attention(x[:11], x, x, graphs.full(...)),
            "of 11 targets has 11 sources, expected 12",
        ),
        (
            lambda x: ga.attention(x, x, x, [[0, 1], [1, 2]]),
            "graph must be an AttentionGraph, got list",
        ),
        (
            lambda x: ga.attention(x, x, x, FAMILIES["rules"], score_bias=torch.zeros(3)),
            "score_bias must have shape",
        ),
        (lambda x: ga.explain(graphs.full(...)), "got Pattern; give it a size: pattern"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(GraphAttnError, match=message):
        call(torch.randn(12, 4, 5))
