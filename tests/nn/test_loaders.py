"""Layers of torch and PyG, loaded: their outputs, and the gradients of input and of every weight,
to 1e-12.
"""

import pytest
import torch
from at_random import features, shaken
from attention_formula import WEIGHING, assert_near
from graph_table import GRAPHS
from torch import nn
from torch_geometric.nn import GCNConv, TransformerConv

import graphattn as ga
from graphattn.errors import OptionError

C, H = 12, 3


def compare(theirs, ours, inputs, their_parameters, our_parameters):
    assert_near(ours, theirs)
    weight = features(*theirs.shape, seed=9).detach()
    wanted = torch.autograd.grad(theirs, [*inputs, *their_parameters], weight)
    found = torch.autograd.grad(ours, [*inputs, *our_parameters], weight)
    for mine, other in zip(found, wanted, strict=True):
        assert_near(mine, other)
    assert all(grad.abs().sum() > 1e-3 for grad in found[: len(inputs)])


def mha_parameters(mha):
    """Their query, key, value and output parameters, as views that autograd can be asked about."""
    weights = (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight)
    return [
        p
        for p in (
            mha.in_proj_weight,
            *weights,
            mha.in_proj_bias,
            mha.out_proj.weight,
            mha.out_proj.bias,
            mha.bias_k,
            mha.bias_v,
        )
        if p is not None
    ]


def our_mha_gradients(layer, mha, grads):
    """Our gradients, put together as theirs are."""
    joined = (
        [torch.cat([grads[f"{p}_proj.weight"] for p in "qkv"])]
        if mha.in_proj_weight is not None
        else []
    )
    joined += [] if joined else [grads[f"{p}_proj.weight"] for p in "qkv"]
    if mha.in_proj_bias is not None:
        joined.append(torch.cat([grads[f"{p}_proj.bias"] for p in "qkv"]))
    joined += [grads[f"out_proj.{p}"] for p in ("weight", "bias") if f"out_proj.{p}" in grads]
    if mha.bias_k is not None:
        joined += [grads[f"normalize.{p}"].view(1, 1, -1) for p in ("key", "value")]
    return joined


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "name", ["full", "causal", "listed_random", "listed_bipartite", "unused_sources"]
)
@pytest.mark.parametrize(
    ("options", "backend"),
    [({}, backend) for backend in WEIGHING]
    + [
        (options, "auto")
        for options in (
            {"bias": False},
            {"kdim": 7, "vdim": 11},
            {"kdim": 7, "bias": False},
            {"add_zero_attn": True},
            {"add_bias_kv": True},
            {"add_bias_kv": True, "add_zero_attn": True, "kdim": 7},
        )
    ],
)
def test_from_torch(options, name, backend):
    graph = GRAPHS[name]()
    if name == "listed_bipartite" or "kdim" in options:
        graph = ga.graphs.cross(13, 19) & graph if name == "listed_bipartite" else graph
    mha = shaken(nn.MultiheadAttention(C, H, batch_first=True, **options))
    layer = ga.nn.GraphAttention.from_torch(mha)
    layer.backend = backend
    x = features(2, graph.num_targets, C)
    context = (
        features(2, graph.num_sources, mha.kdim, seed=1),
        features(2, graph.num_sources, mha.vdim, seed=2),
    )
    alone = graph.in_degree == 0
    # they make NaN of an empty row
    blocked = ga.convert.to_mask(graph, "mha").masked_fill(alone[:, None], False)
    theirs, their_weights = mha(x, *context, attn_mask=blocked, average_attn_weights=False)
    ours, weights = layer(x, graph, context=context, return_weights=True)
    keep = ~alone
    theirs, ours = theirs[:, keep], ours[:, keep]
    assert_near(ours, theirs)
    their_weights = their_weights[..., : graph.num_sources]  # the last may be of add_zero_attn
    assert_near(weights.dense()[:, :, keep], their_weights[:, :, keep])
    cotangent = features(*theirs.shape, seed=9).detach()
    wanted = torch.autograd.grad(theirs, [x, *context, *mha_parameters(mha)], cotangent)
    trained = [(name, p) for name, p in layer.named_parameters() if p.requires_grad]
    names, parameters = zip(*trained, strict=True)
    found = torch.autograd.grad(ours, [x, *context, *parameters], cotangent)
    joined = our_mha_gradients(layer, mha, dict(zip(names, found[3:], strict=True)))
    for mine, other in zip((*found[:3], *joined), wanted, strict=True):
        assert_near(mine, other)
        assert mine.abs().sum() > 1e-3


