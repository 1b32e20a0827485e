"""Biases of parts of a graph: one of two graphs in a union, or of what stands beside a choice."""

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, ShapeError

B, H, KV, D, T, M, K = 2, 6, 3, 5, 7, 11, 3
S = M + T
MEMORY = ga.from_rule(lambda t, s: s < M, T, S)
NEAR = ga.from_rule(lambda t, s: (s >= M) & (s - M <= t), T, S)
CHOICE = ga.graphs.top_k(..., K, within=MEMORY) | NEAR


def tensors(*parts, heads=H):
    drawn = torch.Generator().manual_seed(0)
    shapes = [(B, T, H, D), (B, S, KV, D), (B, S, KV, D)]
    shapes += [(part.num_edges, heads) for part in parts]
    return [
        torch.randn(shape, generator=drawn, dtype=torch.float64, requires_grad=True)
        for shape in shapes
    ]


def same(one, other, inputs):
    assert torch.allclose(one, other, rtol=0, atol=1e-12)
    cotangent = torch.randn(one.shape, dtype=torch.float64)
    both = [torch.autograd.grad(y, inputs, cotangent) for y in (one, other)]
    for mine, theirs in zip(*both, strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)
        assert mine.abs().sum() > 0


@pytest.mark.parametrize("heads", [1, H])
@pytest.mark.parametrize("backend", ["auto", "dense", "tiles", "edges", "message_passing"])
def test_parts_of_a_union(backend, heads):
    loops = ga.from_edge_index(torch.tensor([[12, 3, 16], [1, 2, 5]]), num_sources=S, num_targets=T)
    graph = MEMORY | NEAR
    query, key, value, of_near, of_loops = tensors(NEAR, loops, heads=heads)
    parts = {NEAR: of_near, loops: of_loops}
    found = ga.attention(query, key, value, graph, score_bias=parts, backend=backend)
    dense = NEAR.dense_values(of_near) + loops.dense_values(of_loops)
    bias = graph.edge_values(dense)
    expected = ga.attention(query, key, value, graph, score_bias=bias, backend=backend)
    same(found, expected, [query, key, value, of_near, of_loops])
    without = ga.attention(query, key, value, graph, score_bias={NEAR: of_near}, backend=backend)
    assert torch.equal(without[:, 3], found[:, 3])
    assert not torch.allclose(without[:, 5], found[:, 5])


@pytest.mark.parametrize("heads", [1, H])
@pytest.mark.parametrize("options", [{}, {"backend": "dense"}, {"return_weights": True}])
def test_a_part_beside_a_choice(options, heads):
    query, key, value, of_near = tensors(NEAR, heads=heads)
    union = MEMORY | NEAR
    bias = union.edge_values(NEAR.dense_values(of_near))
    outputs = [
        ga.attention(query, key, value, CHOICE, score_bias=b, **options)
        for b in ({NEAR: of_near}, bias)
    ]
    if options.get("return_weights"):
        outputs = [output.output for output in outputs]
    same(*outputs, [query, key, value, of_near])
    plain = ga.attention(query, key, value, CHOICE)
    assert not torch.allclose(outputs[0], plain)


def test_a_module_makes_the_bias_of_a_part():
    query, key, value = tensors()
    graph = MEMORY | NEAR
    bias = ga.nn.T5Bias(H).double()
    outputs = [
        ga.attention(query, key, value, graph, score_bias={NEAR: numbers})
        for numbers in (bias, bias(NEAR), None)
    ]
    assert torch.equal(*outputs[:2])
    assert not torch.equal(*outputs[1:])


def test_a_bias_of_each_example():
    query, key, value, of_near = tensors(NEAR)
    of_each = torch.stack((of_near, 2 * of_near))
    found = ga.attention(query, key, value, CHOICE, score_bias={NEAR: of_each})
    for b in range(B):
        alone = ga.attention(query[b], key[b], value[b], CHOICE, score_bias={NEAR: of_each[b]})
        assert torch.allclose(found[b], alone, atol=1e-12)


