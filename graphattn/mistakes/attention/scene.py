"""A few targets and all sources, on which a mistake about attention is made."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...twins.pieces import Piece
from ...twins.problem import Problem


class Rotation(NamedTuple):
    """Queries and keys before they are rotated, all positions, and the arguments of a rotary."""

    query: Tensor
    key: Tensor
    positions: tuple[Tensor, Tensor]
    base: float
    width: int
    layout: str
    num_axes: int


class Answer(NamedTuple):
    """Heads' output (..., R, H, D_v), and the rows (R,) for which the mistake says something."""

    output: Tensor
    has_edges: Tensor


@dataclass(frozen=True, eq=False)
class Scene:
    """A few targets and all sources, on which a mistake is made."""

    problem: Problem  # mask (R, S)
    graph: AttentionGraph
    piece: Piece
    copies: Tensor  # int64 (R, S), how often each edge is listed
    # the wrong output of these targets: (..., R, H, D_v), or a layer's
    output: Tensor
    rotation: Rotation | None = None  # of a layer that rotates

    @property
    def mask(self) -> Tensor:
        """bool (R, S)."""
        return self.problem.mask

    @property
    def targets(self) -> Tensor:
        """int64 (R,)."""
        return self.piece.targets

    def solve(self, copies: Tensor | None, **changes: Any) -> Answer | None:
        """The twin of a changed problem whose edges count so often, once if None."""
        problem = replace(self.problem, **changes)
        return Answer(problem.attend(self.piece, copies).output, problem.mask.any(1))

    def weigh(self, weights: Callable[[Tensor, Tensor], Tensor], **changes: Any) -> Answer | None:
        """The twin with other weights (..., H, R, S), a function of all scores and of the mask."""
        if self.problem.normalize is not None or bool((self.copies > 1).any()):
            return None
        every = torch.ones_like(self.mask)
        normalized = replace(
            self.problem,
            mask=every,
            normalize=lambda score, there: weights(score, there & self.mask),
            **changes,
        )
        return Answer(normalized.attend(self.piece).output, self.mask.any(1))


Make = Callable[[Scene], Answer | None]


Mistake = tuple[str, Make]
"""In words, and as the answer it would give; a table has the simpler ones first."""
