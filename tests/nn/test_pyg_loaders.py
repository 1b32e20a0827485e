"""PyG's attention convolutions as layers: outputs, weights and gradients in float64; and where edge
features go.
"""

from functools import partial

import pytest
import torch
from at_random import features, shaken
from attention_formula import BACKENDS, assert_near
from graph_table import GRAPHS
from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv, PointTransformerConv

import graphattn as ga
from graphattn.errors import OptionError

C, H, D, F = 12, 3, 5, 7
OPTIONS = {
    "plain": {},
    "edges, mean, slope": {"edge_dim": F, "concat": False, "negative_slope": 0.31},
    "edges, residual": {"edge_dim": F, "residual": True},
    "no bias": {"bias": False, "residual": True, "concat": False},
}


def compare(theirs, ours, inputs, conv, layer):
    """Values, gradients of inputs, and the sums of squares of those of all parameters, which the
    two name otherwise.
    """
    assert_near(ours, theirs)
    cotangent = features(*theirs.shape, seed=9).detach()
    found, wanted = (
        torch.autograd.grad(
            result,
            [*inputs, *(p for p in part.parameters() if p.requires_grad and p.numel())],
            cotangent,
        )
        for result, part in ((ours, layer), (theirs, conv))
    )
    for mine, other in zip(found[: len(inputs)], wanted, strict=False):
        assert_near(mine, other)
    assert found[0].abs().sum() > 1e-3
    squares = [
        sorted(float(x.square().sum()) for x in grads[len(inputs) :]) for grads in (found, wanted)
    ]
    torch.testing.assert_close(*map(torch.tensor, squares), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["listed_random", "listed_bipartite"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "make", [GATConv, GATv2Conv, partial(GATv2Conv, share_weights=True)], ids=["1", "2", "shared"]
)
def test_graph_attention_networks(make, options, name):
    options, graph = OPTIONS[options], GRAPHS[name]()
    shared = isinstance(make, partial)
    widths = C if graph.is_square else (C, C if shared else 8)
    conv = shaken(make(widths, D, heads=H, add_self_loops=False, **options))
    layer = ga.nn.GraphAttention.from_pyg(conv)
    inputs = [features(graph.num_sources, C)]
    inputs += [] if graph.is_square else [features(graph.num_targets, C if shared else 8, seed=1)]
    x = inputs[0] if graph.is_square else tuple(inputs)
    edge_attr = features(graph.num_edges, F, seed=2) if "edge_dim" in options else None
    inputs += [] if edge_attr is None else [edge_attr]
    theirs, (_, alpha) = conv(x, graph.edge_index, edge_attr, return_attention_weights=True)
    ours, weights = layer(x, graph, edge_attr=edge_attr, return_weights=True)
    assert_near(weights.alpha, alpha)
    compare(theirs, ours, inputs, conv, layer)


@pytest.mark.slow
def test_verify_judges_projections_that_are_one():
    layer = ga.nn.GraphAttention.from_pyg(GATConv(C, D, heads=H, add_self_loops=False)).double()
    assert layer.q_proj is layer.v_proj
    assert ga.verify(layer, ga.graphs.causal(7))


def test_self_loops_are_the_graphs():
    conv, x, graph = shaken(GATConv(C, D, heads=H)), features(17, C), GRAPHS["listed_random"]()
    theirs = conv(x, graph.edge_index)
    with pytest.raises(
        OptionError, match=r"set conv.add_self_loops = False, and pass graph.with_self_loops\(\)"
    ):
        ga.nn.GraphAttention.from_pyg(conv)
    conv.add_self_loops = False
    layer = ga.nn.GraphAttention.from_pyg(conv)
    compare(theirs, layer(x, graph.with_self_loops()), [x], conv, layer)


def perceptron(*widths):
    return nn.Sequential(nn.Linear(*widths[:2]), nn.ReLU(), nn.Linear(*widths[1:]))


@pytest.mark.parametrize(("pos_nn", "attn_nn"), [(False, False), (True, True), (True, False)])
@pytest.mark.parametrize("name", ["listed_random", "listed_bipartite"])
def test_point_transformers(pos_nn, attn_nn, name):
    graph = GRAPHS[name]()
    made = {
        "pos_nn": perceptron(3, 8, D) if pos_nn else None,
        "attn_nn": perceptron(D, 11, D) if attn_nn else None,
    }
    conv = shaken(
        PointTransformerConv(C if graph.is_square else (C, 8), D, add_self_loops=False, **made)
    )
    layer = ga.nn.GraphAttention.from_pyg(conv)
    inputs = [features(graph.num_sources, C), features(graph.num_sources, 3, seed=1)]
    if graph.is_square:
        theirs, ours = conv(*inputs, graph.edge_index), layer(inputs[0], graph, positions=inputs[1])
    else:
        inputs += [features(graph.num_targets, 8, seed=2), features(graph.num_targets, 3, seed=3)]
        theirs = conv((inputs[0], inputs[2]), (inputs[1], inputs[3]), graph.edge_index)
        ours = layer((inputs[0], inputs[2]), graph, positions=(inputs[1], inputs[3]))
    compare(theirs, ours, inputs, conv, layer)


def by_hand(layer, x, graph, attr, bias=None):
    """Heads (N, H, D) gathered with edge features where the layer says."""
    query, key, value = (
        p(x).unflatten(-1, (H, -1)) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    edge = layer.edge_proj(attr).unflatten(-1, (H, -1))
    key, value = key[graph.source], value[graph.source]
    key = key + edge * (layer.edge_to != "value")
    value = value + edge * (layer.edge_to != "key")
    score = (query[graph.target] * key).sum(-1) * layer.head_dim**-0.5
    if bias is not None:
        score = 1.5 * torch.tanh((score + bias) / 1.5)
    alpha = torch.zeros_like(score)
    for t in graph.target.unique():
        alpha[graph.target == t] = score[graph.target == t].softmax(0)
    return torch.zeros(len(x), H, value.shape[-1], dtype=x.dtype).index_add(
        0, graph.target, alpha[..., None] * value
    )


@pytest.mark.parametrize("edge_to", ["key", "value", "both"])
@pytest.mark.parametrize("backend", ["edges", "message_passing"])
@pytest.mark.parametrize("capped", [False, True])
def test_edge_features_join_what_they_should_and_a_bound_may_hold_the_bias(
    edge_to, backend, capped
):
    graph, options = GRAPHS["listed_random"](), {"softcap": 1.5, "cap_bias": True} if capped else {}
    made = partial(
        ga.nn.GraphAttention, H * D, H, edge_dim=F, out_proj=False, backend=backend, **options
    )
    layer = shaken(made(edge_to=edge_to))
    x, attr = features(graph.num_nodes, H * D), features(graph.num_edges, F, seed=1)
    bias = features(graph.num_edges, H, seed=2) if capped else None
    ours, theirs = (
        layer(x, graph, edge_attr=attr, score_bias=bias),
        by_hand(layer, x, graph, attr, bias).flatten(-2),
    )
    inputs = [x, attr] + [bias] * capped
    compare(theirs, ours, inputs, layer, layer)


def near_sources(score, target, num_targets, *, source, edge_attr):
    return torch.sigmoid(score) * (1 + (source % 3).to(score.dtype))[:, None] * edge_attr[..., :1]


def weighted(score, target, num_targets, edge_attr):
    return torch.sigmoid(score) * edge_attr[..., :1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"normalize": weighted}, {"edge_to": "key"}, {"edge_to": "value"}]
)
def test_verify_judges_them(options):
    layer = ga.nn.GraphAttention(
        H * D, H, edge_dim=F, softcap=2.0, cap_bias=True, **options
    ).double()
    report = ga.verify(layer, GRAPHS["listed_random"]())
    assert report.ok, str(report)
    assert ga.verify(
        ga.nn.GraphAttention(H * D, H, score="gat", edge_dim=F, **options).double(),
        ga.graphs.causal(7),
    )


