"""Scores as weights: those of linear attention."""

import torch
from torch import Tensor

from ...backends.rows import on_rows
from ...kernels.plain.sums import gather, scatter_sum
from .base import named


def _dense_none(score: Tensor, mask: Tensor) -> Tensor:
    """The scores themselves."""
    return score.masked_fill(~mask, 0.0)


@on_rows("none")
@named("none", _dense_none, smooth=True)
def none(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """The scores themselves; an edge whose score is -inf has weight 0."""
    return score.masked_fill(score == -torch.inf, 0.0)


def _dense_by_sum(score: Tensor, mask: Tensor) -> Tensor:
    """Scores over their sum; all 0 if that is 0 (Katharopoulos et al. 2020, equation 4)."""
    score = score.masked_fill(~mask, 0.0)
    total = score.sum(-1, keepdim=True)
    return score / total.masked_fill(total == 0, 1.0)


@on_rows("sum")
@named("sum", _dense_by_sum)
def by_sum(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """The scores divided by their sum over the edges of each target, for linear attention.

    Scores should be >= 0: mixed signs may sum to nearly 0, and weights in float32 are then large
    and inexact.
    """
    weight = none(score, target, num_targets)
    total = scatter_sum(weight, target, num_targets, -2)
    return weight / gather(torch.where(total == 0, 1.0, total), target, -2)
