"""Projections are called as modules: hooks, adapters and parametrisations of any of them count."""

import pytest
import torch
from every_model import MODELS, small
from torch import nn
from torch.nn.utils import parametrize

import graphattn as ga
from graphattn.nn import GraphAttention

GRAPH = ga.graphs.icosphere(0)
X, EDGES = torch.randn(12, 16), torch.randn(60, 3)
NAMES = ("q_proj", "k_proj", "v_proj", "out_proj", "edge_proj")


class Twice(nn.Module):
    """An adapter with the members of what it wraps."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.weight, self.bias = inner.weight, inner.bias

    def forward(self, x):
        return 2 * self.inner(x)


class Negative(nn.Module):
    def forward(self, weight):
        return -weight


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "retrieve"])
def test_every_linear_of_a_model_is_called(name):
    model, inputs = small(name)
    silent = set()
    for label, module in model.named_modules():
        if isinstance(module, nn.Linear):
            silent.add(label)
            module.register_forward_hook(lambda *_, label=label: silent.discard(label))
    model(*inputs)
    assert not silent


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("backend", ["edges", "message_passing"])
@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_around_a_projection_is_the_projection_of_its_weights(name, backend, heads):
    """Twice the projection is the projection of twice the parameters, which nothing wraps."""
    torch.manual_seed(0)
    layer = GraphAttention(16, 4, num_kv_heads=heads, edge_dim=3, backend=backend).double()
    given = {"edge_attr": EDGES.double()}
    plain = layer(X.double(), GRAPH, **given)
    projection = getattr(layer, name)
    setattr(layer, name, Twice(projection))
    wrapped = layer(X.double(), GRAPH, **given)
    setattr(layer, name, projection)
    with torch.no_grad():
        for parameter in projection.parameters():
            parameter *= 2
    expected = layer(X.double(), GRAPH, **given)
    torch.testing.assert_close(wrapped, expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(wrapped, plain)


@pytest.mark.parametrize("name", NAMES)
def test_a_parametrised_weight_is_used(name):
    layer = GraphAttention(16, 4, edge_dim=3)
    before = layer(X, GRAPH, edge_attr=EDGES)
    parametrize.register_parametrization(getattr(layer, name), "weight", Negative())
    assert not torch.allclose(layer(X, GRAPH, edge_attr=EDGES), before)
    parametrize.remove_parametrizations(getattr(layer, name), "weight", leave_parametrized=False)
    torch.testing.assert_close(layer(X, GRAPH, edge_attr=EDGES), before)


def test_a_bias_of_edge_features_is_added():
    """A bias that keys and values of all edges have is one of the values alone."""
    layer = GraphAttention(16, 4, edge_dim=3)
    before = layer(X, GRAPH, edge_attr=EDGES)
    weight = layer.edge_proj.weight
    layer.edge_proj = nn.Linear(3, 16)
    layer.edge_proj.weight = weight
    nn.init.constant_(layer.edge_proj.bias, 5.0)
    expected = before + layer.out_proj.weight @ layer.edge_proj.bias
    torch.testing.assert_close(layer(X, GRAPH, edge_attr=EDGES), expected, rtol=1e-4, atol=1e-4)


def test_weights_of_edges_are_features_of_width_one():
    layer, weights = GraphAttention(16, 4, edge_dim=1), EDGES[:, 0]
    found = layer(X, GRAPH, edge_attr=weights)
    assert torch.equal(found, layer(X, GRAPH, edge_attr=weights[:, None]))
    assert not torch.allclose(found, layer(X, GRAPH, edge_attr=-weights))


def test_gradients_of_a_hooked_projection_are_those_without_hooks():
    found = []
    for hooked in (False, True):
        torch.manual_seed(0)
        layer = GraphAttention(16, 4, edge_dim=3).double()
        if hooked:
            layer.edge_proj.register_full_backward_hook(lambda *_: found.append("called"))
        given = EDGES.double().requires_grad_()
        layer(X.double(), GRAPH, edge_attr=given).square().sum().backward()
        found.append((given.grad, layer.edge_proj.weight.grad))
    assert found[1] == "called"
    torch.testing.assert_close(found[2], found[0], rtol=1e-12, atol=1e-12)


def test_a_hook_of_all_modules_sees_every_projection():
    layer = GraphAttention(16, 4, edge_dim=3)
    called = []
    hook = nn.modules.module.register_module_forward_hook(lambda part, *_: called.append(part))
    try:
        layer(X, GRAPH, edge_attr=EDGES)
    finally:
        hook.remove()
    assert set(called) >= {getattr(layer, name) for name in NAMES}
