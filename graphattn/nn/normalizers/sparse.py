"""Sparse weights, most of them exactly 0."""

import torch
from torch import Tensor

from ...kernels.plain.sums import gather, scatter_sum
from .base import named


def _dense_hard(score: Tensor, mask: Tensor) -> Tensor:
    """1 at the largest score of a row, 0 elsewhere."""
    if score.shape[-1] == 0:
        return score
    largest = score.detach().masked_fill(~mask, -torch.inf).argmax(-1, keepdim=True)
    return torch.zeros_like(score).scatter(-1, largest, 1.0) * mask


@named("hard", _dense_hard)
def hard(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """Weight 1 on the edge with the largest score, the first such edge of each target; 0 on the
    others.

    The limit of softmax at temperature 0; no gradient reaches the scores. Targets without a score
    above -inf read nothing; NaN in a score makes NaN of its target.
    """
    with torch.no_grad():
        place = torch.arange(target.numel(), device=target.device)
        dim = score.dim() - 2
        shape = (*score.shape[:-2], num_targets, score.shape[-1])
        owner = target.unsqueeze(-1).expand_as(score)
        lowest = score.new_full(shape, -torch.inf)
        peak = lowest.scatter_reduce(dim, owner, score, "amax")
        is_peak = score == peak.gather(dim, owner)
        best = is_peak & (score != -torch.inf)
        rank = torch.where(best, place.unsqueeze(-1), target.numel())
        last = rank.new_full(shape, target.numel())
        first = last.scatter_reduce(dim, owner, rank, "amin")
        is_first = rank == first.gather(dim, owner)
        chosen = (is_first & best).to(score.dtype)
        is_nan = peak.isnan().gather(dim, owner)
        return chosen.masked_fill(is_nan, torch.nan)


def _dense_sparsemax(score: Tensor, mask: Tensor) -> Tensor:
    """The nearest point of the simplex, ``max(0, score - tau)``; tau by Michelot's algorithm
    (1986).

    The support starts with all scores, and drops those below the mean excess until there are none.
    """
    if score.shape[-1] == 0:
        return score
    inside = score.detach().masked_fill(~mask, -torch.inf)
    peak = inside.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    score = (score - peak).masked_fill(~mask, 0.0)
    support = mask
    while True:
        total = (score * support).sum(-1, keepdim=True)
        size = support.sum(-1, keepdim=True).clamp(min=1)
        tau = (total - 1) / size
        smaller = support & (score > tau)
        if torch.equal(smaller, support):
            return (score - tau) * support
        support = smaller


@named("sparsemax", _dense_sparsemax)
def sparsemax(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    r"""The point of the simplex that is nearest to a target's scores: weights that sum to 1, many
    exactly 0.

    .. math:: \alpha_{ts} = \max(0, z_{ts} - \tau_t), \qquad \sum_s \alpha_{ts} = 1

    Source: Martins and Astudillo 2016, "From Softmax to Sparsemax", algorithm 1, on the edges of
    each target.
    """
    with torch.no_grad():
        support = _support(score, target, num_targets)
    support_scores = torch.where(support, score, 0.0)
    size = scatter_sum(support.to(score.dtype), target, num_targets, -2).clamp(min=1.0)
    total = scatter_sum(support_scores, target, num_targets, -2)
    tau = (total - 1.0) / size
    excess = score - gather(tau, target, -2)
    return torch.where(support, excess, 0.0).clamp(min=0.0)


def _support(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """bool (..., E, H): the edges whose weight is above 0."""
    z = score.transpose(-2, -1)  # (..., H, E)
    largest = torch.argsort(z, dim=-1, descending=True, stable=True)
    # by target, then by score
    by_target = torch.argsort(target[largest], dim=-1, stable=True)
    order = largest.gather(-1, by_target)
    degree = torch.bincount(target, minlength=num_targets)
    first_of_target = degree.cumsum(0) - degree
    start = first_of_target[target[order]]
    place = torch.arange(target.numel(), device=target.device)
    rank = place - start + 1
    z = z.gather(-1, order).double()
    z = z - _first(z, start)  # from each target's peak down, so that sums over all edges stay small
    # below the peak by 1 or more: never in the support
    z = z.nan_to_num(neginf=-2.0).clamp(min=-2.0)
    total = z.cumsum(-1)
    previous = total.gather(-1, (start - 1).clamp(min=0))
    before = torch.where(start > 0, previous, 0.0)
    is_large = 1 + rank * z > total - before
    inside = is_large & (z > -2.0)
    chosen = torch.zeros_like(inside).scatter(-1, order, inside)
    return chosen.transpose(-2, -1)


def _first(z: Tensor, start: Tensor) -> Tensor:
    peak = z.gather(-1, start)
    return torch.where(peak == -torch.inf, 0.0, peak)
