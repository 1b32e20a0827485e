"""Scenes of mistakes: the operands of a few targets and all sources, to be answered in a wrong way."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from .sample import Sample
from .subject import Problem


@dataclass(frozen=True, eq=False)
class Scene:
    """What a mistake is made on: a few targets, and all sources."""

    problem: Problem  # mask (R, S)
    graph: AttentionGraph
    piece: Sample
    copies: Tensor  # int64 (R, S), how often each edge is listed

    @property
    def mask(self) -> Tensor:
        """bool (R, S)."""
        return self.problem.mask

    @property
    def targets(self) -> Tensor:
        """int64 (R,)."""
        return self.piece.targets

    @property
    def diagonal(self) -> Tensor:
        """bool (R, S): the self-loops."""
        return self.targets[:, None] == torch.arange(self.graph.num_sources, device=self.targets.device)[None, :]


class Answer(NamedTuple):
    """Heads' output (..., R, H, D_v), and the rows (R,) for which the mistake says something."""

    output: Tensor
    has_edges: Tensor


Mistake = tuple[str, Callable[[Scene], Answer | None]]
"""In words, and as the answer it would give; a table has the simpler ones first."""


def attend(
    scene: Scene, mask: Tensor | None = None, copies: Tensor | None = None, scale: float | None = None
) -> Answer | None:
    """The twin under another mask (R, S), multiplicity or scale; ``None`` where a score has no such scale."""
    p = scene.problem
    if scale is not None and p.score is not None:
        return None
    mask = p.mask if mask is None else mask
    return solved(scene, replace(p, mask=mask, scale=p.scale if scale is None else scale), copies)


def solved(scene: Scene, problem: Problem, copies: Tensor | None) -> Answer | None:
    """Its answer; ``None`` where edges count several times and the weights are not of softmax."""
    several = copies is not None and bool((copies[problem.mask] > 1).any())
    if several and problem.normalize is not None:
        return None
    output = problem.attend(scene.piece, copies if problem.normalize is None else None).output
    return Answer(output, problem.mask.any(1))


def with_mask(mask: Tensor, scene: Scene) -> Answer | None:
    counted = bool((scene.copies > 1).any())
    return None if torch.equal(mask, scene.mask) and not counted else attend(scene, mask)
