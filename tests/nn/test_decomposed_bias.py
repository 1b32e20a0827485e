"""Biases by rows and columns, against the formula and against SAM of transformers."""

import pytest
import torch
from torch import nn

import graphattn as ga
from graphattn.errors import OptionError, ShapeError
from graphattn.nn import DecomposedBias

H, D = 3, 4


def shaken(module):
    draw = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, generator=draw)
    return module.double()


def by_edges(bias, query, graph, grid):
    """Numbers of edges, each a product of the target's query and a row of each table."""
    total = 0
    target, source = (
        torch.stack(torch.unravel_index(x, grid)) for x in (graph.target, graph.source)
    )
    for axis, name in enumerate(bias._names()):
        table = getattr(bias, name)
        rows = table[target[axis] - source[axis] + bias.size[axis] - 1]
        total = total + (query[..., graph.target, :, :] * rows[:, None]).sum(-1)
    return total


@pytest.mark.parametrize("kv_heads", [H, 1])
@pytest.mark.parametrize(
    ("size", "make"),
    [
        ((3, 5), lambda: ga.graphs.full(15)),
        ((3, 5), lambda: ga.graphs.causal(15)),
        ((2, 3, 2), lambda: ga.graphs.random_neighbours(12, 5)),
    ],
)
def test_products_are_the_biases_of_edges(size, make, kv_heads):
    graph, bias = make(), shaken(DecomposedBias(size, D))
    draw = torch.Generator().manual_seed(1)
    query, key, value = (
        torch.randn(
            2, graph.num_nodes, h, D, generator=draw, dtype=torch.float64, requires_grad=True
        )
        for h in (H, kv_heads, kv_heads)
    )
    found = ga.attention(*bias(query, key), value, graph, scale=1.0)
    numbers = by_edges(bias, query, graph, size)
    expected = ga.attention(query, key, value, graph, score_bias=numbers)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    inputs = [query, key, value, *bias.parameters()]
    weight = torch.randn(found.shape, generator=draw, dtype=torch.float64)
    grads = [torch.autograd.grad((y * weight).sum(), inputs) for y in (found, expected)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
    assert not torch.allclose(found, ga.attention(query, key, value, graph))


def test_cells_of_a_larger_grid_have_the_places_of_their_own():
    graph = ga.graphs.window_partition((4, 6), cell=(2, 3))
    bias = shaken(DecomposedBias((2, 3), D))
    query, key, value = torch.randn(3, 24, H, D, dtype=torch.float64)
    found = ga.attention(*bias(query, key, grid=(4, 6)), value, graph, scale=1.0)
    numbers = by_edges(bias, query, graph, (4, 6))
    expected = ga.attention(query, key, value, graph, score_bias=numbers)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_sams_weights_load_and_give_its_output():
    modeling = pytest.importorskip("transformers.models.sam.modeling_sam")
    config = modeling.SamVisionConfig(hidden_size=12, num_attention_heads=3, image_size=80)
    theirs = shaken(modeling.SamVisionAttention(config, window_size=0)).eval()
    x = torch.randn(2, 5, 5, 12, dtype=torch.float64)
    expected = theirs(x)[0].flatten(1, 2)
    bias = DecomposedBias((5, 5), 4).double()
    state = {name: p for name, p in theirs.state_dict().items() if name.startswith("rel_pos")}
    bias.load_state_dict(state)
    query, key, value = theirs.qkv(x.flatten(1, 2)).unflatten(-1, (3, 3, 4)).unbind(-3)
    heads = ga.attention(*bias(query, key), value, ga.graphs.full(25), scale=1.0)
    found = theirs.proj(heads.flatten(-2))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)  # its softmax is float32
    bias.rel_pos_h.data.mul_(0.9)
    heads = ga.attention(*bias(query, key), value, ga.graphs.full(25), scale=1.0)
    assert not torch.allclose(theirs.proj(heads.flatten(-2)), expected, rtol=0, atol=1e-3)


def test_what_does_not_fit_is_named():
    with pytest.raises(OptionError, match=r"size must be \(height, width\)"):
        DecomposedBias((5,), D)
    bias = DecomposedBias((2, 3), D)
    x = torch.zeros(7, H, D)
    with pytest.raises(ShapeError, match="grid must have 2 axes"):
        bias(x, x, grid=(7,))
    right = torch.zeros(6, H, D)
    for wrong in (x, torch.zeros(6, H, D + 1), torch.zeros(1, H, D)):
        with pytest.raises(ShapeError, match=rf"query must have shape \(..., 6, heads, {D}\)"):
            bias(wrong, right)
        with pytest.raises(ShapeError, match="key must have"):
            bias(right, wrong)
