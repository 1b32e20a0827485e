"""Graphs chosen by content under ``torch.func``, and in a program that is exported."""

import pytest
import torch

import graphattn as ga

CENTROIDS = torch.randn(5, 4)
PATTERNS = {
    "top_k": ga.graphs.top_k(..., 4),
    "blocks and a window": ga.graphs.top_k(..., 2, blocks=3)
    | ga.graphs.sliding_window(..., 2, causal=True),
    "routed": ga.graphs.routed(..., CENTROIDS) & ga.graphs.causal(...),
}


@pytest.fixture(params=PATTERNS)
def pattern(request):
    return PATTERNS[request.param]


def test_vmap_chooses_for_each_example(pattern):
    x, other = torch.randn(3, 11, 2, 4), torch.randn(11, 2, 4)

    def alone(x):
        return ga.attention(x, x, x, pattern, softcap=2.0)

    wanted = torch.stack([alone(one) for one in x])
    torch.testing.assert_close(torch.func.vmap(alone)(x), wanted)
    torch.testing.assert_close(torch.func.vmap(alone, in_dims=1)(x.transpose(0, 1)), wanted)
    mapped = torch.func.vmap(lambda key: ga.attention(other, key, key, pattern))(x)
    torch.testing.assert_close(
        mapped, torch.stack([ga.attention(other, key, key, pattern) for key in x])
    )


def test_gradients_of_each_sample_are_its_own(pattern):
    layer, batch = ga.nn.GraphAttention(8, 2), torch.randn(3, 11, 8)
    parameters = dict(layer.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x, pattern)).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, batch)
    for i, x in enumerate(batch):
        wanted = torch.autograd.grad(loss(parameters, x), list(parameters.values()))
        for one, other in zip(found.values(), wanted, strict=True):
            torch.testing.assert_close(one[i], other, atol=1e-4, rtol=1e-4)
    assert all(one.abs().sum() > 0 for name, one in found.items() if name != "k_proj.bias")


def test_forward_and_reverse_derivatives_are_one(pattern):
    x = torch.randn(7, 2, 4, dtype=torch.float64)

    def call(x):
        return ga.attention(x, x, x, pattern)

    wanted = torch.autograd.functional.jacobian(call, x)
    torch.testing.assert_close(torch.func.jacrev(call)(x), wanted)
    torch.testing.assert_close(torch.func.jacfwd(call)(x), wanted)


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_exported_program_has_no_choice(strict):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = ga.nn.GraphAttention(8, 2)

        def forward(self, x):
            return self.layer(x, PATTERNS["top_k"])

    with pytest.raises(
        ga.errors.BackendError, match=r"chooses its edges in every call.*; export union"
    ):
        torch.export.export(Model(), (torch.randn(11, 8),), strict=strict)
