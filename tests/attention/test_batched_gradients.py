"""Gradients of many outputs at once: ``jacobian(vectorize=True)``, and ``vmap`` of
``torch.autograd.grad``.
"""

import pytest
import torch
from attention_formula import BACKENDS, WEIGHING

import graphattn as ga

T, H, D = 7, 3, 4
GRAPH = ga.graphs.sliding_window(T, 3, causal=True)
OTHER = torch.randn(T, H, D, dtype=torch.float64)
LAYER = ga.nn.GraphAttention(H * D, H, edge_dim=5).double()
FEATURES = torch.randn(GRAPH.num_edges, 5, dtype=torch.float64)
BIAS = torch.randn(GRAPH.num_edges, H, dtype=torch.float64)


def _all_outputs(x, backend):
    found = ga.attention(
        x, x, OTHER, GRAPH, BIAS, softcap=2.0, return_lse=True, return_weights=True, backend=backend
    )
    return torch.cat((found.output.flatten(), found.lse.flatten(), found.weights.alpha.flatten()))


def _dropped(x, backend):
    torch.manual_seed(0)
    return ga.attention(x, x, OTHER, GRAPH, BIAS, dropout_p=0.3, backend=backend)


CALLS = {
    f"queries {name}": lambda x, b=name: ga.attention(x, OTHER, OTHER, GRAPH, backend=b)
    for name in BACKENDS
}
CALLS |= {
    f"keys, values {name}": lambda x, b=name: ga.attention(OTHER, x, x, GRAPH, backend=b)
    for name in BACKENDS
}
CALLS |= {f"every output {name}": lambda x, b=name: _all_outputs(x, b) for name in WEIGHING}
CALLS |= {f"dropout {name}": lambda x, b=name: _dropped(x, b) for name in BACKENDS}
CALLS["a layer with edge features"] = lambda x: LAYER(x.flatten(-2), GRAPH, edge_attr=FEATURES)
CALLS["edges by content"] = lambda x: ga.attention(x, OTHER, OTHER, ga.graphs.top_k(..., 3))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_all_outputs_at_once_are_those_of_one_at_a_time(name):
    x = torch.randn(T, H, D, dtype=torch.float64, requires_grad=True)
    output = CALLS[name](x)
    each = torch.eye(output.numel(), dtype=torch.float64).view(-1, *output.shape)
    wanted = torch.stack(
        [torch.autograd.grad(output, x, one, retain_graph=True)[0] for one in each]
    )
    assert wanted.abs().sum() > 0
    (batched,) = torch.autograd.grad(output, x, each, is_grads_batched=True, retain_graph=True)
    torch.testing.assert_close(batched, wanted)
    assert not batched.requires_grad
    mapped = torch.func.vmap(lambda one: torch.autograd.grad(output, x, one, retain_graph=True)[0])(
        each
    )
    torch.testing.assert_close(mapped, wanted)
    fast = torch.autograd.functional.jacobian(CALLS[name], x, vectorize=True)
    torch.testing.assert_close(fast.flatten(0, -4), wanted)
