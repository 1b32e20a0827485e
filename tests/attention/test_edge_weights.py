"""EdgeWeights: unpacking, dense(), top(k)."""

import pytest
import torch
from attention_formula import BACKENDS, assert_near, tensors
from graph_table import GRAPHS

import graphattn as ga
from graphattn.errors import GraphError, OptionError

both = pytest.mark.parametrize("backend", BACKENDS)


def weights(graph, backend="auto", lead=(2,)):
    return ga.attention(*tensors(graph, lead), graph, backend=backend, return_weights=True).weights


@both
def test_it_unpacks_as_pyg_users_expect(backend):
    graph = GRAPHS["listed_bipartite"]()
    found = weights(graph, backend)
    edge_index, alpha = found
    assert torch.equal(edge_index, graph.edge_index)
    assert alpha is found.alpha
    assert alpha.shape == (2, 53, 6)
    assert repr(found) == "EdgeWeights(random bipartite: alpha 2x53x6, float64)"


@both
def test_what_was_not_asked_for_is_none(backend):
    graph = GRAPHS["causal"]()
    inputs = tensors(graph)
    assert isinstance(ga.attention(*inputs, graph, backend=backend), torch.Tensor)
    only_lse = ga.attention(*inputs, graph, backend=backend, return_lse=True)
    assert only_lse.weights is None
    only_weights = ga.attention(*inputs, graph, backend=backend, return_weights=True)
    assert only_weights.lse is None
    output, _, lse = only_lse
    assert_near(output, only_weights.output)
    assert lse.shape == (13, 6)


@both
@pytest.mark.parametrize("name", ["listed_bipartite", "isolated_targets", "longformer", "no_edges"])
def test_dense_weights_times_values_are_the_output(name, backend):
    graph = GRAPHS[name]()
    q, k, v = tensors(graph, (2,))
    found = ga.attention(q, k, v, graph, backend=backend, return_weights=True)
    dense = found.weights.dense()
    assert dense.shape == (2, 6, graph.num_targets, graph.num_sources)
    assert not dense[..., ~graph.mask()].any()
    assert_near((dense @ v.repeat_interleave(2, -2).transpose(-3, -2)).transpose(-3, -2), found.output)


def test_copies_of_an_edge_are_added_up():
    graph = GRAPHS["repeated_edges"]()
    found = weights(graph, lead=())
    total = found.alpha[torch.tensor([0, 2, 4])].sum(0)  # 0 -> 1, three times
    assert_near(found.dense()[:, 1, 0], total)
    assert_near(found.dense().sum(-1), torch.ones(6, 5, dtype=torch.float64).index_fill(1, torch.tensor([2]), 0.0))


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("name", ["listed_bipartite", "isolated_targets", "causal", "no_edges"])
def test_top(name, k):
    graph = GRAPHS[name]()
    found = weights(graph)
    top = found.top(k)
    assert top.source.shape == top.weight.shape == (2, graph.num_targets, 6, k)
    assert top.source.dtype == torch.int64
    dense = found.dense()
    for t in range(graph.num_targets):
        for batch, head in ((0, 1), (1, 5)):
            row = dense[batch, head, t]
            n = min(k, int(graph.in_degree[t]))
            strongest = torch.argsort(row, descending=True)[:n]
            assert top.source[batch, t, head].tolist() == [*strongest.tolist(), *[-1] * (k - n)]
            assert_near(top.weight[batch, t, head, :n], row[strongest])
            assert not top.weight[batch, t, head, n:].any()


def test_top_keeps_the_edge_order_among_equals():
    graph = ga.from_edge_index(torch.tensor([[4, 0, 2, 1], [0, 0, 0, 0]]), num_sources=5, num_targets=1)
    x = torch.ones(1, 1, 2)
    found = ga.attention(x, x.expand(5, 1, 2), x.expand(5, 1, 2), graph, return_weights=True).weights
    assert found.top(3).source.flatten().tolist() == [4, 0, 2]


@pytest.mark.parametrize("k", [0, -1, 2.0, None])
def test_top_needs_a_k(k):
    with pytest.raises(OptionError, match=f"k must be a whole number >= 1, got {k}"):
        weights(GRAPHS["causal"]()).top(k)


def test_dense_refuses_what_does_not_fit_in_memory():
    graph = ga.graphs.sliding_window(100_000, 1)
    found = ga.EdgeWeights(graph, torch.ones(100_000, 3))
    with pytest.raises(GraphError, match=r"dense\(\) of 100,000 x 100,000 .* use alpha, or top\(k\)"):
        found.dense()
    assert found.top(1).source[77_777].tolist() == [[77_777]] * 3


@pytest.mark.parametrize("k", [10**9, 10**18])
def test_top_refuses_a_table_that_does_not_fit(k):
    found = weights(GRAPHS["causal"]())
    with pytest.raises(GraphError, match=r"top\([\d,]+\) would take [\d,]+ bytes \(limit 4,294,967,296\)"):
        found.top(k)
