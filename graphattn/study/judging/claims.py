"""Claims: the order of arms that is predicted before training, and its verdict."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...arguments import flag, one_of, positive, real, text, whole
from ...errors import OptionError
from ...statistics.collapse import share_difference, share_test, typical_pairs
from ...statistics.intervals import (
    EXACT,
    LEVEL,
    MEAN,
    TYPICAL,
    Interval,
    effect_size,
    holm,
    least_p,
    mean_interval,
    sign_flip,
)
from .fits import BITS_CURVE, CURVES, SCORE_CURVE
from .fits import LEVEL as FITS
from .steps import Steps

KEPT, BROKEN, NOT_DECIDED, SAME, OPPOSITE = (
    "kept",
    "broken",
    "not decided",
    "same sign",
    "opposite sign",
)
NOT_MEASURED = "not measured"
NOT_FITTED = "did not fit"
COLLAPSED = "runs collapsed"
SCORE, FITTING, SOLVING, STEPS = "score", "fitting", "solving", "steps"
"""Quantities that a claim compares: the score of typical runs, the share of runs that fit or that
solve, or the steps until a training curve has a level.
"""
#: Verdicts on a claim, and the rule of each.
VERDICTS = {
    KEPT: f"p < {LEVEL:g}, and all of the interval is as claimed",
    BROKEN: f"p < {LEVEL:g}, and none of the interval is as claimed",
    NOT_DECIDED: "neither; or an equality that is not judged",
    SAME: "not judged, as no p could be so small with so few seeds for so many claims, or as it "
    "was claimed after both arms had been measured; the mean is on the side claimed",
    OPPOSITE: "not judged, and the mean is on the other side",
    NOT_MEASURED: "no seed of both arms has ended",
    NOT_FITTED: "not judged, as an arm neither fitted its training examples nor levelled off, so that "
    "scores compare a budget and no graphs",
    COLLAPSED: "not judged, as more than a third of the runs of an arm collapsed, so that none is "
    "typical; a claim of solving compares shares of runs",
}


@dataclass(frozen=True)
class Claim:
    """``better`` scores higher by more than ``margin``, or, with ``equal``, differs by no more.

    A claim about scores is one about typical runs: about all, or, where runs fall into two groups
    as some collapse, about those that do not. Of means, no test on a few seeds could hold: that one
    run in ten collapses is not seen in 35 % of studies of ten seeds.

    Args:
        better: An arm or a control, by name.
        worse: Another one.
        positions: Positions of both arms; the first of the comparison by default.
        examples: Training-set size of both arms; that of the last budget by default.
        comparison: Name of the comparison, if a study has several.
        margin: Margin in the units of the score.
        equal: True if the claim is that the interval of the difference lies within the margin.
        because: The reason.
        budget: Number of the budget of both arms in the comparison; the last one by default.
        worse_positions: Positions of ``worse``, if they differ.
        of: "score"; or "fitting" or "solving", the share of runs that name .95 of their training
            examples, or of what was held out, rightly, by an exact test; or "steps": ``better``
            takes fewer batches until its training has a level. Runs that never have it count, as
            slower than all that do.
        worse_comparison: Comparison of ``worse``, if it is another one, of the same metric: two
            depths, models or lengths, paired by seed.
        group: Part of the test that the scores are of, by its name in ``Data(groups=)``.
        level: Level of a claim of steps: a score at least, a loss or bits at most; of a score that
            of a fit, .95, by default.
        curve: What the level is of: "score", the accuracy of training batches (R2 of values);
            "loss", in nats (of values the squared error in deviations); or "bits".
    """

    better: str
    worse: str
    positions: str | None = None
    examples: int | None = None
    comparison: str | None = None
    margin: float = 0.0
    equal: bool = False
    because: str = ""
    budget: int | None = None
    worse_positions: str | None = None
    of: str = SCORE
    worse_comparison: str | None = None
    group: str | None = None
    level: float | None = None
    curve: str = SCORE_CURVE

    def __post_init__(self) -> None:
        for name in ("better", "worse", "because"):
            text(getattr(self, name), name)
        real(self.margin, "margin")
        for name in ("positions", "comparison", "worse_positions", "worse_comparison", "group"):
            if getattr(self, name) is not None:
                text(getattr(self, name), name)
        for name, least in (("examples", 1), ("budget", 0)):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name, least)
        if flag(self.equal, "equal") and self.margin < 0:
            raise OptionError(
                f"margin must be at least 0 where two are claimed to be equal, got {self.margin}"
            )
        one_of(self.of, "of", (SCORE, FITTING, SOLVING, STEPS))
        if self.of != SCORE and (self.equal or self.margin):
            raise OptionError(f"of={self.of!r} takes no margin; leave out margin and equal")
        self._check_level()
        one_place = self.worse_comparison in (None, self.comparison)
        one_place = one_place and self.worse_positions in (None, self.positions)
        if self.better == self.worse and one_place:
            raise OptionError(
                f"better and worse must be two, got {self.better!r} twice; or give worse_positions "
                "or worse_comparison"
            )
        if self.group is not None and self.of != SCORE:
            raise OptionError("group is a part of the test: a claim about scores; leave out of")

    def _check_level(self) -> None:
        """Refuse a level or a curve of another claim than one of steps, and a level that none has."""
        one_of(self.curve, "curve", CURVES)
        if self.of != STEPS:
            if self.level is not None or self.curve != SCORE_CURVE:
                raise OptionError(
                    f"level and curve are of a claim of steps, got of={self.of!r}; give "
                    f"of={STEPS!r}, or leave them out"
                )
            return
        if self.curve == SCORE_CURVE:
            if self.level is not None and real(self.level, "level") > 1:
                raise OptionError(
                    f"level must be a score of 1 at most, got {self.level:g}; or give curve='loss'"
                )
        elif self.level is None:
            raise OptionError(f"level must be given where curve is {self.curve!r}: a number")
        else:
            positive(self.level, "level")

    @property
    def least(self) -> float:
        """The level of a claim of steps."""
        if self.level is None:
            return FITS
        return self.level

    def _steps(self) -> str:
        """A claim of steps in words, without where it is made."""
        if self.level is None:
            does = "fits"
        elif self.curve == SCORE_CURVE:
            does = f"has a score of {self.level:g}"
        elif self.curve == BITS_CURVE:
            does = f"has {self.level:g} bits"
        else:
            does = f"has a loss of {self.level:g}"
        return f"{self.better} {does} in fewer steps than {self.worse}"

    def _words(self) -> str:
        """The claim in words, without where it is made."""
        if self.of == STEPS:
            return self._steps()
        if self.of != SCORE:
            return f"{self.better} > {self.worse} in {self.of}"
        if self.equal:
            return f"{self.better} = {self.worse} within {self.margin:g}"
        within = f" by more than {self.margin:g}" * (self.margin != 0)
        return f"{self.better} > {self.worse}{within}"

    def __str__(self) -> str:
        where = []
        if self.comparison and self.worse_comparison:
            where.append(f"{self.comparison}, against {self.worse_comparison}")
        elif self.comparison:
            where.append(self.comparison)
        if self.group:
            where.append(f"group {self.group}")
        if self.positions and self.worse_positions:
            against = f"those of {self.worse} {self.worse_positions}"
            where.append(f"positions {self.positions}, {against}")
        elif self.positions:
            where.append(f"positions {self.positions}")
        if self.examples:
            where.append(f"{self.examples:,} examples")
        if self.budget is not None:
            where.append(f"budget {self.budget}")
        if where:
            return f"{self._words()} ({'; '.join(where)})"
        return self._words()

    def p(self, differences: Sequence[float]) -> float:
        """p of the sign-flip test against the margin; for equality, against both ends."""
        mean = float(np.mean(differences))
        margin = self.margin
        if not self.equal:
            ends = [margin]
        elif abs(mean) <= margin:
            ends = [margin, -margin]
        else:
            ends = [math.copysign(margin, mean)]
        return max(float(sign_flip(np.subtract(differences, end))) for end in ends)

    def judged(self, difference: Interval) -> str:
        """The verdict by the interval alone."""
        if not self.equal:
            if difference.low > self.margin:
                return KEPT
            if difference.high < self.margin:
                return BROKEN
            return NOT_DECIDED
        if -self.margin <= difference.low <= difference.high <= self.margin:
            return KEPT
        if difference.low > self.margin or difference.high < -self.margin:
            return BROKEN
        return NOT_DECIDED

    def sign(self, difference: Interval) -> str:
        """The side of the margin that the mean is on; equality has no sides."""
        if self.equal or difference.value == self.margin:
            return NOT_DECIDED
        if difference.value > self.margin:
            return SAME
        return OPPOSITE


@dataclass(frozen=True)
class FitShares:
    """Runs of two arms that fit, or that solve.

    Args:
        hits: Of the better arm.
        runs: All of it.
        other_hits: Of the worse arm.
        other_runs: All of it.
        verb: "fitted" or "solved".
    """

    hits: int
    runs: int
    other_hits: int
    other_runs: int
    verb: str = "fitted"

    @property
    def p(self) -> float:
        """Two-sided p of Fisher's exact test."""
        return share_test(self.hits, self.runs, self.other_hits, self.other_runs)

    @property
    def least_p(self) -> float:
        """Its p if all runs of one arm do and none of the other."""
        return share_test(self.runs, self.runs, 0, self.other_runs)

    @property
    def difference(self) -> Interval:
        """Difference of the shares."""
        counts = (self.hits, self.runs, self.other_hits, self.other_runs)
        return Interval(*share_difference(*counts), min(self.runs, self.other_runs))

    def __str__(self) -> str:
        runs = f"{self.hits} of {self.runs} runs"
        return f"{self.verb} {runs} and {self.other_hits} of {self.other_runs}"


