"""Fits of arms: an arm that did not fit its own training examples has not been compared."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any, NamedTuple

from ..metrics import CLASSES as OF_CLASSES
from ..metrics import FITS, LABELS, VALUES

LEVEL = 0.95
"""Score from which a run counts as fitted (on its training examples), and as solved (held out):
accuracy; AP of labels, R2 of values.
"""
FIT_METRIC = dict(zip((VALUES, LABELS, OF_CLASSES), FITS, strict=True))
"""The score that says whether a run fitted or solved, by kind of targets."""
GUESS = 0.95
"""Share of the cross-entropy of a guess above which nothing was learned."""
STILL = 0.01
"""Share of the loss of a guess below which a fall of the loss counts as standing still."""
_LEAST_POINTS = 8  # of a training curve, by which it is said to stand still
CANNOT = "cannot"
UNFIT = "did not fit"
FITTED = "fitted, did not generalise"
LEVELLED = "levelled off"
SOLVED = "solved"
UNKNOWN = "fit unknown"
LEARNED = "learned"
_SCORE = "accuracy (of numbers R2, of labels AP)"
#: The class of a run, and its rule; the first that applies.
CLASSES = {
    CANNOT: f"a law gives a ceiling below {LEVEL:g}, or colour refinement does and the score on its "
    f"training examples is {LEVEL:g} of that or more (of R2: less than {1 - LEVEL:.2g} below)",
    SOLVED: f"{_SCORE} of {LEVEL:g} or more on what was held out",
    FITTED: f"{_SCORE} of {LEVEL:g} or more on its training examples, and less on what was held "
    "out",
    LEVELLED: f"less on its training examples, a loss below {GUESS:g} of a guess's, and such runs of "
    f"the arm stood still: their mean loss fell by less than {STILL:g} of a guess's from the third "
    "quarter of training to the last; more batches may yet move it",
    UNFIT: f"less on its training examples; of bits, {GUESS:g} or more of the loss of a guess",
    LEARNED: "of bits, less than that: no level is known from which it fits",
    UNKNOWN: "trained before fits were recorded, and the loss that was does not tell",
}
TOO_OLD = "trained before fits were recorded"
SCORE_CURVE = "score"
LOSS_CURVE = "loss"
BITS_CURVE = "bits"
CURVES = (SCORE_CURVE, LOSS_CURVE, BITS_CURVE)
"""What a training curve is of: accuracy (R2 of values); loss in nats (of values squared error in
deviations); or that loss in bits.
"""


def fit_metric(record: dict[str, Any]) -> str:
    """The score that says whether a run fitted or solved: accuracy; AP of labels, R2 of values."""
    return next(name for name in FITS if name in record)


def fitted(record: dict[str, Any], guess_nats: float) -> bool | None:
    """True if a trial names its training examples rightly; None where that cannot be told.

    Older trials have their last training loss alone. A wrong answer costs ln 2 nats or more, so
    that a loss of at most ``.05 ln 2`` leaves .95 right; and a loss near that of a guess is one.
    """
    by = fit_metric(record)
    if f"train_{by}" in record:
        score = record[f"train_{by}"]
        return score is not None and score >= LEVEL
    loss = record.get("loss")
    if loss is None:
        return None
    if loss <= (1 - LEVEL) * math.log(2):
        return True
    if loss >= GUESS * guess_nats:
        return False
    return None


def bound_of(record: dict[str, Any], law: float | None, colours: float | None) -> float | None:
    """The ceiling that kept a run from fitting: a law's, or that of colours if the run is near it.

    A law that lets it fit leaves that to colours. That of colours is of its training examples, by
    the score that says whether it fitted.
    """
    if colours is None or (law is not None and law < LEVEL):
        return law
    by = fit_metric(record)
    score = record.get(f"train_{by}")
    near = LEVEL * colours
    if by == "r2":  # of which a guess has 0
        near = colours - (1 - LEVEL)
    if score is not None and near <= score < LEVEL and record[by] < LEVEL:
        return colours
    return law


def class_of(record: dict[str, Any], ceiling: float | None, metric: str, guess_nats: float) -> str:
    """The class of a run that has a number: the first of :data:`CLASSES` that applies.

    Whether it levelled off is judged with the other runs of its arm (:func:`fit_of`).
    """
    if ceiling is not None and ceiling < LEVEL:
        return CANNOT
    if metric == "bits":
        if _training_nats(record) >= GUESS * guess_nats:
            return UNFIT
        return LEARNED
    if record[fit_metric(record)] >= LEVEL:
        return SOLVED
    of_training = fitted(record, guess_nats)
    if of_training is None:
        return UNKNOWN
    if of_training:
        return FITTED
    return UNFIT


def _training_nats(record: dict[str, Any]) -> float:
    """Loss on training examples at the end; a guess's or worse where it is no number."""
    if record.get("train_bits") is not None:
        return float(record["train_bits"]) * math.log(2)
    if record.get("loss") is not None:
        return float(record["loss"])
    return math.inf


