"""Sums by an index as torch operators, of as many steps as each call needs."""

from typing import Any

import torch
from torch import Tensor

from .steps import gather_in_steps, sum_in_steps


@torch.library.custom_op("graphattn::sums_of_slices", mutates_args=())
def sums_of_slices(value: Tensor, index: Tensor, size: int, dim: int) -> Tensor:
    """:func:`sum_in_steps`."""
    return sum_in_steps(value, index, size, dim).contiguous()


@torch.library.custom_op("graphattn::slices_of", mutates_args=())
def slices_of(value: Tensor, index: Tensor, dim: int) -> Tensor:
    """:func:`gather_in_steps`."""
    return gather_in_steps(value, index, dim).contiguous()


def _keep_index(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    value, index, *_, dim = inputs
    ctx.save_for_backward(index)
    ctx.size = value.shape[dim]
    ctx.dim = dim


sums_of_slices.register_fake(
    lambda value, index, size, dim: value.new_empty(
        (*value.shape[:dim], size, *value.shape[dim + 1 :])
    )
)
sums_of_slices.register_autograd(
    lambda ctx, grad: (slices_of(grad, *ctx.saved_tensors, ctx.dim), None, None, None),
    setup_context=_keep_index,
)
slices_of.register_fake(
    lambda value, index, dim: value.new_empty(
        (*value.shape[:dim], index.shape[0], *value.shape[dim + 1 :])
    )
)
slices_of.register_autograd(
    lambda ctx, grad: (sums_of_slices(grad, *ctx.saved_tensors, ctx.size, ctx.dim), None, None),
    setup_context=_keep_index,
)