@dataclass(frozen=True)
class Verdict:
    """The result of a claim.

    Args:
        claim: The claim in words.
        difference: Difference of better and worse, paired by seed; None without pairs. Of a claim
            of steps the ratio, worse to better (:class:`graphattn.study.judging.steps.Ratio`).
        effect: Its effect size, :func:`graphattn.statistics.intervals.effect_size`.
        p: p of the sign-flip test after Holm's correction; None if it could not be below the level.
        verdict: One of :data:`VERDICTS`.
        remarks: Notes on the claim.
    """

    claim: str
    difference: Interval | None
    effect: Interval | None
    p: float | None
    verdict: str
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def check_significance(seeds: int, claims: int = 1) -> None:
    """Refuse a claim of significance that so few seeds cannot have.

    Raises:
        OptionError: If no p could be below the level after correction for so many claims.
    """
    enough = next((n for n in range(1, EXACT + 1) if claims * least_p(n) < LEVEL), EXACT + 1)
    if seeds < enough:
        raise OptionError(
            f"significance of {claims} claim{'s' * (claims > 1)} needs at least {enough} seeds, "
            f"got {seeds}: the least p of a sign-flip test of {seeds} is {least_p(seeds):.3g}, "
            f"before the correction for all claims; pass seeds={enough}, or significance=False"
        )