def test_a_target_without_an_edge_reads_the_learned_source_alone():
    mha = shaken(nn.MultiheadAttention(C, H, batch_first=True, add_bias_kv=True))
    layer = ga.nn.GraphAttention.from_torch(mha)
    graph = GRAPHS["isolated_targets"]()
    x = features(2, graph.num_targets, C)
    memory = features(2, graph.num_sources, C, seed=1)
    assert (graph.in_degree == 0).any()
    theirs = mha(x, memory, memory, attn_mask=ga.convert.to_mask(graph, "mha"))[0]
    for backend in WEIGHING:
        layer.backend = backend
        assert_near(layer(x, graph, context=memory), theirs)
    with pytest.raises(OptionError, match="neither messages that are observed nor verify have it"):
        ga.verify(layer, graph)


def test_dropout_drops_the_learned_source_too():
    mha = shaken(nn.MultiheadAttention(C, H, batch_first=True, add_bias_kv=True, dropout=1.0))
    layer = ga.nn.GraphAttention.from_torch(mha.train())
    x = features(5, C)
    assert_near(layer(x, ga.graphs.full(5)), layer.out_proj.bias.expand(5, C))


def test_from_torch_key_padding_is_sources_removed():
    mha = shaken(nn.MultiheadAttention(C, H, batch_first=True))
    x, memory = features(1, 5, C), features(1, 7, C, seed=1)
    padded = torch.tensor([False, True, False, False, True, True, False])
    theirs = mha(x, memory, memory, key_padding_mask=padded[None])[0]
    graph = ga.from_mask(~padded.expand(5, 7))
    assert_near(ga.nn.GraphAttention.from_torch(mha)(x, graph, context=memory), theirs)


