"""Norms of queries and keys, gates of outputs, and biases of some projections, by hand."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.nn import GraphAttention

C, H, N = 12, 3, 7
X = torch.randn(2, N, C, dtype=torch.float64)
GRAPH = ga.graphs.causal(N)


def made(**options):
    torch.manual_seed(0)
    layer = GraphAttention(C, H, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def by_hand(layer, norm_query=lambda x: x, norm_key=lambda x: x):
    query, key, value = (
        projection(X).unflatten(-1, (H, -1)).transpose(1, 2)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    heads = scaled_dot_product_attention(norm_query(query), norm_key(key), value, is_causal=True)
    y = heads.transpose(1, 2).flatten(-2)
    if layer.gate_proj is not None:
        y = layer.gate_proj(X).sigmoid() * y  # AlphaFold 2, supplementary algorithm 7, line 5
    return layer.out_proj(y)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize(
    "norm", [None, "rms", "layer", 1e-3, nn.LayerNorm(C // H, bias=False), nn.Tanh()]
)
def test_the_formula(norm, gate):
    layer = made(qk_norm=norm, gate=gate)
    norms = [x or nn.Identity() for x in (layer.q_norm, layer.k_norm)]
    found = layer(X, GRAPH)
    torch.testing.assert_close(found, by_hand(layer, *norms), rtol=1e-12, atol=1e-12)
    if norm is not None:
        assert layer.q_norm is not layer.k_norm
        assert not torch.allclose(found, by_hand(layer))


def test_norms_are_torchs():
    layer = made(qk_norm="layer")
    assert isinstance(layer.q_norm, nn.LayerNorm)
    assert isinstance(made(qk_norm="rms").k_norm, nn.RMSNorm)
    assert made(qk_norm=1e-3).q_norm.eps == 1e-3
    given = nn.Linear(4, 4)
    layer = GraphAttention(C, H, qk_norm=given)
    assert layer.q_norm is not given
    assert torch.equal(layer.q_norm.weight, given.weight)


@pytest.mark.parametrize("bias", [True, False, ("q",), ("k", "out"), ()])
def test_biases_are_those_named(bias):
    layer = made(bias=bias)
    names = {True: ("q", "k", "v", "out"), False: ()}.get(bias, bias)
    for name in ("q", "k", "v", "out"):
        assert (getattr(layer, f"{name}_proj").bias is not None) == (name in names)
    torch.testing.assert_close(layer(X, GRAPH), by_hand(layer), rtol=1e-12, atol=1e-12)


def test_what_is_none_of_them_is_refused():
    for wrong in ("q", ("query",), 3, [["q"]]):
        with pytest.raises(OptionError, match="bias must be True, False or some of"):
            GraphAttention(C, H, bias=wrong)
    for wrong in ("batch", True, nn.LayerNorm):
        with pytest.raises(
            OptionError, match='qk_norm must be "rms", "layer", an epsilon > 0 or a'
        ):
            GraphAttention(C, H, qk_norm=wrong)
    with pytest.raises(OptionError, match="qk_norm must be"):
        GraphAttention(C, H, qk_norm=-1.0)


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": ("q",)}, {"bias": False, "gate": True}, {"qk_norm": "layer"}, {"qk_norm": 0.5}],
)
def test_a_repr_makes_the_layer_again(options):
    layer = made(**options)
    again = eval(repr(layer))
    assert [*again.state_dict()] == [*layer.state_dict()]


def test_a_norm_that_no_word_makes_is_shown_as_it_is():
    for norm in (nn.RMSNorm(C // H), nn.LayerNorm(C // H, bias=False), nn.Tanh()):
        assert f"qk_norm={norm!r}" in repr(made(qk_norm=norm))


def test_a_layer_with_a_wrapped_projection_has_a_repr():
    layer = made()
    layer.q_proj = nn.Sequential(layer.q_proj)
    assert "bias=('k', 'v', 'out')" in repr(layer)


def test_row_attention_with_a_bias_of_pairs():
    """AlphaFold 2, supplementary algorithm 7: rows of an alignment, a bias of pairs of residues."""
    alignment = torch.randn(2, 3, N, C, dtype=torch.float64)
    pairs = torch.randn(2, N, N, 5, dtype=torch.float64, requires_grad=True)
    of_pairs = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, H, bias=False)).double()
    bias = of_pairs(pairs).movedim(-1, -3)[:, None]  # (B, 1, H, N, N), one for all rows
    layer = made(gate=True, bias=("out",))
    graph = ga.graphs.full(N)
    found = layer(alignment, graph, score_bias=graph.edge_values(bias))
    query, key, value = (
        projection(alignment).unflatten(-1, (H, -1)).transpose(-2, -3)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    weights = (query @ key.mT / (C // H) ** 0.5 + bias).softmax(-1)
    heads = (weights @ value).transpose(-2, -3).flatten(-2)
    wanted = layer.out_proj(layer.gate_proj(alignment).sigmoid() * heads)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    draw = torch.randn_like(found)
    gradients = [torch.autograd.grad(y, pairs, draw, retain_graph=True)[0] for y in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)
    assert float(gradients[0].abs().max()) > 0
