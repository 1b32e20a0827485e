"""A convolution is attention: a head for each offset, each on a graph of degree 1."""

from functools import reduce
from itertools import product

import pytest
import torch
from torch.nn import functional as F

import graphattn as ga
from graphattn import graphs
from graphattn.nn import GraphAttention


def shift(size, offset):
    """Every node of the grid reads the one node at this offset, where there is one."""
    place = torch.stack(torch.meshgrid(*(torch.arange(n) for n in size), indexing="ij"), -1).flatten(0, -2)
    there = (place[:, None] + torch.tensor(offset) == place).all(-1)  # (T, S)
    return ga.from_mask(there)


def as_attention(kernel):
    """(C_out, C_in, *window) as the layer whose heads are the offsets, with identities for values."""
    c_out, c_in, *window = kernel.shape
    heads = torch.Size(window).numel()
    layer = GraphAttention(c_out, heads, qdim=c_in, kdim=c_in, vdim=c_in, head_dim=c_in, bias=False).to(kernel)
    with torch.no_grad():
        layer.v_proj.weight.copy_(torch.eye(c_in).repeat(heads, 1))
        layer.out_proj.weight.copy_(kernel.flatten(2).transpose(1, 2).flatten(1))  # (C_out, heads * C_in)
    return layer


@pytest.mark.parametrize(
    ("size", "window", "dilation", "causal"),
    [
        ((11,), (3,), 1, False),
        ((11,), (5,), 2, False),
        ((11,), (4,), 1, True),
        ((5, 7), (3, 3), 1, False),
        ((7, 5), (3, 3), 2, False),
    ],
)
def test_a_convolution_is_attention_with_a_head_for_each_offset(size, window, dilation, causal):
    torch.manual_seed(0)
    kernel, x = torch.randn(3, 2, *window).double(), torch.randn(2, *size, dtype=torch.float64)
    if causal:  # asymmetric padding
        offsets = [(i - window[0] + 1,) for i in range(window[0])]
        expected = F.conv1d(F.pad(x, (window[0] - 1, 0)), kernel)
    else:
        offsets = [
            tuple(dilation * (i - w // 2) for i, w in zip(o, window, strict=True))
            for o in product(*(range(w) for w in window))
        ]
        conv = F.conv1d if len(size) == 1 else F.conv2d
        expected = conv(x, kernel, padding=dilation * (window[0] // 2), dilation=dilation)
    heads = ga.PerHead(tuple(shift(size, offset) for offset in offsets))
    assert all(graph.in_degree.max() == 1 for graph in heads.graphs)
    layer = as_attention(kernel)
    found = layer(x.flatten(1).t(), heads)  # whatever its queries and keys are: one source, weight 1
    torch.testing.assert_close(found, expected.flatten(1).t(), rtol=1e-12, atol=1e-12)
    other = layer(x.flatten(1).t(), ga.PerHead((heads.graphs[0],) * len(offsets)))
    assert (other - found).abs().max() > 0.1
    # All offsets together are a window; on a grid, the Kronecker product of those of the axes.
    axes = [
        graphs.sliding_window(n, w, causal=causal, dilation=dilation).mask() for n, w in zip(size, window, strict=True)
    ]
    whole = reduce(torch.kron, axes)
    assert torch.equal(heads.union().mask(), whole)
    if not causal and window[0] % 2:
        around = graphs.grid_neighbourhood(size, window, dilation=dilation, clamp=False)
        assert torch.equal(around.mask(), whole)


def test_a_shared_perceptron_is_attention_to_oneself_and_a_convolution_of_one():  # no context
    torch.manual_seed(0)
    layer, x = GraphAttention(8, 2).double(), torch.randn(5, 8).double()
    alone = layer(x, graphs.self_loops(5))
    torch.testing.assert_close(alone, layer.out_proj(layer.v_proj(x)))
    weight = layer.out_proj.weight @ layer.v_proj.weight
    bias = layer.out_proj.weight @ layer.v_proj.bias + layer.out_proj.bias
    torch.testing.assert_close(alone, F.conv1d(x.t(), weight[:, :, None], bias).t())
    (jacobian,) = torch.autograd.functional.jacobian(lambda y: layer(y, graphs.self_loops(5)), (x,))
    assert torch.equal(jacobian.abs().sum((1, 3)) > 0, torch.eye(5, dtype=torch.bool))


def test_convolution_is_equivariant_to_shifts_as_the_graph_is_and_attention_to_permutations():
    ring = ga.PerHead(tuple(ga.from_rule(lambda t, s, o=o: (t + o) % 9 == s, 9) for o in (-1, 0, 1)))
    layer, x = as_attention(torch.randn(3, 2, 3).double()), torch.randn(9, 2).double()
    torch.testing.assert_close(layer(x.roll(2, 0), ring), layer(x, ring).roll(2, 0))
    torch.testing.assert_close(layer(x, ring).t(), F.conv1d(F.pad(x.t(), (1, 1), mode="circular"), as_kernel(layer)))
    order = torch.tensor([3, 0, 6, 4, 8, 1, 2, 7, 5])  # no shift
    assert (layer(x[order], ring) - layer(x, ring)[order]).abs().max() > 1e-3


def as_kernel(layer):
    return layer.out_proj.weight.unflatten(1, (3, 2)).transpose(1, 2)