@dataclass(frozen=True)
class Pairs:
    """Paired differences of two arms, and those of typical runs.

    Args:
        differences: All, one for each seed.
        typical: Those of pairs in which both runs are typical; empty where no run is.
    """

    differences: list[float]
    typical: list[float]

    @classmethod
    def of(cls, differences: list[float], scores: Sequence[Sequence[float]] = ()) -> "Pairs":
        """Sort out what is typical; ``scores`` of each of the two arms on the same seeds."""
        mask = typical_pairs(differences, scores)
        if mask is None:
            return cls(differences, [])
        return cls(differences, np.asarray(differences, dtype=float)[mask].tolist())

    @property
    def collapsed(self) -> bool:
        """True if some pair is not of typical runs."""
        return len(self.typical) < len(self.differences)

    def interval(self, bounds: tuple[float, float] | None = None) -> Interval:
        """The interval of typical runs' differences; without such runs the mean of all alone."""
        if not self.typical:
            count = len(self.differences)
            return Interval(float(np.mean(self.differences)), math.nan, math.nan, count)
        estimand = MEAN
        if self.collapsed:
            estimand = TYPICAL
        return mean_interval(self.typical, bounds, estimand)


def judged(
    claims: Sequence[Claim],
    pairs: Sequence[list[float]],
    late: Sequence[str] = (),
    bounds: Sequence[tuple[float, float] | None] = (),
    withdrawn: int = 0,
    counts: Sequence[FitShares | Steps | None] = (),
    scores: Sequence[Sequence[Sequence[float]]] = (),
) -> list[Verdict]:
    """Verdicts from the paired differences of each claim, one for each seed.

    Corrected for all claims made beforehand, those ``withdrawn`` after looking too. Of claims made
    ``late``, and of those whose p could not be below the level, only the sign. ``bounds`` of each
    difference; ``counts`` of claims about fitting, solving or steps; ``scores`` of both arms of
    each on the same seeds, by which runs that collapsed are told from others.
    """
    of_runs = counts or [None] * len(claims)
    of_arms = scores or [()] * len(claims)
    pairs_of_claims = [
        Pairs.of(list(differences), of) for differences, of in zip(pairs, of_arms, strict=True)
    ]
    early = [i for i, claim in enumerate(claims) if str(claim) not in late]
    p = []
    least = []
    for i in early:
        count = of_runs[i]
        typical = pairs_of_claims[i].typical
        if count is not None:
            p.append(count.p)
            least.append(count.least_p)
        elif typical:
            p.append(claims[i].p(typical))
            least.append(least_p(len(typical)))
        else:
            p.append(1.0)
            least.append(1.0)
    unknown = [1.0] * withdrawn
    adjusted = zip(early, holm(p + unknown), holm(least + unknown), strict=False)
    adjusted_p = {i: of_claim for i, of_claim, best in adjusted if best < LEVEL}
    limits = bounds or [None] * len(pairs)
    verdicts = []
    for i, claim in enumerate(claims):
        count = of_runs[i]
        if count is None:
            verdicts.append(_judged(claim, pairs_of_claims[i], limits[i], adjusted_p.get(i)))
        else:
            verdicts.append(_judged_of_runs(claim, count, adjusted_p.get(i)))
    return verdicts


