"""Stability of an output under rounding: ties, kinks and sums near 0 make two right answers differ.

Softmax of products is smooth. A normalisation that picks the largest score jumps where two are
equal, sparsemax and a score with a ReLU have kinks, and scores of both signs may sum to nearly 0.
Near such places two right answers in floating point may differ by any amount, so a target there
proves nothing and is left out. None of these places is known here: the float64 twin runs at five
steps along a line through its queries, keys and scores. A smooth answer has a fourth difference of
(step)^4; a jump or a kink between the steps has one that is far larger. A layer on edges that its
queries and keys choose says itself which targets' edges a rounding would change.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..twins.pieces import Piece
from ..twins.problem import Problem, Result
from .bounds import size
from .subject import Case, Subject, detached, seeded

STEP = {torch.float64: 1e-7, torch.float32: 4e-6}  # relative, above the rounding of the dtype
# the least fourth difference of a kink: what matters in float32, above what rounding makes
BEND = 1e-12
HALF_STEP = 4.0  # in eps of float16 and bfloat16
# in half precision jumps alone count: kinks are many, and dense torch has them as well
HALF_BEND = 0.3
LINES = 2
_FOURTH = (1.0, -4.0, 6.0, -4.0, 1.0)


class Stability(NamedTuple):
    """Stable outputs, bool (..., T), and the growth >= 1 of a relative change of their scores."""

    stable: Tensor
    growth: float
    some: bool
    """True if a target with an edge is stable, or there is none."""

    @property
    def left_out(self) -> int:
        """Answers that are not stable."""
        return int((~self.stable).sum())


def stability(
    subject: Subject, case: Case, dtype: torch.dtype, pieces: Iterable[Piece]
) -> Stability | None:
    """The stability of the pieces' targets, all others stable; ``None`` if all is smooth."""
    leaves = detached(subject.leaves(case, dtype), torch.float64)
    T = subject.graph.num_targets
    stable = None
    growth = 1.0
    undecided = subject.undecided(dtype)
    any_edges = False
    any_stable = False
    if dtype in (torch.float16, torch.bfloat16):
        step = HALF_STEP * torch.finfo(dtype).eps
        bend = HALF_BEND
    else:
        step = STEP[dtype]
        bend = BEND
    with torch.no_grad():
        for piece in pieces:
            problem = subject.problem(leaves, case, piece)
            if problem.smooth and undecided is None:
                return None
            right = problem.attend(piece)
            if stable is None:
                stable = torch.ones(
                    *right.output.shape[:-3], T, dtype=torch.bool, device=piece.targets.device
                )
                if undecided is not None:
                    stable &= ~undecided
            if not problem.smooth:
                for line in range(LINES):
                    rows, by = _along(
                        problem, piece, line, step, bend, right.output, size(right.lse)
                    )
                    stable[..., piece.targets] &= rows
                    growth = max(growth, by)
            has_edges = problem.mask.any(-1)
            any_edges |= bool(has_edges.any())
            any_stable |= bool((stable[..., piece.targets] & has_edges).any())
    if stable is None:
        return None
    return Stability(stable, growth, any_stable or not any_edges)


def _along(
    problem: Problem,
    piece: Piece,
    line: int,
    step: float,
    bend: float,
    right: Tensor,
    scores: float,
) -> tuple[Tensor, float]:
    """Rows (..., R) that are stable along a line, and the growth of a step in them."""
    query = _noise(f"query {line}", problem.query, size(problem.query))
    key = _noise(f"key {line}", problem.key, size(problem.key))
    blank = right.new_zeros(right.shape[-2], *problem.mask.shape)  # (H, R, U)
    if problem.bias is None:
        bias = blank
    else:
        bias = problem.bias
    score = _noise(f"score {line}", blank, max(1.0, scores))
    outputs = []
    for times in (-2, -1, 0, 1, 2):
        if times == 0:
            outputs.append(right)
            continue
        by = times * step
        moved = replace(
            problem,
            query=problem.query + by * query,
            key=problem.key + by * key,
            bias=bias + by * score,
        )
        outputs.append(moved.attend(piece).output)
    magnitude = size(right) or 1.0
    bent = torch.stack([weight * x for weight, x in zip(_FOURTH, outputs, strict=True)]).sum(0)
    stable = (bent.abs() <= bend * magnitude).flatten(-2).all(-1)  # a NaN is not
    if right.numel():
        moved_by = (outputs[3] - outputs[1]).abs().flatten(-2).amax(-1)
    else:
        moved_by = stable.double()
    return stable, size(moved_by[stable]) / (2 * step * magnitude)


def _noise(name: str, like: Tensor, large: float) -> Tensor:
    return seeded(name, tuple(like.shape), 3).to(like) * large


class StableTargets:
    """A subject whose unstable outputs are 0, in the code under test and in the twin alike."""

    def __init__(self, subject: Subject, stable: Tensor) -> None:
        self.subject = subject
        self.stable = stable.unsqueeze(-1)

    def __getattr__(self, name: str) -> object:
        return getattr(self.subject, name)

    def run(self, leaves: dict[str, Tensor], case: Case, backend: str) -> Result:
        result = self.subject.run(leaves, case, backend)
        return result._replace(output=torch.where(self.stable, result.output, 0.0))

    def problem(self, leaves: dict[str, Tensor], case: Case, piece: Piece) -> Problem:
        problem = self.subject.problem(leaves, case, piece)
        stable = self.stable.index_select(-2, piece.targets)
        return replace(
            problem, finish=lambda heads: torch.where(stable, problem.finish(heads), 0.0)
        )


def only_stable(subject: Subject, where: Stability | None) -> Subject:
    """The subject where it is stable."""
    if where is None or where.left_out == 0:
        return subject
    return StableTargets(subject, where.stable)  # type: ignore[return-value]
