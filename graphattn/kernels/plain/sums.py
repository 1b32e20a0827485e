"""Sums and softmax over the edges of each target, differentiable any number of times.

Every run gives the same bits.
"""

import torch
from torch import Tensor

from .steps import gather_in_steps, spread, sum_in_steps


def _is_recorded() -> bool:
    """True while a program is made, which cannot know how many steps another sum takes."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def scatter_sum(value: Tensor, index: Tensor, size: int, dim: int) -> Tensor:
    """Sum of the slices of ``value`` along ``dim`` by an index int64 (E,), ``size`` slots."""
    dim = dim % value.dim()
    if _is_recorded():
        from .sum_operators import sums_of_slices  # registering operators is slow

        return sums_of_slices(value, index, size, dim)
    return sum_in_steps(value, index, size, dim)


def gather(value: Tensor, index: Tensor, dim: int) -> Tensor:
    """The slice of ``value`` along ``dim`` at each index, with a deterministic exact backward."""
    if _is_recorded():
        from .sum_operators import slices_of  # registering operators is slow

        return slices_of(value, index, dim % value.dim())
    return gather_in_steps(value, index, dim)


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
            dim, spread(target, score, dim), score, "amax"
        )
        peak = peak.masked_fill(peak == -torch.inf, 0.0)
    power = torch.exp(score - gather(peak, target, dim))
    total = scatter_sum(power, target, num_targets, dim)
    has_edges = total != 0
    total = torch.where(has_edges, total, 1.0)
    alpha = power / gather(total, target, dim)
    lse = torch.where(has_edges, peak + torch.log(total), -torch.inf)
    return alpha, lse
