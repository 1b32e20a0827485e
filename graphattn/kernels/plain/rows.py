"""Rows gathered by index, and the sums that are their derivative, with equal bits in every run."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ...graph.modes import plain_operations_only
from ...plans.tiles import Slots


def take(x: Tensor, sizes: Sequence[int], slots: Slots) -> tuple[Tensor, ...]:
    """The rows ``node`` (n,) of ``x`` (B, N, ...): a tensor (B, size, ...) for each of the sizes.

    Differentiable any number of times.

    Args:
        x: The rows, contiguous or not.
        sizes: Numbers of rows of the results.
        slots: ``node``, int64 (n,); ``ptr``, int64 (N + 1,): the gradient of row ``i`` is the sum
            over ``slot[ptr[i]:ptr[i + 1]]``, in that order; and ``slot``, int64 (m,), m <= n: a
            gathered row that is not listed passes no gradient.
    """
    # by name, as torch 2.11 requires for compilation
    node = slots.node
    ptr = slots.ptr
    slot = slots.slot
    if plain_operations_only() or not (x.requires_grad and torch.is_grad_enabled()):
        return tuple(x.index_select(1, part) for part in node.split(sizes))
    return _Take.apply(x, node, ptr, slot, sizes)


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, node: Tensor, ptr: Tensor, slot: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(ptr, slot)
        return tuple(x.index_select(1, part) for part in node.split(sizes))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ptr, slot = ctx.saved_tensors
        x = torch.cat(grads, 1)
        if plain_operations_only():  # that torch.func.vmap supports
            owner = torch.repeat_interleave(ptr.diff())
            rows = x.index_select(1, slot).to(torch.promote_types(x.dtype, torch.float32))
            zeros = rows.new_zeros(x.shape[0], ptr.numel() - 1, *x.shape[2:])
            total = zeros.index_add(1, owner, rows).to(x.dtype)
        else:
            total = _Sum.apply(x, ptr, slot)
        return total, None, None, None, None


class _Sum(torch.autograd.Function):
    """Sums of rows ``slot[ptr[i]:ptr[i + 1]]`` of ``x`` (B, n, ...), in float32 or wider."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor, slot: Tensor) -> Tensor:
        ctx.save_for_backward(ptr, slot)
        ctx.shape = x.shape
        dtype = torch.promote_types(x.dtype, torch.float32)
        example = torch.arange(x.shape[0], device=x.device)[:, None]
        index = slot + example * x.shape[1]
        first = ptr[:-1] + example * slot.numel()
        flat = x.to(dtype).reshape(x.shape[0] * x.shape[1], math.prod(x.shape[2:]))
        total = torch.nn.functional.embedding_bag(
            index.flatten(), flat, first.flatten(), mode="sum"
        )
        return total.reshape(x.shape[0], ptr.numel() - 1, *x.shape[2:]).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ptr, slot = ctx.saved_tensors
        owner = torch.repeat_interleave(ptr[1:] - ptr[:-1])
        return (
            grads[0].new_zeros(ctx.shape).index_copy(1, slot, grads[0].index_select(1, owner)),
            None,
            None,
        )


def dependent_zero(*operands: Tensor | None) -> Tensor:
    """A zero, also for NaN, whose derivatives of any order depend on the operands.

    The sum of no numbers has a first derivative alone; that of their exponentials has all.
    """
    return reduce(torch.add, [x.flatten()[:0].exp().sum() for x in operands if x is not None])