def test_from_torch_takes_device_dtype_mode_and_dropout_along():
    mha = nn.MultiheadAttention(C, H, dropout=0.25, dtype=torch.bfloat16).eval()
    layer = ga.nn.GraphAttention.from_torch(mha)
    assert layer.dropout == 0.25
    assert not layer.training
    assert {p.dtype for p in layer.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        layer.q_proj.weight.zero_()  # a copy
    assert mha.in_proj_weight.abs().sum() > 0


def test_from_torch_refusals():
    with pytest.raises(OptionError, match=r"expected MultiheadAttention, and none"):
        ga.nn.GraphAttention.from_torch(nn.Linear(3, 3))


PYG = {
    "plain": {},
    "mean of heads": {"concat": False},
    "edges": {"edge_dim": 7},
    "edges, mean": {"edge_dim": 7, "concat": False},
    "beta": {"beta": True},
    "beta, mean": {"beta": True, "concat": False},
    "no root": {"root_weight": False},
    "no root, mean, beta": {"root_weight": False, "concat": False, "beta": True},
    "no bias": {"bias": False, "beta": True},
}


@pytest.mark.parametrize("bipartite", [False, True])
@pytest.mark.parametrize(
    ("options", "backend"),
    [
        (options, backend)
        for options in PYG
        # they agree: attention/test_semantics.py
        for backend in (WEIGHING if options == "beta, mean" else ("auto",))
    ],
)
def test_from_pyg(options, backend, bipartite):
    options = PYG[options]
    graph = GRAPHS["listed_bipartite"]() if bipartite else GRAPHS["listed_random"]()
    widths = (C, 5) if bipartite else C
    conv = shaken(TransformerConv(widths, 3, heads=H, **options))
    layer = ga.nn.GraphAttention.from_pyg(conv)
    layer.backend = backend
    inputs = [features(graph.num_sources, C)]
    x = inputs[0]
    if bipartite:
        inputs.append(features(graph.num_targets, 5, seed=1))
        x = tuple(inputs)
    edge_attr = features(graph.num_edges, 7, seed=2) if "edge_dim" in options else None
    inputs += [] if edge_attr is None else [edge_attr]
    theirs, (edge_index, their_alpha) = conv(
        x, graph.edge_index, edge_attr, return_attention_weights=True
    )
    ours, weights = layer(x, graph.edge_index, edge_attr=edge_attr, return_weights=True)
    assert torch.equal(weights.graph.edge_index, edge_index)
    assert_near(weights.alpha, their_alpha)
    pairs = [
        (conv.lin_query, layer.q_proj),
        (conv.lin_key, layer.k_proj),
        (conv.lin_value, layer.v_proj),
    ]
    pairs += [(conv.lin_edge, layer.edge_proj)] * (edge_attr is not None)
    if layer.skip is not None:
        pairs += [(conv.lin_skip, layer.skip.root)] + [(conv.lin_beta, layer.skip.gate)] * (
            layer.skip.gate is not None
        )
    names = ["weight"] + ["bias"] * (conv.lin_query.bias is not None)
    each = [
        [
            getattr(m, n)
            for a in pairs
            for m in (a[side],)
            for n in names
            if getattr(m, n) is not None
        ]
        for side in (0, 1)
    ]
    compare(theirs, ours, inputs, *each)
    trained = sum(p.numel() for p in layer.parameters() if p.requires_grad)
    # PyG makes a lin_skip that nothing uses
    lost = [] if conv.root_weight else list(conv.lin_skip.parameters())
    assert trained == sum(p.numel() for p in conv.parameters()) - sum(p.numel() for p in lost)


def test_from_pyg_takes_mode_dtype_and_dropout_along():
    conv = TransformerConv(C, 5, heads=H, dropout=0.25).eval().bfloat16()
    layer = ga.nn.GraphAttention.from_pyg(conv)
    assert layer.dropout == 0.25
    assert not layer.training
    assert {p.dtype for p in layer.parameters()} == {torch.bfloat16}


def test_from_pyg_refusals():
    with pytest.raises(OptionError, match=r"expected TransformerConv or GATConv or .* got GCNConv"):
        ga.nn.GraphAttention.from_pyg(GCNConv(3, 3))
    with pytest.raises(OptionError, match="must have an input width, got -1; run it once first"):
        ga.nn.GraphAttention.from_pyg(TransformerConv(-1, 3))
    with pytest.raises(
        OptionError, match=r"got 'target_to_source' and 'add'; for the other direction use"
    ):
        ga.nn.GraphAttention.from_pyg(TransformerConv(3, 3, flow="target_to_source"))
    with pytest.raises(OptionError, match=r"got 'source_to_target' and 'mean'"):
        ga.nn.GraphAttention.from_pyg(TransformerConv(3, 3, aggr="mean"))

    class Other(TransformerConv):
        def message(self, value_j):
            return value_j

    with pytest.raises(OptionError, match="expected TransformerConv or GATConv or GATv2Conv"):
        ga.nn.GraphAttention.from_pyg(Other(3, 3))


def test_from_pyg_keeps_what_is_frozen_and_joins_a_gate_to_a_batch():
    conv = shaken(TransformerConv(C, 4, heads=H, beta=True))
    conv.lin_key.requires_grad_(False)
    layer, graph, x = ga.nn.GraphAttention.from_pyg(conv), ga.graphs.full(5), features(5, C)
    assert [name for name, p in layer.named_parameters() if not p.requires_grad] == [
        "k_proj.weight",
        "k_proj.bias",
    ]
    bias = torch.zeros(2, 25, 1, dtype=torch.float64)
    assert_near(layer(x, graph, score_bias=bias), layer(x, graph).expand(2, 5, -1))
