"""A convolution is attention: a head for each offset, each on a graph of degree 1."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError
from graphattn.nn import GraphAttention

CONVOLUTIONS = [  # size, kernel, options of torch's layer, causal
    ((11,), 3, {"padding": 1}, False),
    ((11,), 4, {"padding": "same", "dilation": 2}, False),
    ((11,), 4, {"dilation": 2}, True),
    ((11,), 3, {"stride": 2, "bias": False}, True),
    ((13,), 5, {"stride": 3, "padding": 2, "dilation": 2, "groups": 2}, False),
    ((13,), 3, {"padding": 2, "padding_mode": "circular"}, False),
    ((5, 7), (3, 2), {"padding": (1, 0)}, False),
    ((7, 5), 3, {"stride": (2, 1), "padding": "valid", "padding_mode": "reflect"}, False),
    ((7, 5), 3, {"dilation": 2, "padding": 3, "padding_mode": "reflect"}, False),
    ((3, 5, 7), 3, {"stride": (1, 2, 3), "padding": 1, "padding_mode": "replicate"}, False),
    # a video, causal in time
    ((5, 3, 7), (2, 3, 3), {"padding": (0, 1, 1), "stride": (1, 1, 2)}, True),
]


@pytest.mark.sample(9)
@pytest.mark.parametrize(("size", "kernel", "options", "causal"), CONVOLUTIONS)
def test_a_convolution_is_attention_with_a_head_for_each_offset(size, kernel, options, causal):
    torch.manual_seed(0)
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(size) - 1](2, 4, kernel, **options).double()
    layer, graph = GraphAttention.from_conv(conv, size, causal=causal)
    assert all(head.in_degree.max() == 1 for head in graph.graphs)
    x = torch.randn(3, 2, *size, dtype=torch.float64)
    # asymmetric padding
    before = [0] * 2 * (len(size) - 1) + [conv.dilation[0] * (conv.kernel_size[0] - 1), 0]
    expected = conv(F.pad(x, before) if causal else x).flatten(2).mT
    # whatever queries are: weights are 1
    nodes, asks = x.flatten(2).mT, torch.randn(graph.num_targets, 2).double()
    found = layer(asks, graph, context=nodes)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    other = layer(asks, ga.PerHead((graph.graphs[0],) * len(graph.graphs)), context=nodes)
    assert (other - found).abs().max() > 0.1

    found.sin().sum().backward()  # it trains as the convolution does
    expected.sin().sum().backward()
    torch.testing.assert_close(
        layer.out_proj.weight.grad, as_heads(conv.weight.grad, conv.groups, layer)
    )
    if conv.bias is not None:
        torch.testing.assert_close(layer.out_proj.bias.grad, conv.bias.grad)
    assert not any(
        part.weight.grad is not None and part.weight.grad.any()
        for part in (layer.q_proj, layer.k_proj)
    )


def as_heads(kernel, groups, layer):
    """(C_out, C_in / groups, *kernel) as (C_out, heads * C_in), and what the layer has of its own
    between groups.
    """
    wide = layer.out_proj.weight.grad.clone().unflatten(1, (-1, 2))
    for out, part in enumerate(kernel.flatten(2).transpose(1, 2)):
        wide[out, :, slice(None) if groups == 1 else slice(out // 2, out // 2 + 1)] = part
    return wide.flatten(1)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_heads_read_at_an_offset_and_together_a_window(stride):
    for size, kernel, dilation in (
        ((11,), 5, 2),
        ((5, 7), 3, 1),
        ((7, 5), 3, 2),
        ((3, 4, 5), 3, 1),
    ):
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(size) - 1]
        reach = dilation * (kernel // 2)
        _, graph = GraphAttention.from_conv(conv(1, 1, kernel, stride, reach, dilation), size)
        steps = product(range(-reach, reach + 1, dilation), repeat=len(size))
        for head, by in zip(graph.graphs, steps, strict=True):
            assert head.equals(graphs.shifted(size, by, stride=stride))
        if stride == 1:
            assert graph.union().equals(
                graphs.grid_neighbourhood(
                    size, kernel, dilation=dilation, causal=False, clamp=False
                )
            )


@pytest.mark.parametrize(
    ("conv", "size", "causal", "words"),
    [
        (
            nn.ConvTranspose1d(2, 3, 3),
            7,
            False,
            r"expected Conv1d or Conv2d or",
        ),
        (
            nn.Conv2d(2, 3, 3),
            (7, 2),
            False,
            "size must hold the kernel, 3 on axis 1 with padding, got 2",
        ),
        (nn.Conv1d(2, 3, 3, padding=1), 7, True, r"requires conv.padding 0 there, got \(1,\)"),
        (nn.Conv1d(2, 3, 3, padding="same"), 7, True, "requires conv.padding 0 there, got 'same'"),
        (
            nn.Conv1d(2, 3, 3, padding_mode="circular"),
            7,
            True,
            "padding_mode 'zeros' or 'replicate', got 'circular'",
        ),
        (
            nn.Conv2d(2, 3, (2, 3), padding_mode="reflect"),
            (5, 7),
            True,
            "which pads the start of axis 0 with later",
        ),
        (nn.Conv1d(2, 3, 3), 7.5, False, "size must be a whole number >= 1, got 7.5"),
    ],
)
def test_what_is_no_convolution_of_that_size_is_refused(conv, size, causal, words):
    with pytest.raises(OptionError, match=words):
        GraphAttention.from_conv(conv, size, causal=causal)


@pytest.mark.parametrize("mode", ["zeros", "replicate"])
@pytest.mark.parametrize("options", [{}, {"dilation": 3}, {"stride": 2}])
def test_a_causal_convolution_reads_no_later_node(mode, options):
    _, graph = GraphAttention.from_conv(
        nn.Conv1d(2, 3, 3, padding_mode=mode, **options), 11, causal=True
    )
    assert all(
        bool((one.source <= one.target * options.get("stride", 1)).all()) for one in graph.graphs
    )


def test_an_axis_that_is_not_time_may_be_circular():
    conv = nn.Conv2d(2, 3, (1, 3), padding=(0, 1), padding_mode="circular")
    layer, graph = GraphAttention.from_conv(conv, (5, 7), causal=True)
    x = torch.randn(2, 5, 7)
    torch.testing.assert_close(layer(x.flatten(1).mT, graph), conv(x).flatten(1).mT)


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
    conv = nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular").double()
    (layer, ring), x = GraphAttention.from_conv(conv, 9), torch.randn(9, 2).double()
    torch.testing.assert_close(layer(x.roll(2, 0), ring), layer(x, ring).roll(2, 0))
    order = torch.tensor([3, 0, 6, 4, 8, 1, 2, 7, 5])  # no shift
    assert (layer(x[order], ring) - layer(x, ring)[order]).abs().max() > 1e-3
