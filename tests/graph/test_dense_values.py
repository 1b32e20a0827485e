"""Numbers of edges from matrices of all pairs, and back: dense biases of scores."""

import pytest
import torch
from graph_table import GRAPHS
from torch.nn.functional import scaled_dot_product_attention

import graphattn as ga
from graphattn.errors import ShapeError

H, D = 3, 4
SIMPLE = [name for name, make in GRAPHS.items() if make().num_edges]


def matrix_of(graph, *lead):
    draw = torch.Generator().manual_seed(0)
    shape = (*lead, H, graph.num_targets, graph.num_sources)
    return torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SIMPLE)
def test_values_are_those_at_the_edges_and_back(name):
    graph = GRAPHS[name]()
    matrix = matrix_of(graph, 2)
    values = graph.edge_values(matrix)
    assert torch.equal(values, matrix[..., graph.target, graph.source].transpose(-2, -1))
    torch.autograd.gradcheck(graph.edge_values, matrix_of(graph)[:1, :, :])
    assert torch.equal(graph.edge_values(matrix[0, 0]), values[0, :, 0])
    if graph.has_repeated_edges:
        return
    back = graph.dense_values(values, -torch.inf)
    assert torch.equal(back, matrix.masked_fill(~graph.mask(), -torch.inf))
    assert torch.equal(graph.dense_values(values[0, :, 0]), matrix[0, 0] * graph.mask())


def test_copies_of_an_edge_are_summed():
    graph = ga.from_edge_index(torch.tensor([[0, 0, 1], [1, 1, 0]]), num_nodes=2, duplicates="keep")
    values = torch.tensor([1.0, 2.0, 4.0])[torch.argsort(graph.target, stable=True)]
    dense = graph.dense_values(values)
    assert dense.sum() == 7
    assert dense[0, 0] == dense[1, 1] == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["full", "causal", "listed_random"])
@pytest.mark.parametrize("lead", [(), (2,), (2, 1)])
def test_a_dense_bias_is_sdpas_mask(name, lead):
    graph = GRAPHS[name]()
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, graph.num_nodes, H, D, dtype=torch.float64)
    bias = matrix_of(graph, *lead)
    if len(lead) > 1:
        query, key, value = (x[:, None].expand(-1, 5, -1, -1, -1) for x in (query, key, value))
    found = ga.attention(query, key, value, graph, score_bias=graph.edge_values(bias))
    mask = bias.masked_fill(~graph.mask(), -torch.inf)
    expected = scaled_dot_product_attention(
        *(x.transpose(-3, -2) for x in (query, key, value)), attn_mask=mask
    ).transpose(-3, -2)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    grads = [torch.autograd.grad(y.square().sum(), bias)[0] for y in (found, expected)]
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)


def test_a_full_graph_takes_the_matrix_itself_without_a_copy():
    graph = ga.graphs.full(5)
    bias = matrix_of(graph, 2)
    assert graph.edge_values(bias).data_ptr() == bias.data_ptr()
    x = torch.randn(2, 5, H, D, dtype=torch.float64)
    for backend in ("auto", "dense", "edges"):
        found = ga.attention(x, x, x, graph, score_bias=bias, backend=backend)
        expected = ga.attention(
            x, x, x, graph, score_bias=bias.flatten(-2).mT.contiguous(), backend=backend
        )
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        one = ga.attention(x, x, x, graph, score_bias=bias[:, :1], backend=backend)
        assert not torch.allclose(one, found)


def test_other_graphs_are_told_the_call():
    graph = ga.graphs.causal(5)
    x = torch.randn(2, 5, H, D, dtype=torch.float64)
    with pytest.raises(
        ShapeError, match=r"all \(5, 5\) pairs; pass graph.edge_values\(score_bias\)"
    ):
        ga.attention(x, x, x, graph, score_bias=matrix_of(graph, 2))
    with pytest.raises(
        ShapeError, match=r"matrix must have shape \(..., 5, 5\), got a Tensor \(3, 4, 5\)"
    ):
        graph.edge_values(torch.zeros(3, 4, 5))


def test_one_matrix_is_the_bias_of_all_heads_of_a_full_rule():
    graph = ga.graphs.full(5)
    x = torch.randn(2, 5, H, D, dtype=torch.float64)
    matrix = matrix_of(graph)[0]
    expected = ga.attention(x, x, x, graph, score_bias=graph.edge_values(matrix))
    assert torch.equal(ga.attention(x, x, x, graph, score_bias=matrix), expected)
    empty = x[:, :0]
    assert ga.attention(empty, empty, empty, ga.graphs.full(0), matrix[:0, :0]).shape == empty.shape