def test_a_normalisation_sees_the_sources_of_every_backend():
    graph, x = GRAPHS["listed_random"](), features(17, H * D)
    attr = features(graph.num_edges, F, seed=1)
    layer = shaken(ga.nn.GraphAttention(H * D, H, edge_dim=F, normalize=near_sources))
    results = []
    for backend in ("edges", "message_passing"):
        layer.backend = backend
        results.append(layer(x, graph, edge_attr=attr, return_weights=True))
    assert_near(results[0][0], results[1][0])
    assert_near(results[0][1].alpha, results[1][1].alpha)
    layer.backend = "dense"
    with pytest.raises(ga.errors.BackendError, match="a function of all edges of a target"):
        layer(x, graph, edge_attr=attr)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"edge_to": "score", "edge_dim": 3}, "edge_to must be .*got .score"),
        ({"edge_to": "key"}, "requires edge_dim"),
        ({"edge_to": "key", "edge_dim": 3, "score": "cosine"}, "Cosine reads no edge features"),
        (
            {"edge_dim": 3, "score": "subtraction", "normalize": near_sources},
            "encodes by its delta",
        ),
    ],
)
def test_refusals(options, words):
    with pytest.raises(OptionError, match=words):
        ga.nn.GraphAttention(8, 2, **options)
    assert "dense" in BACKENDS


def test_a_bound_on_the_bias_needs_a_bound():
    with pytest.raises(OptionError, match="cap_bias=True requires softcap"):
        ga.nn.GraphAttention(H * D, H, cap_bias=True)
