"""Dense twins of normalisations: the formulas of their papers on rows of scores, with torch and nothing else.

A twin gives weights (..., H, T, S) of scores (..., H, T, S), where ``there`` (bool, of the same shape) says which pairs
count: those of the mask whose score is above -inf. What it gives elsewhere must be 0. A test reads the imports.
"""

from collections.abc import Callable

import torch
from torch import Tensor

DenseNormalizer = Callable[[Tensor, Tensor], Tensor]


def sink(logit: Tensor) -> DenseNormalizer:
    """Softmax of the scores and of one more, ``logit`` (H,), whose weight is dropped (GPT-OSS)."""

    def weights(score: Tensor, there: Tensor) -> Tensor:
        more = logit[:, None, None].expand(*score.shape[:-1], 1)
        return torch.softmax(torch.cat((score.masked_fill(~there, -torch.inf), more), -1), -1)[..., :-1]

    return weights


def sigmoid(bias: float | None) -> DenseNormalizer:
    """``1 / (1 + exp(-score - b))``; b is ``-log n`` of the n that are there by default (Ramapuram et al. 2024)."""

    def weights(score: Tensor, there: Tensor) -> Tensor:
        score = score.masked_fill(~there, 0.0)
        if bias is not None:
            return torch.sigmoid(score + bias) * there
        count = there.sum(-1, keepdim=True).clamp(min=1).to(score.dtype)
        return torch.sigmoid(score - count.log()) * there

    return weights


def hard(score: Tensor, there: Tensor) -> Tensor:
    """1 at the largest score of a row, 0 elsewhere."""
    if score.shape[-1] == 0:
        return score
    largest = score.detach().masked_fill(~there, -torch.inf).argmax(-1, keepdim=True)
    return torch.zeros_like(score).scatter(-1, largest, 1.0) * there


def sparsemax(score: Tensor, there: Tensor) -> Tensor:
    """The nearest point of the simplex, ``max(0, score - tau)``; tau by Michelot's algorithm (1986).

    The support starts as everything, and loses what is below the mean excess until nothing is.
    """
    if score.shape[-1] == 0:
        return score
    peak = score.detach().masked_fill(~there, -torch.inf).amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    score = (score - peak).masked_fill(~there, 0.0)
    support = there
    while True:
        tau = ((score * support).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True).clamp(min=1)
        smaller = support & (score > tau)
        if torch.equal(smaller, support):
            return (score - tau) * support
        support = smaller


def by_sum(score: Tensor, there: Tensor) -> Tensor:
    """Scores over their sum; all 0 if that is 0 (Katharopoulos et al. 2020, equation 4)."""
    score = score.masked_fill(~there, 0.0)
    total = score.sum(-1, keepdim=True)
    return score / total.masked_fill(total == 0, 1.0)


def none(score: Tensor, there: Tensor) -> Tensor:
    """The scores themselves."""
    return score.masked_fill(~there, 0.0)


def of_rows(function: Callable[[Tensor, Tensor, int], Tensor], targets: Tensor, num_targets: int) -> DenseNormalizer:
    """A caller's own ``function(score, target, num_targets)`` of edges, asked about one target after the other.

    A call has the edges of that target alone, by source; where heads differ, a head that lacks one has -inf there. So a
    function that mixes the edges of several targets, or whose answer depends on their order, does not agree with itself
    here.

    Args:
        function: Gives weights (..., e, H) of scores (..., e, H) and int64 targets (e,).
        targets: int64 (R,), the number of each row.
        num_targets: T of the graph.
    """

    def weights(score: Tensor, there: Tensor) -> Tensor:
        rows = []
        for row, target in enumerate(targets.tolist()):
            here = there[..., row, :]
            column = torch.nonzero(here.flatten(0, -2).any(0)).flatten()
            own = score[..., row, :].masked_fill(~here, -torch.inf).index_select(-1, column)
            blank = torch.zeros_like(score[..., row, :])
            if column.numel():
                found = function(own.transpose(-2, -1), torch.full_like(column, target), num_targets)
                blank = blank.index_copy(-1, column, found.to(score.dtype).transpose(-2, -1))
            rows.append(blank)
        return torch.stack(rows, -2) if rows else torch.zeros_like(score)

    return weights
