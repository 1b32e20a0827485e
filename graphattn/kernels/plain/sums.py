"""Sums and softmax over the edges of each target, differentiable any number of times.

Every run gives the same bits.
"""

import torch
from torch import Tensor

# slices added in sequence; longer sums are sums of sums, so that rounding errors stay small
_BLOCK = 64


def scatter_sum(value: Tensor, index: Tensor, size: int, dim: int) -> Tensor:
    """Sum of the slices of ``value`` along ``dim`` by an index int64 (E,), ``size`` slots."""
    dim = dim % value.dim()
    for step, slots in _steps(value, index, size):
        value = _added(value, step, slots, dim)
    return value


def gather(value: Tensor, index: Tensor, dim: int) -> Tensor:
    """The slice of ``value`` along ``dim`` at each index, with a deterministic exact backward."""
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
    return total.scatter_add(dim, _spread(index, value, dim), value)


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


def _spread(index: Tensor, like: Tensor, dim: int) -> Tensor:
    return index.view(-1, *(1,) * (like.dim() - dim - 1)).expand_as(like)


def edge_softmax(score: Tensor, target: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    """Softmax of ``score`` (..., E, H) over the edges of each target, and its log-sum-exp.

    Targets without an edge, or with scores of -inf alone, get weights 0, lse -inf and gradients of
    exactly 0. A score of +inf or NaN affects its own target only.

    Returns:
        alpha (..., E, H) and lse (..., T, H), in the dtype of ``score``.
    """
    dim = score.dim() - 2
    with torch.no_grad():
        shape = (*score.shape[:dim], num_targets, score.shape[-1])
        peak = score.new_full(shape, -torch.inf).scatter_reduce(
            dim, _spread(target, score, dim), score, "amax"
        )
        peak = peak.masked_fill(peak == -torch.inf, 0.0)
    power = torch.exp(score - gather(peak, target, dim))
    total = scatter_sum(power, target, num_targets, dim)
    has_edges = total != 0
    total = torch.where(has_edges, total, 1.0)
    alpha = power / gather(total, target, dim)
    lse = torch.where(has_edges, peak + torch.log(total), -torch.inf)
    return alpha, lse
