"""Normalisations: what becomes of the scores of a target's edges before they weigh its values."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import OptionError
from ..kernels.edge_softmax import edge_softmax, gather, scatter_sum
from .arguments import check_function, real, refuse_class, width

Normalizer = Callable[[Tensor, Tensor, int], Tensor]
"""``normalize(score, target, num_targets)`` of scores (..., E, H) and int64 targets (E,) gives weights (..., E, H)."""


def softmax(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """Exponentials that sum to 1 over the edges of each target."""
    return edge_softmax(score, target, num_targets)[0]


class SinkSoftmax(nn.Module):
    """Softmax beside a source with a learned score and a value of 0, a *sink*: the weights sum to less than 1.

    The sink's score is ``logit`` (H,), 0 at the start. On a fast backend it is the output times
    ``sigmoid(lse - logit)``.

    Source: the sink of GPT-OSS; a sink of logit 0 is "softmax off by one" (Miller 2023).
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = width("num_heads", num_heads)
        self.logit = nn.Parameter(torch.zeros(self.num_heads))

    def forward(self, score: Tensor, target: Tensor, num_targets: int) -> Tensor:
        alpha, lse = edge_softmax(score, target, num_targets)
        return alpha * gather(self.share(lse), target, -2)

    def share(self, lse: Tensor) -> Tensor:
        """How much of a target's weight its edges keep, (..., T, H); 0 for a target without an edge."""
        return torch.sigmoid(lse - self.logit.to(lse.dtype))


class Sigmoid(nn.Module):
    """``sigmoid(score + bias)`` edge by edge, no competition; by default the bias is ``-log`` of the target's degree.

    Source: Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention": b = -log n.
    """

    def __init__(self, bias: float | None = None) -> None:
        super().__init__()
        self.bias = None if bias is None else real("bias", bias)

    def forward(self, score: Tensor, target: Tensor, num_targets: int) -> Tensor:
        if self.bias is not None:
            return torch.sigmoid(score + self.bias)
        there = (score != -torch.inf).to(score.dtype)  # a bias of -inf removes an edge
        degree = scatter_sum(there, target, num_targets, -2).clamp(min=1.0)
        return torch.sigmoid(score - gather(degree.log(), target, -2))


def hard(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """Weight 1 on the edge with the largest score, the first such edge of each target; 0 on the others.

    The limit of softmax at temperature 0; no gradient reaches the scores. Targets without a score above -inf hear
    nothing; NaN in a score makes NaN of its target.
    """
    with torch.no_grad():
        place = torch.arange(target.numel(), device=target.device)
        dim, shape = score.dim() - 2, (*score.shape[:-2], num_targets, score.shape[-1])
        owner = target.unsqueeze(-1).expand_as(score)
        peak = score.new_full(shape, -torch.inf).scatter_reduce(dim, owner, score, "amax")
        best = (score == peak.gather(dim, owner)) & (score != -torch.inf)
        rank = torch.where(best, place.unsqueeze(-1), target.numel())
        first = rank.new_full(shape, target.numel()).scatter_reduce(dim, owner, rank, "amin")
        chosen = ((rank == first.gather(dim, owner)) & best).to(score.dtype)
        return chosen.masked_fill(peak.isnan().gather(dim, owner), torch.nan)


def sparsemax(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    r"""The point of the simplex that is nearest to a target's scores: weights that sum to 1, many exactly 0.

    .. math:: \alpha_{ts} = \max(0, z_{ts} - \tau_t), \qquad \sum_s \alpha_{ts} = 1

    Source: Martins and Astudillo 2016, "From Softmax to Sparsemax", algorithm 1, on the edges of each target.
    """
    with torch.no_grad():
        support = _support(score, target, num_targets)
    kept = torch.where(support, score, 0.0)
    size = scatter_sum(support.to(score.dtype), target, num_targets, -2).clamp(min=1.0)
    tau = (scatter_sum(kept, target, num_targets, -2) - 1.0) / size
    return torch.where(support, score - gather(tau, target, -2), 0.0).clamp(min=0.0)


def _support(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """bool (..., E, H): the edges whose weight is above 0."""
    z = score.transpose(-2, -1)  # (..., H, E)
    largest = torch.argsort(z, dim=-1, descending=True, stable=True)
    order = largest.gather(-1, torch.argsort(target[largest], dim=-1, stable=True))  # by target, then by score
    degree = torch.bincount(target, minlength=num_targets)
    start = (degree.cumsum(0) - degree)[target[order]]
    rank = torch.arange(target.numel(), device=target.device) - start + 1
    z = z.gather(-1, order).double()
    z = z - _first(z, start)  # from each target's peak down, so that sums over all edges stay small
    z = z.nan_to_num(neginf=-2.0).clamp(min=-2.0)  # below the peak by 1 or more: never in the support
    total = z.cumsum(-1)
    before = torch.where(start > 0, total.gather(-1, (start - 1).clamp(min=0)), 0.0)
    inside = (1 + rank * z > total - before) & (z > -2.0)
    return torch.zeros_like(inside).scatter(-1, order, inside).transpose(-2, -1)


def _first(z: Tensor, start: Tensor) -> Tensor:
    peak = z.gather(-1, start)
    return torch.where(peak == -torch.inf, 0.0, peak)


def none(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """The scores themselves; an edge whose score is -inf has weight 0."""
    return score.masked_fill(score == -torch.inf, 0.0)


def by_sum(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """The scores divided by their sum over the edges of each target: of linear attention, whose scores are >= 0.

    Scores should be >= 0: those of both signs may sum to nearly 0, and weights in float32 are then large and inexact.
    """
    weight = none(score, target, num_targets)
    total = scatter_sum(weight, target, num_targets, -2)
    return weight / gather(torch.where(total == 0, 1.0, total), target, -2)


def make_normalizer(normalize: Any, num_heads: int) -> Normalizer | None:
    """The normalisation that a layer was given, by name or as a function; ``None`` for softmax."""
    named: dict[str, Callable[[], Normalizer | None]] = {
        "softmax": lambda: None,
        "sink": lambda: SinkSoftmax(num_heads),
        "sigmoid": Sigmoid,
        "hard": lambda: hard,
        "sparsemax": lambda: sparsemax,
        "sum": lambda: by_sum,
        "none": lambda: none,
    }
    if isinstance(normalize, str) and normalize in named:
        return named[normalize]()
    refuse_class("normalize", normalize)
    if isinstance(normalize, SinkSoftmax) and normalize.num_heads != num_heads:
        raise OptionError(f"normalize has num_heads={normalize.num_heads}, and the layer num_heads={num_heads}")
    if not callable(normalize):
        raise OptionError(
            f"normalize must be one of {', '.join(named)} or a function normalize(score, target, num_targets), "
            f"got {normalize!r}"
        )
    return check_function("normalize", normalize, "score, target, num_targets")
