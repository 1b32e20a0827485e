"""Sums over the edges of a target: long ones are as exact as a matrix product's, whatever the order
of the edges.
"""

import pytest
import torch

from graphattn.kernels.plain.sums import edge_softmax, gather, scatter_sum

LONG = 60_013


def hub(order):
    """Every edge but the last three points at slot 2 of 5."""
    index = torch.full((LONG,), 2)
    index[-3:] = torch.tensor([0, 4, 0])
    return (
        index
        if order == "sorted"
        else index[torch.randperm(LONG, generator=torch.Generator().manual_seed(1))]
    )


def strided():
    """Slot after slot: any two edges of a slot are a multiple of 64 apart."""
    return torch.arange(64 * 1_000) % 64


@pytest.mark.parametrize(
    "index", [hub("sorted"), hub("shuffled"), strided()], ids=["sorted", "shuffled", "strided"]
)
def test_long_float32_sums_do_not_pile_up_rounding(index):
    value = torch.rand(2, index.numel(), 3, generator=torch.Generator().manual_seed(0))
    size = int(index.max()) + 1
    right = scatter_sum(value.double(), index, size, 1)
    found = scatter_sum(value, index, size, 1)
    relative = (found - right).abs() / right.clamp(min=1.0)
    assert float(relative.max()) < 4e-7  # one after another it is 1e-5 for a hub

    node = torch.zeros(2, size, 3, requires_grad=True)
    (back,) = torch.autograd.grad(gather(node, index, 1), node, value)
    assert float(((back - right).abs() / right.clamp(min=1.0)).max()) < 4e-7


def test_long_sums_can_be_differentiated_twice_and_by_torch_func():
    index = hub("shuffled")[: 64 * 40]
    value = torch.rand(index.numel(), 1, dtype=torch.float32, requires_grad=True)

    def total(x):
        return (scatter_sum(x, index, 5, 0) ** 2).sum() + gather(
            scatter_sum(x, index, 5, 0), index, 0
        ).square().sum()

    (first,) = torch.autograd.grad(total(value), value, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), value)
    count = torch.bincount(index, minlength=5)
    sums = scatter_sum(value.detach(), index, 5, 0)
    torch.testing.assert_close(first.detach(), (2 * sums * (1 + count[:, None]))[index])
    torch.testing.assert_close(second, (2.0 * count * (1 + count))[index][:, None])
    torch.testing.assert_close(torch.func.grad(total)(value.detach()), first.detach())
    stack = torch.stack((value.detach(), 2 * value.detach()))
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(total))(stack)[1], 2 * first.detach()
    )


def test_a_long_softmax_of_float32_sums_to_one():
    score = torch.randn(LONG, 2, generator=torch.Generator().manual_seed(3))
    index = hub("shuffled")
    alpha, lse = edge_softmax(score, index, 5)
    assert float((scatter_sum(alpha.double(), index, 5, 0)[[0, 2, 4]] - 1).abs().max()) < 3e-7
    assert torch.equal(torch.isinf(lse[:, 0]), torch.tensor([False, True, False, True, False]))


def test_empty_and_single_sums():
    assert (
        scatter_sum(torch.ones(0, 3), torch.zeros(0, dtype=torch.int64), 2, 0).tolist()
        == [[0.0] * 3] * 2
    )
    assert scatter_sum(torch.ones(2, 0), torch.zeros(0, dtype=torch.int64), 0, 1).shape == (2, 0)
