"""Small models of ``transformers`` with random weights, in float64, and what is compared."""

from contextlib import contextmanager
from unittest.mock import patch

import torch


@contextmanager
def in_float64():
    """Their modules, made and called in here, round nothing to float32 in between: norms, angles,
    softmax.
    """
    wide, usual = torch.float64, torch.get_default_dtype()
    with (
        patch.object(torch, "float", wide),
        patch.object(torch, "float32", wide),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        torch.set_default_dtype(wide)
        try:
            yield
        finally:
            torch.set_default_dtype(usual)


def shaken(model, training=False):
    """The model in float64, every parameter moved, so that no bias is 0 and no norm 1."""
    model = model.double().train(training)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64) * 0.1)
    return model


def same(found, wanted, rtol=1e-12):
    """Equal, relative to the largest number."""
    torch.testing.assert_close(
        found, wanted, rtol=0, atol=rtol * float(wanted.detach().abs().max())
    )


def all_gradients(model, output):
    """Every number of every gradient, by size: parameters are split otherwise, so they are compared
    as a set.
    """
    weights = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(output.cos().sum(), weights, allow_unused=True)
    return torch.cat([g.flatten() for g in found if g is not None]).abs().sort().values


def same_gradients(mine, theirs, output, expected, rtol=1e-11):
    found, wanted = all_gradients(mine, output), all_gradients(theirs, expected)
    assert (wanted > 0).double().mean() > 0.5
    same(found, wanted, rtol)


def changed(output, other, dims=(0, 2)):
    """Which nodes have another output."""
    return (output - other).detach().abs().amax(dims).gt(1e-9).tolist()


@torch.no_grad()
def log_probability(made, tokens, start):
    """Of tokens (..., N) from number ``start`` on, given those before."""
    share = made(tokens)[..., start - 1 : -1, :].log_softmax(-1)
    return share.gather(-1, tokens[..., start:, None]).sum((-1, -2))
