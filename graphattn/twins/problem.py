"""The operands of a dense twin on a piece of a graph, and the twin's result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from .dense import DenseResult, dense_attention
from .pieces import Piece

DenseNormalizer = Callable[[Tensor, Tensor], Tensor]
"""Weights (..., H, T, S) of scores and of the mask (T, S)."""
DenseScore = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Scores (..., H, T, S) of query (..., T, H, D), key (..., S, H, D) and edge features or None."""


class Result(NamedTuple):
    """Output (..., T or R, ...), lse (..., T or R, H) and weights (..., E or e, H).

    ``None`` where they are not requested.
    """

    output: Tensor
    lse: Tensor | None = None
    weights: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """The operands of dense attention on a piece, and what follows it."""

    query: Tensor  # (..., R, H, D)
    key: Tensor  # (..., U, H_kv, D)
    value: Tensor  # (..., U, H_kv, D_v)
    mask: Tensor  # (R, U)
    scale: float
    bias: Tensor | None = None  # (..., H or 1, R, U)
    softcap: float | None = None
    edge: Tensor | None = None  # (..., R, U, H_kv, D)
    edge_attr: Tensor | None = None  # (..., R, U, F), for the score
    score: DenseScore | None = None
    normalize: DenseNormalizer | None = None
    edge_to: str = "both"
    cap_bias: bool = False
    # whether rounding is known to stay small: no kink, no jump, no sum of both signs
    smooth: bool = True
    finish: Callable[[Tensor], Tensor] = field(default=lambda heads: heads)

    def solve(self, piece: Piece) -> Result:
        """The twin's result."""
        result = self.attend(piece)
        weights = piece.collect(result.weights).transpose(-2, -1)  # (..., e, H)
        return Result(self.finish(result.output), result.lse, weights)

    def attend(self, piece: Piece, copies: Tensor | None = None) -> DenseResult:
        """Attention alone, before ``finish``; ``copies`` (R, U) says how often each edge counts."""
        if piece.slots is not None:
            return self._row_by_row(piece.slots)
        score = _of_edges(self.score, self.edge_attr)
        options = (
            self.bias,
            self.scale,
            self.softcap,
            copies,
            self.edge,
            score,
            self.normalize,
            self.edge_to,
            self.cap_bias,
        )
        return dense_attention(self.query, self.key, self.value, self.mask, *options)

    def _row_by_row(self, slots: Tensor) -> DenseResult:
        """Attention of rows with sources of their own: a problem with one target for each row."""
        key, value = (
            x.index_select(-3, slots.flatten()).unflatten(-3, slots.shape)
            for x in (self.key, self.value)
        )
        query = self.query.unsqueeze(-3)  # (..., R, 1, H, D)
        mask = self.mask[:, None, None]  # (R, 1, 1, W)
        bias = self.bias
        if bias is not None:
            bias = bias.movedim(-2, -3).unsqueeze(-2)  # (..., R, H, 1, W)
        edge = self.edge
        if edge is not None:
            edge = edge.unsqueeze(-4)  # (..., R, 1, W, H_kv, D)
        edge_attr = self.edge_attr
        if edge_attr is not None:
            edge_attr = edge_attr.unsqueeze(-3)  # (..., R, 1, W, F)
        score = _of_edges(self.score, edge_attr)
        of_rows = self.normalize
        normalize: DenseNormalizer | None = None
        if of_rows is not None:

            def normalize(score: Tensor, there: Tensor) -> Tensor:
                """Weights (..., R, H, 1, W) of rows that are computed together."""
                score, there = (x.squeeze(-2).movedim(-2, -3) for x in (score, there))
                return of_rows(score, there).movedim(-3, -2).unsqueeze(-2)

        options = (
            bias,
            self.scale,
            self.softcap,
            None,
            edge,
            score,
            normalize,
            self.edge_to,
            self.cap_bias,
        )
        result = dense_attention(query, key, value, mask, *options)
        return DenseResult(
            result.output.squeeze(-3),
            result.weights.squeeze(-2).movedim(-2, -3),
            result.lse.squeeze(-2),
        )


def _of_edges(
    score: DenseScore | None, edge_attr: Tensor | None
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The score with its edge features in place."""
    if score is None:
        return None
    return lambda query, key: score(query, key, edge_attr)