@pytest.mark.parametrize("graph", [CHOICE, MEMORY | NEAR], ids=["chosen", "union"])
def test_layers_and_edge_terms_take_parts(graph):
    union = MEMORY | NEAR
    layer = ga.nn.GraphAttention(12, 2, edge_dim=3).double()
    x, memory = torch.randn(T, 12).double(), torch.randn(S, 12).double()
    edge_attr = torch.randn(union.num_edges, 3).double()
    of_near = torch.randn(NEAR.num_edges, 2).double()
    bias = union.edge_values(NEAR.dense_values(of_near))
    outputs = [
        layer(x, graph, context=memory, edge_attr=edge_attr, score_bias=b)
        for b in ({NEAR: of_near}, bias)
    ]
    assert torch.allclose(*outputs, atol=1e-12)
    query, key, value, of_near = tensors(NEAR)
    bias = union.edge_values(NEAR.dense_values(of_near))
    terms = torch.randn(2, union.num_edges, H, D).double()
    outputs = [
        ga.attention(query, key, value, graph, score_bias=b, edge_key=terms[0], edge_value=terms[1])
        for b in ({NEAR: of_near}, bias)
    ]
    same(*outputs, [query, key, value, of_near])


def test_refusals():
    query, key, value, of_near = tensors(NEAR)
    with pytest.raises(GraphError, match=r"has the edge 11 -> 0, which .* lacks"):
        ga.attention(query, key, value, MEMORY, score_bias={NEAR: of_near})
    small = ga.graphs.causal(T)
    with pytest.raises(GraphError, match="a part of AttentionGraph"):
        ga.attention(query, key, value, CHOICE, score_bias={small: of_near})
    with pytest.raises(ShapeError, match=f"score_bias must have shape .{NEAR.num_edges},"):
        ga.attention(query, key, value, CHOICE, score_bias={NEAR: of_near[1:]})
    with pytest.raises(ShapeError, match="score_bias as a dict"):
        ga.attention(query, key, value, ga.nn.EdgeTensors(NEAR), score_bias={NEAR: of_near})


@pytest.mark.parametrize("parts", [{}, {NEAR: None}], ids=["no part", "no bias"])
@pytest.mark.parametrize("graph", [CHOICE, MEMORY | NEAR], ids=["chosen", "union"])
def test_no_bias_of_any_part(graph, parts):
    query, key, value = tensors()
    found = ga.attention(query, key, value, graph, score_bias=parts)
    assert torch.equal(found, ga.attention(query, key, value, graph))


SHORT = NEAR & ga.from_rule(lambda t, s: t > 0, T, S)


@pytest.mark.parametrize("examples", [(NEAR, SHORT), (NEAR, NEAR)], ids=["edges", "examples"])
def test_parts_of_graphs_of_examples(examples):
    near = ga.PerExample(examples)
    graph = ga.PerExample([MEMORY | part for part in near.graphs])
    query, key, value, of_near = tensors(near)
    numbers = of_near
    if examples[0] is examples[1]:
        numbers = of_near.unflatten(0, (B, -1))
    found = ga.attention(query, key, value, graph, score_bias={near: numbers})
    parts = of_near.split([part.num_edges for part in near.graphs])
    alone = [
        ga.attention(
            query[b], key[b], value[b], graph.graphs[b], score_bias={near.graphs[b]: parts[b]}
        )
        for b in range(B)
    ]
    same(found, torch.stack(alone), [query, key, value, of_near])


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_parts_compile_whole():
    inputs = tensors(NEAR)
    graph = MEMORY | NEAR

    def call(query, key, value, of_near):
        return ga.attention(query, key, value, graph, score_bias={NEAR: of_near})

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    same(compiled(*inputs), call(*inputs), inputs)
