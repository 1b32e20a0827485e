"""Biases far from 0 in torch's SDPA, whose backward recomputes weights from a stored lse."""

import pytest
import torch

from graphattn.backends.sdpa import Mask, near_zero, unfused_attention
from graphattn.operands import HALF

FAR = (-1e9, -1e4, 1e4, 0.0)


def operands(shift):
    """Rows whose biases are all near ``shift``, with a row of -inf."""
    draw = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 3, size, 8, generator=draw) for size in (11, 17, 17))
    bias = shift + torch.randn(1, 3, 11, 17, generator=draw)
    bias[:, :, 4, 3:] = -torch.inf
    return [x.requires_grad_() for x in (q, k, v, bias)]


def outcome(run, inputs):
    output = run(*inputs)
    draw = torch.Generator().manual_seed(6)
    along = torch.randn(output.shape, generator=draw).to(output.dtype)
    return [output, *torch.autograd.grad((output * along).sum(), inputs)]


def sdpa(q, k, v, bias):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, near_zero(bias), scale=0.3)


def definition(q, k, v, bias):
    return unfused_attention(q, k, v, Mask(bias=bias), 0.3).output


@pytest.mark.parametrize("shift", FAR)
def test_rows_near_zero_have_the_weights_and_gradients_of_the_bias(shift):
    inputs = operands(shift)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    for found, wanted in zip(outcome(sdpa, inputs), outcome(definition, wide), strict=True):
        assert wanted.abs().max() > 0
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)


def test_biases_near_zero_stay_the_same_bits_and_rows_without_sources_too():
    bias = torch.randn(3, 11, 17)
    bias[1, 2] = -torch.inf
    assert torch.equal(near_zero(bias), bias)
    assert all(near_zero(bias.to(dtype)).dtype == dtype for dtype in HALF)
