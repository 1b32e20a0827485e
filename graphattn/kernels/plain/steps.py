"""Sums by an index in steps of few slices, so that rounding errors stay small."""

import torch
from torch import Tensor

# slices added in sequence; longer sums are sums of sums
_BLOCK = 64


def sum_in_steps(value: Tensor, index: Tensor, size: int, dim: int) -> Tensor:
    """Sum of the slices of ``value`` along ``dim`` >= 0 by an index, ``size`` slots."""
    for step, slots in _steps(value, index, size):
        value = _added(value, step, slots, dim)
    return value


def gather_in_steps(value: Tensor, index: Tensor, dim: int) -> Tensor:
    """The slice of ``value`` along ``dim`` at each index; its backward is a sum in steps."""
    for step, _ in reversed(_steps(value, index, value.shape[dim])):
        if value.is_cuda:
            value = value.movedim(dim, 0)[step].movedim(0, dim)
        else:
            value = value.index_select(dim, step)
    return value


def _added(value: Tensor, index: Tensor, size: int, dim: int) -> Tensor:
    if value.is_cuda:  # scatter_add_ adds atomically there; accumulating index_put sorts first
        first = value.movedim(dim, 0)
        total = first.new_zeros((size, *first.shape[1:])).index_put(
            (index,), first, accumulate=True
        )
        return total.movedim(0, dim)
    total = value.new_zeros((*value.shape[:dim], size, *value.shape[dim + 1 :]))
    return total.scatter_add(dim, spread(index, value, dim), value)


def _steps(value: Tensor, index: Tensor, size: int) -> list[tuple[Tensor, int]]:
    """The steps of a sum by index, of about ``_BLOCK`` slices per slot, into ``size`` at last.

    Float64 has enough digits for one step, as have indices with few slices.
    """
    steps = []
    while value.dtype != torch.float64 and index.numel() > _BLOCK:
        count = torch.bincount(index, minlength=size)
        if int(count.max()) <= 2 * _BLOCK:
            break
        shares = (count + _BLOCK - 1).div(_BLOCK, rounding_mode="floor").clamp(min=1)
        # The high bits of a multiplicative hash spread neighbours in any regular order.
        hashed = torch.arange(index.numel(), device=index.device) * 0x9E3779B1 % (1 << 32) >> 8
        slot = (shares.cumsum(0) - shares)[index] + hashed % shares[index]
        steps.append((slot, int(shares.sum())))
        index = torch.repeat_interleave(torch.arange(size, device=index.device), shares)
    return [*steps, (index, size)]


def spread(index: Tensor, like: Tensor, dim: int) -> Tensor:
    """An index (E,) for each number of a tensor with E slices along ``dim``."""
    return index.view(-1, *(1,) * (like.dim() - dim - 1)).expand_as(like)
