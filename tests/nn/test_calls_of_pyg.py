"""Calls as users of PyG write them: widths of -1, a pair without targets' features, ``size=``."""

from copy import deepcopy

import pytest
import torch
from torch_geometric.nn import GATConv

import graphattn as ga
from graphattn.errors import BackendError, GraphError, OptionError, ShapeError

EDGES = torch.tensor([[0, 1, 2, 6, 4, 3], [0, 0, 1, 3, 3, 4]])
LAZY = {"qdim": -1, "kdim": -1, "vdim": -1, "edge_dim": -1, "gate": True, "root_weight": True}
WIDE = {**LAZY, "qdim": 3, "kdim": 7, "vdim": 7, "edge_dim": 2}


def call(layer, seed=0):
    drawn = torch.Generator().manual_seed(seed)
    x_s, x_t, edge = (torch.randn(n, w, generator=drawn) for n, w in ((7, 7), (5, 3), (6, 2)))
    return layer((x_s, x_t), EDGES, edge_attr=edge)


def test_widths_of_minus_one_are_those_of_the_first_call():
    layer = ga.nn.GraphAttention(10, 2, **LAZY)
    twin = deepcopy(layer)
    assert "qdim=-1" in repr(layer)
    output = call(layer)
    assert (layer.qdim, layer.kdim, layer.vdim, layer.edge_dim) == (3, 7, 7, 2)
    plain = ga.nn.GraphAttention(10, 2, **WIDE)
    assert repr(layer) == repr(plain)
    assert [type(part) for part in layer.modules()] == [type(part) for part in plain.modules()]
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(call(plain), output)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(call(twin), output)
    assert twin.kdim == 7
    for one in (layer, plain):
        call(one, seed=1).square().sum().backward()
        assert not one._forward_pre_hooks
    for mine, theirs in zip(layer.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
        assert mine.grad.abs().sum() > 0
    with pytest.raises(ShapeError):
        layer((torch.randn(7, 8), torch.randn(5, 3)), EDGES, edge_attr=torch.randn(6, 2))


def test_fresh_weights_of_a_lazy_layer_are_xaviers():
    layer = ga.nn.GraphAttention(8, 2, qdim=-1, kdim=-1, vdim=-1)
    layer(torch.randn(5, 500), ga.graphs.causal(5))
    bound = (6 / (500 + 8)) ** 0.5
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
        assert bound * 0.95 < projection.weight.abs().max() <= bound
        assert not projection.bias.any()


def test_a_lazy_layer_that_is_first_called_in_inference_mode_can_be_trained():
    layer = ga.nn.GraphAttention(10, 2, **LAZY)
    with torch.inference_mode():
        call(layer)
    call(layer, seed=1).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("backend", ["auto", "edges", "message_passing"])
def test_a_traced_layer_takes_other_edges(backend):
    layer = ga.nn.GraphAttention(8, 2, backend=backend)
    x = torch.randn(300, 8)
    # a target of one edge each, and one that reads all, whose sum takes more than one step
    single = torch.arange(300).repeat(2, 1)
    traced = torch.jit.trace(layer, (x, single), check_trace=False)
    hub = torch.stack((single[0], torch.zeros_like(single[0])))
    assert torch.allclose(traced(x, hub), layer(x, hub), atol=1e-6)
    assert not torch.allclose(traced(x, hub), layer(x, single), atol=1e-3)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("backend", ["dense", "tiles"])
def test_a_trace_of_edges_in_a_plan_is_refused(backend):
    layer = ga.nn.GraphAttention(8, 2, backend=backend)
    for edges in (EDGES, torch.eye(7).to_sparse()):
        with pytest.raises(BackendError, match=r"pass an edge_index .* or a graph"):
            torch.jit.trace(layer, (torch.randn(7, 8), edges), check_trace=False)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_trace_of_edges_that_are_chosen_is_refused():
    graph = ga.graphs.top_k(..., 2)
    with pytest.raises(BackendError, match="chooses its edges in every call"):
        torch.jit.trace(lambda x: ga.attention(x, x, x, graph), torch.randn(7, 2, 4))


@pytest.mark.parametrize("residual", [False, True])
def test_targets_without_features(residual):
    conv = GATConv((7, 3), 5, heads=2, add_self_loops=False, residual=residual).double()
    layer = ga.nn.GraphAttention.from_pyg(conv)
    x_s = torch.randn(7, 7, dtype=torch.double, requires_grad=True)
    if residual:
        with pytest.raises(OptionError, match="root_weight read the targets' features"):
            layer((x_s, None), EDGES, size=(7, 6))
        return
    expected = conv((x_s, None), EDGES, size=(7, 6))
    found = layer((x_s, None), EDGES, size=(7, 6))
    assert torch.allclose(found, expected, atol=1e-12)
    cotangent = torch.randn_like(found)
    grads = [torch.autograd.grad(y, x_s, cotangent)[0] for y in (found, expected)]
    assert torch.allclose(*grads, atol=1e-12)
    graph = ga.from_edge_index(EDGES, num_sources=7, num_targets=6)
    assert torch.equal(layer((x_s, None), graph), found)
    fewer = layer((x_s, None), EDGES[:, 1:], size=(7, 6))
    assert not torch.allclose(fewer[0], found[0])
    assert torch.equal(fewer[1:], found[1:])


@pytest.mark.parametrize("backend", ["dense", "tiles", "edges", "message_passing"])
def test_products_without_queries_are_means(backend):
    layer = ga.nn.GraphAttention(8, 2, qk_norm="layer", backend=backend)
    x_s = torch.randn(2, 7, 8)
    graph = ga.from_edge_index(EDGES, num_sources=7, num_targets=5)
    mean = graph.mask().float() / graph.in_degree.clamp(min=1)[:, None]
    expected = layer.out_proj(mean @ layer.v_proj(x_s))
    assert torch.allclose(layer((x_s, None), graph), expected, atol=1e-6)


def test_size_is_that_of_the_features_or_refused():
    layer = ga.nn.GraphAttention(8, 2)
    x_s, x_t = torch.randn(7, 8), torch.randn(5, 8)
    assert torch.equal(layer((x_s, x_t), EDGES, size=(7, 5)), layer((x_s, x_t), EDGES))
    with pytest.raises(ShapeError):
        layer((x_s, x_t), EDGES, size=(7, 6))
    with pytest.raises(
        GraphError,
        match=r"a graph beside size=\(5, 7\) must have 7 targets and 5 sources, got AttentionGraph",
    ):
        layer((x_s, x_t), ga.graphs.cross(5, 7), size=(5, 7))
    with pytest.raises(OptionError, match=r"pass size=\(S, T\)"):
        layer((x_s, None), EDGES)
