"""A caller's own score or normalisation in place of a formula: called for every pair, and for each target alone."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import OptionError
from ..nn.normalizers import DenseNormalizer

DenseScore = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Scores (..., H, T, S) of query (..., T, H, D), key (..., S, H, D) and, if any, edge features (..., T, S, F)."""


def of_pairs(function: DenseScore) -> DenseScore:
    """A caller's own ``function(query, key, edge_attr)`` of edges, called on every pair as if all were edges.

    So a score that mixes edges, or that holds numbers of the edges it was made for, does not agree with itself here.
    """

    def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        T, S = query.shape[-3], key.shape[-3]
        query = query.unsqueeze(-3).expand(*query.shape[:-2], S, *query.shape[-2:]).flatten(-4, -3)
        key = key.unsqueeze(-4).expand(*key.shape[:-3], T, *key.shape[-3:]).flatten(-4, -3)
        result = function(query, key, None if edge_attr is None else edge_attr.flatten(-3, -2))  # (..., T * S, H)
        return result.unflatten(-2, (T, S)).movedim(-1, -3)

    return score


def of_rows(function: Callable[[Tensor, Tensor, int], Tensor], targets: Tensor, num_targets: int) -> DenseNormalizer:
    """A caller's own ``function(score, target, num_targets)`` of edges, called on one target after the other.

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
                weight = function(own.transpose(-2, -1), torch.full_like(column, target), num_targets)
                blank = blank.index_copy(-1, column, weight.to(score.dtype).transpose(-2, -1))
            rows.append(blank)
        return torch.stack(rows, -2) if rows else torch.zeros_like(score)

    return weights


def checked(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """A caller's own function; what it raises, or gives in another shape than it should, is reported as its own."""
    called = "dense twin called it with edges of its own choice: any number of them, float64"

    def answer(*operands: Any) -> Tensor:
        first = operands[0]
        expected = tuple(first.shape[:-1] if name == "score" else first.shape)
        try:
            result = function(*operands)
        except Exception as error:
            words = (str(error) or "?").splitlines()[0]
            raise OptionError(
                f"the layer's {name} raised {type(error).__name__}: {words}. The {called}; what belongs to edges "
                "goes in edge_attr, and what is learned in an nn.Module"
            ) from error
        if not isinstance(result, Tensor) or tuple(result.shape) != expected:
            came = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise OptionError(
                f"the layer's {name} must return (..., edges, heads) = {expected}, got {came}; the {called}"
            )
        return result

    return answer
