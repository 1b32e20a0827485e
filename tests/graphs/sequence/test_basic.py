"""Sequence and bipartite builders against their written rules, pair by pair."""

import pytest
import torch
from written_rules import assert_is

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphAttnError, GraphError

SIZES = (0, 1, 2, 7, 13)


@pytest.mark.parametrize("n", SIZES)
def test_full_and_self_loops(n):
    assert_is(graphs.full(n), n, n, lambda t, s: True)
    assert_is(graphs.self_loops(n), n, n, lambda t, s: t == s)


@pytest.mark.parametrize("targets", SIZES)
@pytest.mark.parametrize("sources", SIZES)
def test_causal_and_cross_on_rectangles(targets, sources):
    end, start = graphs.causal(targets, sources), graphs.causal(targets, sources, align="start")
    assert_is(end, targets, sources, lambda t, s: s <= t + sources - targets)
    assert_is(start, targets, sources, lambda t, s: s <= t)
    assert_is(graphs.cross(targets, sources), targets, sources, lambda t, s: True)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("length", [0, 1, 5, 13])
def test_prefix(n, length):
    if length > n:
        with pytest.raises(
            GraphError, match=f"below {n + 1}, one more than num_nodes, got {length}"
        ):
            graphs.prefix(n, length)
        return
    assert_is(graphs.prefix(n, length), n, n, lambda t, s: s <= t or s < length)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("window", [1, 3, 5, 17])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_sliding_window(n, window, dilation):
    backwards = graphs.sliding_window(n, window, causal=True, dilation=dilation)
    assert_is(backwards, n, n, lambda t, s: (t - s) in range(0, window * dilation, dilation))
    side = window // 2 * dilation
    both = graphs.sliding_window(n, window, causal=False, dilation=dilation)
    assert_is(both, n, n, lambda t, s: abs(t - s) <= side and (t - s) % dilation == 0)


def test_sliding_window_counts_the_target():
    for window in (1, 2, 4, 5):
        assert int(graphs.sliding_window(31, window, causal=True).in_degree.max()) == window
    assert int(graphs.sliding_window(31, 5, causal=False).in_degree.max()) == 5
    with pytest.raises(GraphError, match="4 tokens on each side are window=9"):
        graphs.sliding_window(31, 8, causal=False)


IDS = ([], [4], [0, 0, 1, 1, 1, 2], [2, 0, 2, 1, 0, 0, 7], [5] * 11)


@pytest.mark.parametrize("ids", IDS, ids=len)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_documents(ids, dtype):
    tensor = torch.tensor(ids, dtype=dtype)
    assert_is(
        graphs.documents(tensor, causal=False), len(ids), len(ids), lambda t, s: ids[t] == ids[s]
    )
    assert_is(
        graphs.documents(tensor, causal=True),
        len(ids),
        len(ids),
        lambda t, s: ids[t] == ids[s] and s <= t,
    )


def test_tokens_of_no_document_are_refused_with_a_graph_in_which_they_read_nothing():
    ids = torch.tensor([0, 0, 1, -1, 1, -1])
    with pytest.raises(
        GraphError,
        match=r"ids must be >= 0, got -1 for token 3; .* cross_documents\(ids, torch.where",
    ):
        graphs.documents(ids, causal=False)
    graph = graphs.cross_documents(ids, torch.where(ids < 0, ids.max() + 1, ids))
    assert_is(graph, 6, 6, lambda t, s: ids[t] == ids[s] and ids[t] >= 0)
    with pytest.raises(
        GraphError, match="target_ids and source_ids both have -1, which would read itself"
    ):
        graphs.cross_documents(ids, ids)


def test_lengths_in_place_of_ids_are_named_where_the_sizes_differ():
    lengths, x = torch.tensor([3, 4, 2]), torch.zeros(9, 2, 4)
    words = (
        r"; if its ids are lengths, 9 in total, use documents\(lengths=..., causal=(True|False)\)$"
    )
    for graph in (
        graphs.documents(lengths, causal=True),
        graphs.documents(ids=[3, 4, 2], causal=False),
    ):
        for use in (
            lambda g: g & graphs.causal(9),
            lambda g: graphs.causal(9) & g,
            lambda g: ga.attention(x, x, x, g),
            lambda g: ga.nn.GraphAttention(4, 2)(x[:, 0], g),
        ):
            with pytest.raises(GraphAttnError, match=words):
                use(graph)
            with pytest.raises(GraphAttnError, match=r"(?<!e\))$"):
                use(graphs.documents(torch.tensor([0, 1, 1]), causal=False))
            with pytest.raises(GraphAttnError, match=r"(?<!e\))$"):
                use(graphs.documents(lengths=(4, 4), causal=False))


def test_documents_by_lengths():
    for lengths in ((), (0,), (3,), (2, 0, 5, 1)):
        ids = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)], dtype=torch.int64)
        for causal in (False, True):
            given = graphs.documents(lengths=lengths, causal=causal)
            assert torch.equal(given.mask(), graphs.documents(ids, causal=causal).mask())


@pytest.mark.parametrize(
    ("n", "tokens"), [(0, ()), (1, ()), (1, (0,)), (7, (0,)), (7, (6, 2)), (7, tuple(range(7)))]
)
def test_global_tokens(n, tokens):
    assert_is(graphs.global_tokens(n, tokens), n, n, lambda t, s: t in tokens or s in tokens)
    assert graphs.global_tokens(n, tokens).equals(
        graphs.global_tokens(n, torch.tensor(tokens, dtype=torch.int64))
    )
