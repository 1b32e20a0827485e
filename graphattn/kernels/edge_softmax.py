"""Sums and softmax over the edges that share a target, differentiable any number of times, the same bits every run."""

import torch
from torch import Tensor


def scatter_sum(value: Tensor, index: Tensor, size: int, dim: int) -> Tensor:
    """Sum of the slices of ``value`` along ``dim`` that share an index: int64 (E,) into ``size`` slots."""
    dim = dim % value.dim()
    if value.is_cuda:  # scatter_add_ adds atomically there; accumulating index_put sorts first
        first = value.movedim(dim, 0)
        total = first.new_zeros((size, *first.shape[1:])).index_put((index,), first, accumulate=True)
        return total.movedim(0, dim)
    total = value.new_zeros((*value.shape[:dim], size, *value.shape[dim + 1 :]))
    return total.scatter_add(dim, _spread(index, value, dim), value)


def gather(value: Tensor, index: Tensor, dim: int) -> Tensor:
    """The slice of ``value`` along ``dim`` that each index names; its backward is as deterministic."""
    if value.is_cuda:
        return value.movedim(dim, 0)[index].movedim(0, dim)
    return value.index_select(dim, index)


def _spread(index: Tensor, like: Tensor, dim: int) -> Tensor:
    return index.view(-1, *(1,) * (like.dim() - dim - 1)).expand_as(like)


def edge_softmax(score: Tensor, target: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    """Softmax of ``score`` (..., E, H) over the edges of each target, and the logarithm of its denominator.

    Targets without an edge, or with scores of -inf alone, get weights 0, lse -inf and gradients of exactly 0. A score
    of +inf or NaN spoils its own target only.

    Returns:
        alpha (..., E, H) and lse (..., T, H), in the dtype of ``score``.
    """
    dim = score.dim() - 2
    with torch.no_grad():
        shape = (*score.shape[:dim], num_targets, score.shape[-1])
        peak = score.new_full(shape, -torch.inf).scatter_reduce(dim, _spread(target, score, dim), score, "amax")
        peak = peak.masked_fill(peak == -torch.inf, 0.0)
    power = torch.exp(score - gather(peak, target, dim))
    total = scatter_sum(power, target, num_targets, dim)
    heard = total != 0
    total = torch.where(heard, total, 1.0)
    alpha = power / gather(total, target, dim)
    lse = torch.where(heard, peak + torch.log(total), -torch.inf)
    return alpha, lse