def test_values_that_do_not_fit_are_named_as_they_came():
    graph = ga.graphs.causal(3)
    examples = ga.PerExample([graph, ga.graphs.full(2)])
    for edges, E in ((graph, 6), (examples, 10)):
        for wrong in (torch.zeros(1, E), torch.zeros(5, 2), torch.tensor(1.0)):
            got = f"got {tuple(wrong.shape)}"
            with pytest.raises(ShapeError) as caught:
                edges.dense_values(wrong)
            assert str(caught.value) == (f"values must be ({E},) or (..., {E}, heads), {got}")
    values = torch.randn(10)
    assert torch.equal(examples.dense_values(values), examples.dense_values(values[:, None]))


def test_heads_and_examples():
    heads = ga.PerHead([ga.graphs.causal(5), ga.graphs.full(5), ga.graphs.causal(5).reverse()])
    matrix = matrix_of(heads)
    x = torch.randn(5, H, D, dtype=torch.float64)
    found = ga.attention(x, x, x, heads, score_bias=heads.edge_values(matrix))
    for head, graph in enumerate(heads.graphs):
        part = x[:, head : head + 1]
        alone = ga.attention(
            part, part, part, graph, score_bias=graph.edge_values(matrix[head : head + 1])
        )
        torch.testing.assert_close(found[:, head : head + 1], alone, rtol=1e-12, atol=1e-12)
    examples = ga.PerExample([ga.graphs.causal(5), ga.graphs.full(5).without_self_loops()])
    both = matrix_of(heads, 2)
    pair = torch.stack((x, -x))
    found = ga.attention(pair, pair, pair, examples, score_bias=examples.edge_values(both))
    for number, graph in enumerate(examples.graphs):
        one = pair[number]
        alone = ga.attention(one, one, one, graph, score_bias=graph.edge_values(both[number]))
        torch.testing.assert_close(found[number], alone, rtol=1e-12, atol=1e-12)
    back = examples.dense_values(examples.edge_values(both), -torch.inf)
    masks = torch.stack([graph.mask() for graph in examples.graphs])[:, None]
    assert torch.equal(back, both.masked_fill(~masks, -torch.inf))


def test_the_ends_of_the_edges_of_heads_and_of_examples():
    heads = ga.PerHead([ga.graphs.causal(5), ga.graphs.full(5)])
    matrix = matrix_of(heads)
    expected = matrix[..., heads.target, heads.source].mT
    assert torch.equal(heads.edge_values(matrix), expected)
    examples = ga.PerExample([ga.graphs.causal(5), ga.graphs.full(3)])
    both = matrix_of(heads, 2)
    number = torch.repeat_interleave(torch.tensor([15, 9]))
    expected = both.movedim(1, -1)[number, examples.target, examples.source]
    assert torch.equal(examples.edge_values(both), expected)


def test_heads_are_equal_one_by_one():
    heads = ga.PerHead([ga.graphs.causal(5), ga.graphs.full(5)])
    assert heads.equals(ga.PerHead([ga.graphs.causal(5).materialise(), ga.graphs.full(5)]))
    assert not heads.equals(ga.PerHead([ga.graphs.full(5), ga.graphs.causal(5)]))
    assert not heads.equals(ga.PerHead([ga.graphs.causal(5)]))


@pytest.mark.parametrize("lead", [(3,), (1, 3), (2, 1), (3, 3)])
def test_numbers_of_one_source_that_could_be_a_matrix_are_refused(lead):
    """(H, T, 1) of all pairs, or (B, E, 1) of edges."""
    graph, (query, key) = ga.graphs.cross(5, 1), (torch.randn(3, n, 3, 2) for n in (5, 1))
    bias = torch.randn(*lead, 5, 1)
    with pytest.raises(ShapeError, match="of each head") as refusal:
        ga.attention(query, key, key, graph, score_bias=bias)
    assert "graph.edge_values(score_bias)" in str(refusal.value)
    matrix = torch.randn(3, 5, 1)
    found = ga.attention(query, key, key, graph, score_bias=graph.edge_values(matrix))
    assert torch.equal(found, ga.attention(query, key, key, graph, score_bias=matrix[:, :, 0].T))


@pytest.mark.parametrize("lead", [(), (1,), (2,)])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("backend", ["dense", "tiles", "edges", "message_passing"])
def test_one_head_or_example_of_a_bias_is_shared_as_sdpas_mask_is(backend, heads, lead):
    graph = ga.graphs.causal(7)
    query, key, value = torch.randn(3, 2, 7, 3, 5, dtype=torch.float64)
    bias = torch.randn(*lead, graph.num_edges, heads, dtype=torch.float64, requires_grad=True)
    found = ga.attention(query, key, value, graph, score_bias=bias, backend=backend)
    mask = graph.dense_values(bias, fill=-torch.inf)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (query, key, value)), attn_mask=mask
    ).transpose(1, 2)
    torch.testing.assert_close(found, expected)
    cotangent = torch.randn_like(found)
    mine, theirs = (torch.autograd.grad(y, bias, cotangent)[0] for y in (found, expected))
    assert theirs.abs().sum() > 0
    torch.testing.assert_close(mine, theirs)
