"""Edges as tensors give what their graph gives, to functions and to layers, on the backends that
take them.
"""

import pytest
import torch
from graph_table import GRAPHS, KINDS

import graphattn as ga
from graphattn.errors import BackendError, GraphError
from graphattn.nn import EdgeTensors, GraphAttention


@pytest.mark.parametrize("name", KINDS)
def test_the_edges_are_those_of_the_graph(name):
    graph = GRAPHS[name]()
    edges = EdgeTensors(graph)
    assert torch.equal(edges.edge_index, graph.edge_index)
    sizes = (graph.num_targets, graph.num_sources, graph.num_edges)
    assert (edges.num_targets, edges.num_sources, edges.num_edges) == sizes
    q, k, v = (
        torch.randn(n, 2, 5, dtype=torch.float64, requires_grad=True)
        for n in (sizes[0], sizes[1], sizes[1])
    )
    found, wanted = (ga.attention(q, k, v, x, return_weights=True) for x in (edges, graph))
    grads = [
        torch.autograd.grad(x.output.sin().sum(), (q, k, v), allow_unused=True)
        for x in (found, wanted)
    ]
    assert torch.allclose(found.weights.dense(), wanted.weights.dense(), rtol=0, atol=1e-12)
    for mine, theirs in zip((found.output, *grads[0]), (wanted.output, *grads[1]), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"normalize": "sparsemax"}, {"normalize": "sink"}, {"edge_dim": 3}, {"score": "additive"}],
    ids=str,
)
def test_a_layer_takes_them(options):
    torch.manual_seed(0)
    graph, layer = GRAPHS["longformer"](), GraphAttention(8, 2, **options).double()
    x = torch.randn(graph.num_targets, 8, dtype=torch.float64)
    attr = (
        {"edge_attr": torch.randn(graph.num_edges, 3, dtype=torch.float64)}
        if "edge_dim" in options
        else {}
    )
    found, wanted = (layer(x, edges, **attr) for edges in (EdgeTensors(graph), graph))
    assert torch.allclose(found, wanted, rtol=0, atol=1e-12)


def test_what_does_not_take_them_says_so():
    edges, x = EdgeTensors(ga.graphs.causal(3)), torch.randn(3, 1, 2)
    with pytest.raises(BackendError, match="EdgeTensors run on edges or message_passing"):
        ga.attention(x, x, x, edges, backend="tiles")
    with pytest.raises(GraphError, match="graph must be an AttentionGraph, got EdgeTensors"):
        ga.explain(edges)
    with pytest.raises(GraphError, match="graph must be an AttentionGraph, got Tensor"):
        EdgeTensors(torch.ones(3, 3))
    assert repr(edges) == "EdgeTensors(3 sources -> 3 targets, 6 edges)"