def levelled_off(records: list[dict[str, Any]], guess_nats: float) -> list[dict[str, Any]]:
    """Runs of an arm that did not fit, have begun to learn, and stood still in the mean.

    A run at the loss of a guess has not begun to learn, and may do so with more batches. The batches
    of one run vary by more than what is asked; so the mean of such runs is.
    """
    begun = [record for record in records if _training_nats(record) < GUESS * guess_nats]
    falls = [_last_fall(record) for record in begun]
    if not falls or not math.isfinite(guess_nats):
        return []
    if fmean(falls) < STILL * guess_nats:
        return begun
    return []


def _last_fall(record: dict[str, Any]) -> float:
    """The mean loss of the third quarter of training less that of the last; inf without a curve."""
    losses = [point[1] for point in record.get("curve", [])]
    if len(losses) < _LEAST_POINTS:
        return math.inf
    quarter = len(losses) // 4
    return fmean(losses[-2 * quarter : -quarter]) - fmean(losses[-quarter:])


class Stretch(NamedTuple):
    """Batches between two points of a training curve: the first and the last of them."""

    first: int
    last: int


def reached(
    record: dict[str, Any], level: float = LEVEL, curve: str = SCORE_CURVE
) -> Stretch | None:
    """The first stretch of a run's training that had a level, in the mean or at its end; else None.

    Args:
        record: The record of its trial.
        level: Score at least; loss or bits at most.
        curve: One of :data:`CURVES`.
    """
    first = 1
    points = record.get("curve", [])
    for step, loss, score in points:
        if _has(level, curve, score, loss):
            return Stretch(first, int(step))
        last = Stretch(first, int(step))
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
    if loss is None:
        return False
    if curve == BITS_CURVE:
        return loss <= level * math.log(2)
    return loss <= level


def points_apart(record: dict[str, Any]) -> int:
    """Batches between two points of a run's training curve."""
    ends = [0, *(int(point[0]) for point in record["curve"])]
    return max(b - a for a, b in pairwise(ends))


def steps_to_fit(record: dict[str, Any]) -> int | None:
    """Batches after which training had the level of a fit; None if it never did."""
    stretch = reached(record)
    if stretch is None:
        return None
    return stretch.last


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

    @property
    def levelled(self) -> bool:
        """True if half of the runs or more levelled off short of a fit."""
        return 2 * self.classes.get(LEVELLED, 0) >= max(1, self.runs)

    @property
    def unknown(self) -> bool:
        """True if the fit of half of the runs or more is not known."""
        return 2 * self.classes.get(UNKNOWN, 0) >= max(1, self.runs)


def fit_of(
    records: list[tuple[dict[str, Any], float | None]], metric: str, guess_nats: float
) -> FittedArm:
    """The fit of runs, each given with its ceiling."""
    classes = [class_of(record, ceiling, metric, guess_nats) for record, ceiling in records]
    counts = Counter(classes)
    unfit = [record for (record, _), word in zip(records, classes, strict=True) if word == UNFIT]
    counts[LEVELLED] = len(levelled_off(unfit, guess_nats))
    counts[UNFIT] -= counts[LEVELLED]
    trials = [trial for trial, _ in records]
    accuracies = [
        trial[name]
        for trial in trials
        if trial.get(name := f"train_{fit_metric(trial)}") is not None
    ]
    losses = [trial["loss"] for trial in trials if trial.get("loss") is not None]
    steps = [step for trial in trials if (step := steps_to_fit(trial)) is not None]
    return FittedArm(
        {word: counts[word] for word in CLASSES if counts[word]},
        _or_none(fmean, accuracies),
        _or_none(fmean, losses),
        _or_none(median, steps),
    )


def _or_none(of: Callable[[Any], float], values: list[Any]) -> float | None:
    if values:
        return of(values)
    return None
