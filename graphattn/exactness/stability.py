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

from .bounds import size
from .pieces import Piece
from .subject import Case, Problem, Result, Subject, detached, seeded

STEP = {torch.float64: 1e-7, torch.float32: 4e-6}  # relative, above the rounding of the dtype;
# and the fourth difference from which on it is a kink: what matters in float32, above what rounding
# makes
BEND = 1e-12
HALF_STEP = 4.0  # in eps of float16 and bfloat16,
# where jumps alone are distinguished from curves; kinks are many, and dense torch has them as well
HALF_BEND = 0.3
LINES = 2
_FOURTH = (1.0, -4.0, 6.0, -4.0, 1.0)


class Stability(NamedTuple):
    """Stable outputs, bool (..., T), and the growth of a relative change of the scores in them, >=
    1.
    """

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
    """The stability of the targets of some pieces, the others counted stable; ``None`` if all is
    smooth.
    """
    leaves = detached(subject.leaves(case, dtype), torch.float64)
    T = subject.graph.num_targets
    stable = None
    growth = 1.0
    undecided = subject.undecided(dtype)
    reading = any_stable = False
    half = dtype in (torch.float16, torch.bfloat16)
    if half:
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
            for line in range(LINES * (not problem.smooth)):
                here, grown = _along(
                    problem, piece, line, step, bend, right.output, size(right.lse)
                )
                stable[..., piece.targets] &= here
                growth = max(growth, grown)
            busy = problem.mask.any(-1)
            reading |= bool(busy.any())
            any_stable |= bool((stable[..., piece.targets] & busy).any())
    if stable is None:
        return None
    return Stability(stable, growth, any_stable or not reading)


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
    query, key = (
        _noise(f"{name} {line}", x, size(x))
        for name, x in (("query", problem.query), ("key", problem.key))
    )
    blank = right.new_zeros(right.shape[-2], *problem.mask.shape)  # (H, R, U)
    if problem.bias is None:
        bias = blank
    else:
        bias = problem.bias
    score = _noise(f"score {line}", blank, max(1.0, scores))
    outputs = []
    for times in (-2, -1, 0, 1, 2):
        by = times * step
        moved = replace(
            problem,
            query=problem.query + by * query,
            key=problem.key + by * key,
            bias=bias + by * score,
        )
        outputs.append(moved.attend(piece).output if times else right)
    whole = size(right) or 1.0
    bent = torch.stack([weight * x for weight, x in zip(_FOURTH, outputs, strict=True)]).sum(0)
    stable = (bent.abs() <= bend * whole).flatten(-2).all(-1)  # a NaN is not
    if right.numel():
        moved_by = (outputs[3] - outputs[1]).abs().flatten(-2).amax(-1)
    else:
        moved_by = stable.double()
    return stable, size(moved_by[stable]) / (2 * step * whole)


def _noise(name: str, like: Tensor, large: float) -> Tensor:
    return seeded(name, tuple(like.shape), 3).to(like) * large


class StableTargets:
    """A subject whose answers that are not stable are 0, in the code under test and in the twin
    alike.
    """

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
    return subject if where is None or where.left_out == 0 else StableTargets(subject, where.stable)  # type: ignore[return-value]