def _judged_of_runs(claim: Claim, runs: FitShares | Steps, p: float | None) -> Verdict:
    difference = runs.difference
    if isinstance(runs, Steps):
        word = _first_in_a_word(runs.lead, p)
    else:
        word = _in_a_word(claim, difference, p)
    return Verdict(str(claim), difference, None, p, word, (str(runs),))


def _first_in_a_word(lead: int, p: float | None) -> str:
    """The verdict of a claim of steps, by its test and by which arm was first."""
    words = (KEPT, BROKEN)
    if p is None:
        words = (SAME, OPPOSITE)
    elif p >= LEVEL:
        return NOT_DECIDED
    return {1: words[0], -1: words[1]}.get(lead, NOT_DECIDED)


def _judged(
    claim: Claim, pairs: Pairs, bounds: tuple[float, float] | None, p: float | None
) -> Verdict:
    if claim.of != SCORE or not pairs.differences:
        return Verdict(str(claim), None, None, None, NOT_MEASURED)
    difference = pairs.interval(bounds)
    if not pairs.typical:
        return Verdict(str(claim), difference, None, None, COLLAPSED)
    effect = effect_size(pairs.typical)
    remarks: tuple[str, ...] = ()
    if pairs.collapsed:
        count = f"{len(pairs.typical)} of {len(pairs.differences)}"
        remarks = (f"of typical runs, {count} pairs",)
    verdict = _in_a_word(claim, difference, p)
    return Verdict(str(claim), difference, effect, p, verdict, remarks)


def _in_a_word(claim: Claim, difference: Interval, p: float | None) -> str:
    """The verdict of a test, or of the sign alone where too few seeds leave no test."""
    if p is None:
        return claim.sign(difference)
    if p < LEVEL:
        return claim.judged(difference)
    return NOT_DECIDED
