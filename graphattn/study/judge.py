"""Fits of arms, and verdicts on claims: what a number of runs can settle."""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median

import numpy as np

from ..statistics.collapse import groups_of, share_difference, share_test, typical_pairs
from ..statistics.intervals import (
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
from ..statistics.steps import Steps
from .claims import BITS_CURVE, FITS_AT, FITTING, SCORE_CURVE, SOLVING, Claim
from .data import FITS
from .records import Entry

GUESS = 0.95
"""Share of the cross-entropy of a guess above which nothing was learned."""
STILL, MOVES = 0.01, 0.05
"""Shares of the loss of a guess: a fall in the mean, and of one run, below which runs stand still."""
_LEAST_POINTS = 8  # of a training curve, by which it is said to stand still
CANNOT = "cannot"
UNFIT = "did not fit"
FITTED = "fitted, did not generalise"
LEVELLED = "levelled off"
SOLVED = "solved"
UNKNOWN = "fit unknown"
LEARNED = "learned"
#: The class of a run, and its rule; the first that applies.
CLASSES = {
    CANNOT: f"a ceiling, by law or by colours, is below {FITS_AT:g} (by colours also reached)",
    SOLVED: f"{FITS_AT:g} or more on what was held out (accuracy; of numbers R2, of labels AP)",
    FITTED: f"{FITS_AT:g} or more in training alone",
    LEVELLED: f"less, but learning had begun (below {GUESS:g} of a guess's loss) and every such run "
    f"stood still: in the last quarter losses fell by less than {STILL:g} of a guess's in the mean, "
    f"and moved by less than {MOVES:g} in each",
    UNFIT: f"none of these; of bits, {GUESS:g} or more of the loss of a guess",
    LEARNED: "of bits, less than that",
    UNKNOWN: "trained before fits were recorded, and the loss does not tell",
}
TOO_OLD = "trained before fits were recorded"
KEPT, BROKEN, NOT_DECIDED = "kept", "broken", "not decided"
SAME, OPPOSITE = "same sign", "opposite sign"
NOT_MEASURED, NOT_FITTED, COLLAPSED = "not measured", "did not fit", "runs collapsed"
#: Verdicts on a claim, and the rule of each.
VERDICTS = {
    KEPT: f"p < {LEVEL:g}, and all of the interval is as claimed",
    BROKEN: f"p < {LEVEL:g}, and none of the interval is as claimed",
    NOT_DECIDED: "neither; or an equality that is not judged",
    SAME: "not judged (too few seeds for so many claims, or claimed after looking); the mean is on "
    "the side claimed",
    OPPOSITE: "not judged, and the mean is on the other side",
    NOT_MEASURED: "no seed of both arms has ended",
    NOT_FITTED: "not judged: an arm neither fitted nor levelled off, so that scores compare budgets",
    COLLAPSED: "not judged: more than a third of an arm's runs collapsed; claim solving instead",
}


def fit_metric(record: Entry) -> str:
    """The score that says whether a run fitted or solved: accuracy; AP of labels, R2 of values."""
    return next(name for name in FITS if name in record)


def fitted(record: Entry, guess_nats: float) -> bool | None:
    """True if a trial names its training examples rightly; None where that cannot be told.

    Older trials have their last training loss alone. A wrong answer costs ln 2 nats or more, so
    that a loss of at most ``.05 ln 2`` leaves .95 right; and a loss near that of a guess is one.
    """
    by = f"train_{fit_metric(record)}"
    if by in record:
        return record[by] is not None and record[by] >= FITS_AT
    loss = record.get("loss")
    if loss is None:
        return None
    if loss <= (1 - FITS_AT) * math.log(2):
        return True
    if loss >= GUESS * guess_nats:
        return False
    return None


def bound_of(record: Entry, law: float | None, colours: float | None) -> float | None:
    """The ceiling that kept a run from fitting: a law's, or that of colours if the run is near it.

    A law that lets it fit leaves that to colours. That of colours is of its training examples, by
    the score that says whether it fitted.
    """
    if colours is None or (law is not None and law < FITS_AT):
        return law
    by = fit_metric(record)
    score = record.get(f"train_{by}")
    near = FITS_AT * colours
    if by == "r2":  # of which a guess has 0
        near = colours - (1 - FITS_AT)
    if score is not None and near <= score < FITS_AT and record[by] < FITS_AT:
        return colours
    return law


def class_of(record: Entry, ceiling: float | None, metric: str, guess_nats: float) -> str:
    """The class of a run that has a number: the first of :data:`CLASSES` that applies.

    Whether it levelled off is judged with the other runs of its arm (:func:`fit_of`).
    """
    if ceiling is not None and ceiling < FITS_AT:
        return CANNOT
    if metric == "bits":
        if _training_nats(record) >= GUESS * guess_nats:
            return UNFIT
        return LEARNED
    if record[fit_metric(record)] >= FITS_AT:
        return SOLVED
    return {None: UNKNOWN, True: FITTED, False: UNFIT}[fitted(record, guess_nats)]


def _training_nats(record: Entry) -> float:
    """Loss on training examples at the end; a guess's or worse where it is no number."""
    if record.get("train_bits") is not None:
        return float(record["train_bits"]) * math.log(2)
    if record.get("loss") is not None:
        return float(record["loss"])
    return math.inf


def levelled_off(records: list[Entry], guess_nats: float) -> list[Entry]:
    """Runs of an arm that did not fit, have begun to learn, and all stood still.

    A run at the loss of a guess has not begun to learn, and may do so with more batches. The
    batches of one run vary, so that its own bound is wider than that of the mean; but one that
    rises takes nothing from others that fall.
    """
    begun = [record for record in records if _training_nats(record) < GUESS * guess_nats]
    falls = []
    for record in begun:
        losses = [point[1] for point in record.get("curve", [])]
        if len(losses) < _LEAST_POINTS:
            return []
        quarter = len(losses) // 4  # the third less the last
        falls.append(fmean(losses[-2 * quarter : -quarter]) - fmean(losses[-quarter:]))
    if not falls or not math.isfinite(guess_nats):
        return []
    if max(map(abs, falls)) < MOVES * guess_nats and fmean(falls) < STILL * guess_nats:
        return begun
    return []


def reached(
    record: Entry, level: float = FITS_AT, curve: str = SCORE_CURVE
) -> tuple[int, int] | None:
    """First and last batch of the first stretch of a training curve that had a level; else None.

    Args:
        record: The record of its trial.
        level: Score at least; loss or bits at most.
        curve: "score", "loss" or "bits".
    """
    first = 1
    points = record.get("curve", [])
    for step, loss, score in points:
        if _has(level, curve, score, loss):
            return first, int(step)
        last = (first, int(step))
        first = int(step) + 1
    if not points:
        return None
    score = next((record[f"train_{name}"] for name in FITS if f"train_{name}" in record), None)
    loss = record.get("loss")
    if curve == BITS_CURVE and record.get("train_bits") is not None:
        loss = record["train_bits"] * math.log(2)
    if _has(level, curve, score, loss):
        return last
    return None


def _has(level: float, curve: str, score: float | None, loss: float | None) -> bool:
    """True if a point of a curve has a level; a loss is in nats."""
    if curve == SCORE_CURVE:
        return score is not None and score >= level
    if curve == BITS_CURVE:
        level = level * math.log(2)
    return loss is not None and loss <= level


@dataclass(frozen=True)
class FittedArm:
    """The runs of an arm at one budget.

    Args:
        classes: Numbers of runs by class.
        accuracy: Mean accuracy on training examples; None where it was not recorded.
        loss: Mean training loss at the end, in nats.
        steps: Median of the batches until a run fitted, of those that did; None of none.
    """

    classes: dict[str, int]
    accuracy: float | None
    loss: float | None
    steps: float | None

    @property
    def runs(self) -> int:
        """Runs with a number."""
        return sum(self.classes.values())

    def count(self, solved: bool = False) -> int:
        """Runs that solved; or that fitted, solved or not."""
        hits = self.classes.get(SOLVED, 0)
        if solved:
            return hits
        return hits + self.classes.get(FITTED, 0)

    @property
    def word(self) -> str:
        """The class of all runs, or how many have which."""
        if len(self.classes) == 1:
            return next(iter(self.classes))
        return ", ".join(f"{word} ({count})" for word, count in self.classes.items())

    @property
    def failed(self) -> bool:
        """True if more than half of the runs of known fit neither fitted, levelled off nor cannot."""
        unfit = self.classes.get(UNFIT, 0)
        return 2 * unfit > self.runs - self.classes.get(UNKNOWN, 0)

    def mostly(self, word: str) -> bool:
        """True if half of the runs or more are of a class."""
        return 2 * self.classes.get(word, 0) >= max(1, self.runs)


def fit_of(records: list[tuple[Entry, float | None]], metric: str, guess_nats: float) -> FittedArm:
    """The fit of runs, each given with its ceiling."""
    classes = [class_of(record, ceiling, metric, guess_nats) for record, ceiling in records]
    counts = Counter(classes)
    unfit = [record for (record, _), word in zip(records, classes, strict=True) if word == UNFIT]
    counts[LEVELLED] = len(levelled_off(unfit, guess_nats))
    counts[UNFIT] -= counts[LEVELLED]
    trials = [trial for trial, _ in records]
    scores = [trial.get(f"train_{fit_metric(trial)}") for trial in trials]
    accuracies = [score for score in scores if score is not None]
    losses = [trial["loss"] for trial in trials if trial.get("loss") is not None]
    steps = [stretch[1] for trial in trials if (stretch := reached(trial)) is not None]
    return FittedArm(
        {word: counts[word] for word in CLASSES if counts[word]},
        fmean(accuracies) if accuracies else None,
        fmean(losses) if losses else None,
        median(steps) if steps else None,
    )


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
class Pairs:
    """Paired differences of two arms, and those of typical runs.

    Args:
        differences: All, one for each seed.
        typical: Those of pairs in which both runs are typical; empty where no run is.
        collapsed_runs: Runs of each arm that collapsed.
        bounds: Of a difference.
    """

    differences: list[float]
    typical: list[float]
    collapsed_runs: tuple[int, ...] = ()
    bounds: tuple[float, float] | None = None

    @classmethod
    def of(
        cls,
        differences: list[float],
        scores: Sequence[Sequence[float]] = (),
        bounds: tuple[float, float] | None = None,
    ) -> "Pairs":
        """Sort out what is typical; ``scores`` of each of the two arms on the same seeds."""
        mask = typical_pairs(differences, scores)
        typical = []
        if mask is not None:
            typical = np.asarray(differences, dtype=float)[mask].tolist()
        groups = [groups_of(of_arm) for of_arm in scores]
        return cls(differences, typical, tuple(len(g.low) if g else 0 for g in groups), bounds)

    @property
    def collapsed(self) -> bool:
        """True if some pair is not of typical runs."""
        return len(self.typical) < len(self.differences)

    @property
    def difference(self) -> Interval:
        """The interval of typical runs' differences; without such runs the mean of all alone."""
        if not self.typical:
            count = len(self.differences)
            return Interval(float(np.mean(self.differences)), math.nan, math.nan, count)
        return mean_interval(self.typical, self.bounds, TYPICAL if self.collapsed else MEAN)

    def __str__(self) -> str:
        """Runs that a verdict of typical runs leaves out; nothing where all runs are."""
        if not self.collapsed:
            return ""
        seeds = len(self.differences)
        rates = " and ".join(f"{runs} of {seeds}" for runs in self.collapsed_runs)
        return (
            f"of runs that did not collapse, {len(self.typical)} of {seeds} pairs"
            f"{f'; collapsed: {rates}' if rates else ''}; of all runs, means differ by "
            f"{float(np.mean(self.differences)):.3f}"
        )


@dataclass(frozen=True)
class Evidence:
    """Measurements for one claim.

    Args:
        claim: The claim.
        test: Its pairs, shares or steps; None where nothing was measured.
        late: True if both arms had been measured when it was made.
    """

    claim: Claim
    test: Pairs | FitShares | Steps | None
    late: bool = False

    @property
    def p(self) -> tuple[float, float]:
        """p of its test, and the least that so many seeds could give."""
        test = self.test
        if test is None:
            return 1.0, 1.0
        if not isinstance(test, Pairs):
            return test.p, test.least_p
        if not test.typical:
            return 1.0, 1.0
        return self._p_of_margin(test.typical), least_p(len(test.typical))

    def _p_of_margin(self, differences: Sequence[float]) -> float:
        """p of the sign-flip test against the margin; for equality, against both ends."""
        mean = float(np.mean(differences))
        margin = self.claim.margin
        ends = [margin]
        if self.claim.equal and abs(mean) <= margin:
            ends = [margin, -margin]
        elif self.claim.equal:
            ends = [math.copysign(margin, mean)]
        return max(float(sign_flip(np.subtract(differences, end))) for end in ends)

    def verdict(self, p: float | None) -> "Verdict":
        """The verdict by a corrected p; None where no test could hold."""
        test = self.test
        if test is None or (isinstance(test, Pairs) and not test.differences):
            return Verdict(str(self.claim), None, None, None, NOT_MEASURED)
        difference = test.difference
        if isinstance(test, Pairs) and not test.typical:
            return Verdict(str(self.claim), difference, None, None, COLLAPSED, (str(test),))
        effect = None
        if isinstance(test, Pairs):
            effect = effect_size(test.typical)
        remarks: tuple[str, ...] = ()
        if str(test):
            remarks = (str(test),)
        return Verdict(str(self.claim), difference, effect, p, self._word(difference, p), remarks)

    def _word(self, difference: Interval, p: float | None) -> str:
        """The verdict of a test, or of the sign alone where too few seeds leave no test."""
        if p is not None and p >= LEVEL:
            return NOT_DECIDED
        words = (KEPT, BROKEN)
        if p is None:
            words = (SAME, OPPOSITE)
        if isinstance(self.test, Steps):
            lead = self.test.lead
        else:
            lead = self._lead(difference, p is not None)
        return {1: words[0], -1: words[1]}.get(lead, NOT_DECIDED)

    def _lead(self, difference: Interval, is_tested: bool) -> int:
        """1 if all of an interval, or its mean without a test, is as claimed; -1 if none of it."""
        margin = self.claim.margin
        low = difference.low
        high = difference.high
        if not is_tested:
            low = high = difference.value
        if not self.claim.equal:
            return int(low > margin) - int(high < margin)
        if not is_tested:
            return 0
        return int(-margin <= low <= high <= margin) - int(low > margin or high < -margin)


@dataclass(frozen=True)
class Verdict:
    """The result of a claim.

    Args:
        claim: The claim in words.
        difference: Difference of better and worse, paired by seed; None without pairs. Of a claim
            of steps the ratio, worse to better (:class:`graphattn.study.steps.Ratio`).
        effect: Its effect size, :func:`graphattn.statistics.intervals.effect_size`.
        p: p of the test after Holm's correction; None if it could not be below the level.
        verdict: One of :data:`VERDICTS`.
        remarks: Notes on the claim.
    """

    claim: str
    difference: Interval | None
    effect: Interval | None
    p: float | None
    verdict: str
    remarks: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The verdict with its remarks."""
        return "; ".join((self.verdict, *self.remarks))

    def to_dict(self) -> Entry:
        """The verdict as plain values."""
        return asdict(self)


def judged(evidence: Sequence[Evidence], withdrawn: int = 0) -> list[Verdict]:
    """Verdicts, corrected by Holm for all claims made beforehand, those withdrawn later too.

    Of claims made late, and of those whose p could not be below the level, the sign alone.
    """
    early = [one for one in evidence if not one.late]
    unknown = [1.0] * withdrawn
    adjusted = holm([one.p[0] for one in early] + unknown)
    least = holm([one.p[1] for one in early] + unknown)
    p_of = {
        id(one): p for one, p, best in zip(early, adjusted, least, strict=False) if best < LEVEL
    }
    return [one.verdict(p_of.get(id(one))) for one in evidence]


def seeds_for(claims: int) -> int:
    """The least number of seeds with which a test of so many claims can hold."""
    return next((n for n in range(1, EXACT + 1) if claims * least_p(n) < LEVEL), EXACT + 1)


def warn_of_power(claims: Sequence[Claim], seeds: int) -> None:
    """Warn, before training, of claims that so few seeds cannot decide."""
    least = [
        share_test(seeds, seeds, 0, seeds) if claim.of in (FITTING, SOLVING) else least_p(seeds)
        for claim in claims
        if seeds
    ]
    if not seeds or any(p >= LEVEL for p in holm(least)):
        warnings.warn(
            f"seeds: with {seeds}, no verdict is possible on all of {len(claims)} claims, and their "
            f"sign alone will be said; {seeds_for(len(claims))} seeds are enough",
            stacklevel=4,
        )
