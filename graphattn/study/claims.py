"""Claims: the order of arms that is predicted before training, and what became of it."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..arguments import flag, real, text, whole
from ..errors import OptionError
from .statistics import EXACT, LEVEL, Interval, effect_size, holm, interval, least_p, sign_flip

KEPT, BROKEN, NOT_DECIDED, SAME, OPPOSITE = (
    "kept",
    "broken",
    "not decided",
    "same sign",
    "opposite sign",
)
NOT_MEASURED = "not measured"
#: All that is said of a claim, and when.
VERDICTS = {
    KEPT: f"p < {LEVEL:g}, and all of the interval is as claimed",
    BROKEN: f"p < {LEVEL:g}, and none of the interval is as claimed",
    NOT_DECIDED: "neither; or an equality that is not judged",
    SAME: "not judged, as no p could be so small with so few seeds for so many claims, or as it "
    "was claimed late; the "
    "mean is on the side claimed",
    OPPOSITE: "not judged, and the mean is on the other side",
    NOT_MEASURED: "no seed of both arms has ended",
}


@dataclass(frozen=True)
class Claim:
    """``better`` has the better score, by more than ``margin``; or, with ``equal``, one no more
    than that apart.

    Args:
        better: An arm or a control, by name.
        worse: Another.
        positions: Of both; the first of the comparison by default.
        examples: Of both; those of the last budget by default.
        comparison: Its name, where a study has several.
        margin: In the units of the score.
        equal: Whether the claim is that the interval of the difference lies within the margin.
        because: The reason.
        budget: Of both, its number among the budgets of the comparison; the last one by default.
        worse_positions: Of ``worse``, where they are others.
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

    def __post_init__(self) -> None:
        for name in ("better", "worse", "because"):
            text(getattr(self, name), name)
        real(self.margin, "margin")
        for name in ("positions", "comparison", "worse_positions"):
            if getattr(self, name) is not None:
                text(getattr(self, name), name)
        for name, least in (("examples", 1), ("budget", 0)):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name, least)
        if flag(self.equal, "equal") and self.margin < 0:
            raise OptionError(
                f"margin must be at least 0 where two are claimed to be equal, got {self.margin}"
            )
        if self.better == self.worse and self.worse_positions in (None, self.positions):
            raise OptionError(
                f"better and worse must be two, got {self.better!r} twice; or give worse_positions"
            )

    def __str__(self) -> str:
        if self.equal:
            sign = "="
            within = f" within {self.margin:g}"
        else:
            sign = ">"
            within = f" by more than {self.margin:g}" * (self.margin != 0)
        if self.comparison:
            where = [self.comparison]
        else:
            where = []
        if self.worse_positions:
            against = f", those of {self.worse} {self.worse_positions}"
        else:
            against = ""
        where += [f"positions {self.positions}{against}"] if self.positions else []
        where += [f"{self.examples:,} examples"] if self.examples else []
        where += [f"budget {self.budget}"] if self.budget is not None else []
        if where:
            told = f" ({'; '.join(where)})"
        else:
            told = ""
        return f"{self.better} {sign} {self.worse}{within}{told}"

    def p(self, differences: Sequence[float]) -> float:
        """Of the sign-flip test against the margin; of equality against both ends of it, or against
        the one passed.
        """
        mean = float(np.mean(differences))
        margin = self.margin
        if self.equal and abs(mean) <= margin:
            ends = [margin, -margin]
        else:
            ends = [math.copysign(margin, mean) if self.equal else margin]
        return max(float(sign_flip(np.subtract(differences, end))) for end in ends)

    def judged(self, found: Interval) -> str:
        """By the interval alone."""
        if self.equal:
            inside = -self.margin <= found.low and found.high <= self.margin
            apart = found.low > self.margin or found.high < -self.margin
            if inside:
                return KEPT
            if apart:
                return BROKEN
            return NOT_DECIDED
        if found.low > self.margin:
            return KEPT
        if found.high < self.margin:
            return BROKEN
        return NOT_DECIDED

    def sign(self, found: Interval) -> str:
        """On which side of the margin the mean is; equality has no sides."""
        if self.equal or found.mean == self.margin:
            return NOT_DECIDED
        if found.mean > self.margin:
            return SAME
        return OPPOSITE


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Args:
        claim: In words.
        difference: Of better and worse, paired by seed; None without pairs.
        effect: Of it, :func:`graphattn.study.statistics.effect_size`.
        p: Of the sign-flip test after Holm's correction; None where it could not be below the
            level.
        verdict: One of :data:`VERDICTS`.
        remarks: What else is to be known of it.
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
            f"got {seeds}: the least "
            f"p of a sign-flip test of {seeds} is {least_p(seeds):.3g}, before the correction for "
            "all claims; pass "
            f"seeds={enough}, or significance=False"
        )


def judged(
    claims: Sequence[Claim],
    pairs: Sequence[list[float]],
    late: Sequence[str] = (),
    bounds: Sequence[tuple[float, float] | None] = (),
    withdrawn: int = 0,
) -> list[Verdict]:
    """Verdicts from the paired differences of each claim, one for each seed, corrected for all
    claims made beforehand, those ``withdrawn`` after looking too; of those made ``late`` and of
    those whose p could not be below the level the sign alone. ``bounds`` of what each difference
    may be."""
    early = [i for i, claim in enumerate(claims) if str(claim) not in late]
    unknown = [1.0] * withdrawn
    p = holm([claims[i].p(pairs[i]) if pairs[i] else 1.0 for i in early] + unknown)
    least = holm([least_p(len(pairs[i])) if pairs[i] else 1.0 for i in early] + unknown)
    tested = {
        i: of_claim for i, of_claim, best in zip(early, p, least, strict=False) if best < LEVEL
    }
    found = [
        interval(x, within) if x else None
        for x, within in zip(pairs, bounds or [None] * len(pairs), strict=True)
    ]
    return [_judged(claim, pairs[i], found[i], tested.get(i)) for i, claim in enumerate(claims)]


def _judged(claim: Claim, pairs: list[float], found: Interval | None, p: float | None) -> Verdict:
    if found is None:
        return Verdict(str(claim), None, None, None, NOT_MEASURED)
    effect = effect_size(pairs)
    if p is None:
        return Verdict(str(claim), found, effect, None, claim.sign(found))
    return Verdict(str(claim), found, effect, p, claim.judged(found) if p < LEVEL else NOT_DECIDED)
