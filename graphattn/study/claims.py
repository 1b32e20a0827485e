"""Claims: the order of arms that is predicted before training, and what became of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..arguments import flag, real, text, whole
from ..errors import OptionError
from .statistics import JUDGED, TESTED, Interval, holm, interval, sign_flip

LEVEL = 0.05


@dataclass(frozen=True)
class Claim:
    """``better`` has the better score, by more than ``margin``; or, with ``equal``, one no more than that apart.

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
            raise OptionError(f"margin must be at least 0 where two are claimed to be equal, got {self.margin}")
        if self.better == self.worse and self.worse_positions in (None, self.positions):
            raise OptionError(f"better and worse must be two, got {self.better!r} twice; or give worse_positions")

    def __str__(self) -> str:
        sign = "=" if self.equal else ">"
        within = f" within {self.margin:g}" if self.equal else f" by more than {self.margin:g}" * (self.margin != 0)
        where = [self.comparison] if self.comparison else []
        against = f", those of {self.worse} {self.worse_positions}" if self.worse_positions else ""
        where += [f"positions {self.positions}{against}"] if self.positions else []
        where += [f"{self.examples:,} examples"] if self.examples else []
        where += [f"budget {self.budget}"] if self.budget is not None else []
        told = f" ({'; '.join(where)})" if where else ""
        return f"{self.better} {sign} {self.worse}{within}{told}"

    def agrees(self, difference: float) -> bool:
        """Whether a difference of better and worse is as claimed, be it by chance."""
        return abs(difference) <= self.margin if self.equal else difference > self.margin


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Args:
        claim: In words.
        difference: Of better and worse, paired by seed; None without pairs.
        p: Of the sign-flip test after Holm's correction, with at least 10 seeds.
        verdict: "kept", "refuted", "open", "only shown" (fewer than 8 seeds, or claimed after both arms were measured)
            or "not measured".
    """

    claim: str
    difference: Interval | None
    p: float | None
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def check_significance(seeds: int) -> None:
    """Refuse a claim of significance that so few seeds cannot have.

    Raises:
        OptionError: If there are fewer than 10.
    """
    if seeds < TESTED:
        raise OptionError(
            f"significance needs at least {TESTED} seeds, got {seeds}: the least p of a sign-flip test of {seeds} is "
            f"{2 / 2**seeds:.3g}, before any correction; pass seeds={TESTED}, or significance=False"
        )


def judged(claims: Sequence[Claim], pairs: Sequence[list[float]], late: Sequence[str] = ()) -> list[Verdict]:
    """Verdicts from the paired differences of each claim, one for each seed; of those made ``late`` none, and the
    correction is for those made beforehand."""
    early = [i for i, claim in enumerate(claims) if str(claim) not in late]
    tested = [i for i in early if len(pairs[i]) >= TESTED and not claims[i].equal]
    p = [sign_flip([x - claims[i].margin for x in pairs[i]]) for i in tested]
    adjusted = dict(zip(tested, holm(p), strict=True))
    return [
        _judged(claim, found, adjusted.get(i), i not in early)
        for i, (claim, found) in enumerate(zip(claims, pairs, strict=True))
    ]


def _judged(claim: Claim, differences: list[float], p: float | None, is_late: bool) -> Verdict:
    if not differences:
        return Verdict(str(claim), None, None, "not measured")
    found = interval(differences)
    if len(differences) < JUDGED or is_late:
        return Verdict(str(claim), found, None, "only shown")
    if claim.equal:
        inside = -claim.margin <= found.low and found.high <= claim.margin
        apart = found.low > claim.margin or found.high < -claim.margin
        return Verdict(str(claim), found, None, "kept" if inside else "refuted" if apart else "open")
    sure = p is None or p < LEVEL
    kept, refuted = found.low > claim.margin, found.high < claim.margin
    return Verdict(str(claim), found, p, "kept" if kept and sure else "refuted" if refuted and sure else "open")
