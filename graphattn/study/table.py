"""The numbers of a study: what was predicted of every arm, and beside it what was measured."""

import base64
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from ..errors import ControlError, OptionError, need_extra
from ..statistics.collapse import Groups, groups_of
from ..statistics.intervals import DIFFERENCES, MEAN, SHARES, Interval, effect_size, interval
from ..statistics.steps import StepRuns, Steps
from .arms import DRAWN
from .claims import FITTING, SCORE, SOLVING, STEPS, Claim
from .data import CLASSES, CONTROL, METRICS
from .judge import (
    LEVELLED,
    NOT_FITTED,
    NOT_MEASURED,
    TOO_OLD,
    UNKNOWN,
    Evidence,
    FitShares,
    FittedArm,
    Pairs,
    Verdict,
    bound_of,
    fit_of,
    judged,
    reached,
)
from .records import Entry, Records

_DRAWS = 2_000  # of test examples
GROUP = ("comparison", "arm", "positions", "examples", "budget", "steps")
WITHDRAWN = "other claims withdrawn after looking"
LATE, SATURATED, AT_CHANCE = "late", "both within the margin of a perfect score", "both at chance"
SIGMAS = 4.0  # of a binomial, within which a score is at its ceiling
_FACTS = (
    "nodes",
    "edges",
    "degree_least",
    "degree_most",
    "depends_on_least",
    "depends_on_mean",
    "depends_on_most",
    "layers_needed",
    "reached",
    "spectral_gap",
    "conductance_least",
    "conductance_most",
    "mean_resistance",
    "roots",
    "strong_components",
    "universal",
    "operations",
    "bag",
    "unchanged",
)
"""Predictions and covariates of an arm that are columns of the table of arms."""


class Run(NamedTuple):
    """A trial that ended: its seed and drawing, its record, and the ceiling of its graph."""

    seed: int
    draw: int
    record: Entry
    ceiling: float | None

    @property
    def has_number(self) -> bool:
        """True if it was scored: the largest of logits that are NaN is a class, and no answer."""
        record = self.record
        return record["state"] != "failed" and all(
            record[name] is not None for name in METRICS if name in record
        )


@dataclass(frozen=True, eq=False)
class ArmRow:
    """An arm at one budget.

    Args:
        comparison: Its name.
        arm: Its name.
        positions: Of the model.
        examples: Trained on; None for all.
        budget: Its number among the budgets of the comparison.
        steps: Batches.
        about: The plan of its comparison.
        runs: Trials that ended.
        draws: Drawings of its graph for each seed.
        group: Part of the test that its scores are of; all of it by default.
    """

    comparison: str
    arm: str
    positions: str
    examples: int | None
    budget: int
    steps: int
    about: Entry
    runs: list[Run]
    draws: int = 1
    group: str | None = None

    @property
    def prediction(self) -> Entry:
        """The prediction of the arm, made before training."""
        prediction: Entry = self.about["arms"][self.arm]
        return prediction

    @property
    def place(self) -> tuple[str, str, int]:
        """Comparison, positions and budget, in which arms are compared."""
        return self.comparison, self.positions, self.budget

    @property
    def kind(self) -> str:
        """ "arm", or the kind of a control."""
        return str(self.prediction["kind"])

    @property
    def metric(self) -> str:
        """Metric of its scores: that of the comparison; of shuffled labels one with a known chance."""
        if self.kind == "shuffled":
            return CONTROL[self.about.get("kind", CLASSES)]
        return str(self.about["metric"])

    @cached_property
    def scored(self) -> list[Run]:
        """Runs with a number; of a group those that were scored on it."""
        return [
            run
            for run in self.runs
            if run.has_number and (self.group is None or self.group in run.record.get("groups", {}))
        ]

    @property
    def records(self) -> list[Entry]:
        """Records of the trials that have a number."""
        return [run.record for run in self.scored]

    def score_of(self, run: Run) -> float:
        """The score of a run on the whole test, or on the row's part of it."""
        scores = run.record
        if self.group is not None:
            scores = scores["groups"][self.group]
        return float(scores[self.metric])

    def _by_seed(self) -> list[tuple[int, list[float]]]:
        """Scores of the seeds of which every drawing has one."""
        of_seeds: dict[int, list[float]] = {}
        for run in self.scored:
            of_seeds.setdefault(run.seed, []).append(self.score_of(run))
        return [(seed, x) for seed, x in of_seeds.items() if len(x) == self.draws]

    @cached_property
    def scores(self) -> dict[int, float]:
        """Score of each seed; of drawn controls the mean of the drawings."""
        return {seed: sum(x) / len(x) for seed, x in self._by_seed()}

    @property
    def of_draws(self) -> float | None:
        """Standard deviation of the drawings of a seed; None of one alone."""
        if self.draws < 2 or not self.scores:
            return None
        return math.sqrt(fmean(stdev(x) ** 2 for _, x in self._by_seed()))

    @property
    def capped(self) -> int:
        """Trials that had not reached their loss when steps were over."""
        return sum(record["state"] == "capped" for record in self.records)

    @property
    def failed(self) -> int:
        """Trials without a number: they ended with an error, or diverged."""
        return len(self.runs) - sum(run.has_number for run in self.runs)

    @property
    def answers(self) -> int:
        """Answers that each seed was asked; of shuffled labels only independent ones."""
        if not self.scored:
            return 0
        if self.kind == "shuffled" and self.about["readout"] in ("node", "edge"):
            return int(self.about["held"])  # nodes of a sample may be right or wrong together
        record = self.records[0]
        if self.group is not None:
            record = record["groups"][self.group]
        return int(record["answers"])

    @property
    def interval(self) -> Interval | None:
        """Mean of the seeds."""
        if not self.scores:
            return None
        return interval(list(self.scores.values()), SHARES if self.is_share else None)

    @property
    def groups(self) -> Groups | None:
        """The groups that its runs fall into; None where they are one."""
        return groups_of([*self.scores.values()])

    @property
    def is_share(self) -> bool:
        """True if its scores are from 0 to 1."""
        return METRICS[self.metric].is_share

    @property
    def ceiling(self) -> float | None:
        """The lower of its ceilings by law and by colours; of a drawn control that by law alone.

        Colours were refined in the first drawing only; of scores by which less is better they have
        a floor.
        """
        law: float | None = self.prediction["ceiling"]
        if self.kind in DRAWN or METRICS[self.metric].sign < 0:
            return law
        colours: float | None = self.prediction.get("colours", {}).get(self.positions)
        return min((ceiling for ceiling in (law, colours) if ceiling is not None), default=None)

    @property
    def may_leave_chance(self) -> bool:
        """True if no law and no shuffling keeps its score at chance."""
        ceiling = self.prediction["ceiling"]
        return self.kind != "shuffled" and (ceiling is None or ceiling > self.about["chance"])

    @property
    def bounded(self) -> list[tuple[float, float]]:
        """Score and ceiling of each trial of whose graph a law gives one."""
        if self.group is not None:
            return []
        return [(self.score_of(r), r.ceiling) for r in self.scored if r.ceiling is not None]

    @property
    def holds(self) -> bool | None:
        """True if no trial exceeds its ceiling by 4 standard deviations; None without one.

        Of shuffled labels the mean of the seeds: what is learned of them is right, or wrong, of
        many answers at once, so that seeds differ by more than guesses do.
        """
        if not self.bounded:
            return None
        if self.kind == "shuffled":
            scores = [score for score, _ in self.bounded]
            ceiling = self.prediction["ceiling"]
            return fmean(scores) <= ceiling + SIGMAS * self.deviation / math.sqrt(len(scores))
        return all(
            score <= ceiling + SIGMAS * self._guesses(ceiling) for score, ceiling in self.bounded
        )

    def _guesses(self, ceiling: float) -> float:
        """Standard deviation of a trial that guesses what its graph does not reach."""
        if not self.is_share:
            return 1 / math.sqrt(self.answers)  # of R2
        return math.sqrt(ceiling * (1 - ceiling) / self.answers)

    @property
    def deviation(self) -> float:
        """Standard deviation of shuffled labels: of guesses, or of the seeds if larger."""
        scores = [score for score, _ in self.bounded]
        of_guesses = self._guesses(self.prediction["ceiling"])
        if len(scores) < 2:
            return of_guesses
        return max(of_guesses, stdev(scores))

    @property
    def at_chance(self) -> bool:
        """True if the mean of the seeds is within 4 standard errors of chance.

        Of bits, if no better than a guess by the shares of the classes.
        """
        mean = fmean(self.scores.values())
        if self.metric == "bits":
            return mean * math.log(2) >= self.about.get("guess_nats", math.inf)
        if self.metric != "accuracy":
            return False  # what a guess has varies with the samples held out
        chance = self.about["chance"]
        guesses = len(self.scores) * self.about["held"]
        return mean <= chance + SIGMAS * math.sqrt(chance * (1 - chance) / guesses)

    @cached_property
    def fit(self) -> FittedArm:
        """The fits of its runs to their training examples."""
        colours: Entry = self.prediction.get("colours", {})
        colours = self.prediction.get("colours_in_training", colours)
        of_positions = colours.get(self.positions)
        runs = [
            (run.record, bound_of(run.record, run.ceiling, of_positions))
            for run in self.runs
            if run.has_number
        ]
        return fit_of(runs, self.metric, self.about.get("guess_nats", math.inf))

    @property
    def probes(self) -> dict[str, list[float]]:
        """Measurements in trained models, means over trials: per layer or one number."""
        trials = [record["probes"] for record in self.records if record.get("probes")]
        means: dict[str, list[float]] = {}
        for name in next(iter(trials), {}):
            values = [np.atleast_1d(trial[name]) for trial in trials if name in trial]
            means[name] = np.mean(np.array(values, dtype=float), 0).tolist()
        return means

    @property
    def right_examples(self) -> Any:
        """Right answers (examples,), means over trials, and answers; None where they are unknown."""
        texts: list[Any] = [record.get("examples_right") for record in self.records]
        if self.metric != "accuracy" or not texts or None in texts:
            return None
        counts = np.stack([read_examples(text) for text in texts])
        return counts[:, 0].mean(0), counts[0, 1]

    def without(self, seeds: set[int]) -> "ArmRow":
        """The row without some seeds."""
        if not seeds:
            return self
        return replace(self, runs=[run for run in self.runs if run.seed not in seeds])

    def stretches(self, claim: Claim) -> dict[int, list[tuple[int, int] | None]] | None:
        """Stretches, by seed, in which each drawing had the level of a claim; None without curves."""
        by_seed: dict[int, list[tuple[int, int] | None]] = {}
        for run in self.runs:
            if run.record["state"] == "failed":
                continue
            if not run.record.get("curve"):
                return None
            stretch = reached(run.record, claim.least, claim.curve)
            by_seed.setdefault(run.seed, []).append(stretch)
        return {seed: x for seed, x in by_seed.items() if len(x) == self.draws}

    def measured(self, claim: Claim) -> float | None:
        """What a claim compares, of this row alone, more is better; None where nothing is."""
        if claim.of == SCORE:
            if not self.scores:
                return None
            return METRICS[self.metric].sign * fmean(self.scores.values())
        if claim.of == STEPS:
            return self.fit.steps and -self.fit.steps
        if not self.runs:
            return None
        return self.fit.count(claim.of == SOLVING) / max(1, self.fit.runs)

    @property
    def points_apart(self) -> int:
        """Batches between two points of a training curve, the most of all runs."""
        ends = [[0, *(point[0] for point in run.record.get("curve", []))] for run in self.runs]
        return max(int(b - a) for steps in ends for a, b in pairwise(steps))


def pairs_of(*rows: ArmRow) -> Pairs | None:
    """Paired differences of two rows, or of four the first pair's less the second's.

    None where they share no seed, or have unlike metrics.
    """
    seeds = sorted(set.intersection(*({*row.scores} for row in rows)))
    metrics = {row.metric for row in rows}
    if not seeds or len(metrics) > 1:
        return None
    sign = METRICS[metrics.pop()].sign
    scores = [[sign * row.scores[seed] for seed in seeds] for row in rows]
    values = np.dot((1, -1, -1, 1)[: len(rows)], scores).tolist()
    bounds = None
    if rows[0].is_share:
        bounds = (DIFFERENCES[0] * len(rows) / 2, DIFFERENCES[1] * len(rows) / 2)
    return Pairs.of(values, scores, bounds)


def steps_of(claim: Claim, row: ArmRow, other: ArmRow) -> Steps | None:
    """Steps of the seeds of both arms to the level of a claim; None where curves are missing."""
    better = row.stretches(claim)
    worse = other.stretches(claim)
    if better is None or worse is None:
        return None
    seeds = sorted(better.keys() & worse.keys())
    if not seeds:
        return None
    budget = min(row.steps, other.steps)
    runs = [StepRuns.of([of_arm[s] for s in seeds]).within(budget) for of_arm in (better, worse)]
    apart = max(row.points_apart, other.points_apart)
    return Steps(runs[0], runs[1], budget, apart, row.steps != other.steps)


def read_examples(text: str) -> np.ndarray:
    """int64 (2, examples): right answers and answers of each."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<u2")
    return numbers.reshape(2, -1).astype(np.int64)


def with_test_set(over_seeds: Interval, right: np.ndarray, answers: np.ndarray) -> Interval | None:
    """An interval over seeds, widened by a bootstrap over test examples.

    Half widths add in squares, so that what varies from seed to seed within an example counts
    twice: it covers at least what it says.

    Args:
        over_seeds: A mean with an interval; None comes back without one.
        right: Right answers (examples,), means over seeds; or differences of two arms.
        answers: Number of answers (examples,).
    """
    from scipy.stats import bootstrap

    if math.isnan(over_seeds.low):
        return None
    ends = bootstrap(
        (right, answers),
        lambda right, answers, axis: right.sum(axis) / answers.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=_DRAWS,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    share = right.sum() / answers.sum()
    value = over_seeds.value
    low = value - math.hypot(value - over_seeds.low, ends.low - share)
    high = value + math.hypot(over_seeds.high - value, ends.high - share)
    return Interval(value, low, high, over_seeds.seeds, "with the test set")


def interval_with_test_set(*rows: ArmRow) -> Interval | None:
    """The interval of a row, or of its difference from another, over test examples as well.

    None where seeds draw test sets of their own, of bits, of an interaction, and of runs that
    collapsed.
    """
    over_seeds = rows[0].interval
    if len(rows) > 1:
        pairs = pairs_of(*rows)
        over_seeds = None
        if pairs and len(rows) == 2:
            over_seeds = pairs.difference
    parts = [row.right_examples for row in rows]
    if over_seeds is None or over_seeds.of != MEAN or any(part is None for part in parts):
        return None
    right, answers = parts[0]
    for of_other, _ in parts[1:]:
        right = right - of_other
    return with_test_set(over_seeds, right, answers)


def _columns(name: str, estimate: Interval | None) -> dict[str, float | None]:
    """Estimate and ends in three columns; empty where there are none."""
    if estimate is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    ends = (estimate.value, estimate.low, estimate.high)
    values = [float(end) if math.isfinite(end) else None for end in ends]
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def frame(lines: list[Entry]) -> Any:
    """A pandas table of lines, in which whole numbers stay whole beside missing ones."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise need_extra("pandas", "study") from error
    return DataFrame(lines).convert_dtypes()


Summary = Callable[[Any], list[Any]]
"""A function of the report: paragraphs and tables of a page."""
Drawing = Callable[[Any], Any]
"""A function of the report: the figure."""


@dataclass(frozen=True, eq=False)
class Results:
    """A study on disk, in numbers.

    Args:
        folder: Where it is.
        plan: What was written before training.
        records: Of all trials, by key.
        summary: Of the study.
        figure: Of the study.
    """

    folder: Path
    plan: Entry
    records: Records
    summary: Summary | None = None
    figure: Drawing | None = None

    @cached_property
    def rows(self) -> list[ArmRow]:
        """Every arm at every budget, in the order of the plan."""
        first_seed = self.plan.get("first_seed", 0)
        groups: dict[tuple[Any, ...], list[Entry]] = {}
        for trial in self.plan["trials"]:
            groups.setdefault(tuple(trial[name] for name in GROUP), []).append(trial)
        rows = []
        for group, trials in groups.items():
            about = self.plan["comparisons"][group[0]]
            done = [trial for trial in trials if trial["key"] in self.records.of_key]
            runs = []
            for trial in done:
                prediction = about["arms"][group[1]]
                ceiling = prediction["ceiling"]
                if prediction.get("ceilings"):  # every draw has its own
                    ceiling = prediction["ceilings"][trial["seed"] - first_seed][trial["draw"]]
                record = self.records.of_key[trial["key"]]
                runs.append(Run(trial["seed"], trial["draw"], record, ceiling))
            draws = sum(trial["seed"] == trials[0]["seed"] for trial in trials)
            names: dict[str, Any] = dict(zip(GROUP, group, strict=True))
            rows.append(ArmRow(**names, about=about, runs=runs, draws=draws))
        return rows

    @cached_property
    def trials(self) -> Any:
        """A pandas table, tidy: a row for each trial and part of the test ("" for all of it)."""
        lines = []
        for row in self.rows:
            for run in row.runs:
                record = run.record
                told = {name: getattr(row, name) for name in GROUP}
                told |= {"kind": row.kind, "seed": run.seed, "draw": run.draw, "key": record["key"]}
                fields = ("train_accuracy", "loss", "rate", "steps_taken", "cpu_s", "error")
                told |= {"state": record["state"], **{name: record.get(name) for name in fields}}
                for group, scores in {"": record, **record.get("groups", {})}.items():
                    shown = {name: scores.get(name) for name in (*METRICS, "answers")}
                    shown = {name: score for name, score in shown.items() if score is not None}
                    lines.append({**told, "group": group, "metric": row.metric, **shown})
        return frame(lines)

    def arm_lines(self) -> list[Entry]:
        """Lines of the table of arms: predictions and covariates, then what was measured."""
        lines = []
        for row in self.rows:
            prediction = row.prediction
            difference, effect = self.against_all_pairs(row)
            fit = row.fit
            fitted = None
            if UNKNOWN not in fit.classes:
                fitted = fit.count()
            line = {
                **{name: getattr(row, name) for name in GROUP},
                "kind": row.kind,
                "metric": row.metric,
                "seeds": len(row.scores),
                **_columns("score", row.interval),
                "score_of": row.interval and row.interval.of,
                **_columns("with_test_set", interval_with_test_set(row)),
                "ceiling": row.ceiling,
                "law": prediction["law"],
                "holds": row.holds,
                **_columns("better_than_all_pairs", difference),
                **_columns("hedges_g", effect),
                "runs": fit.runs,
                "capped": row.capped,
                "failed": row.failed,
                "fit": fit.word,
                "fitted": fitted,
                "steps_to_fit": fit.steps,
                "in_training": fit.accuracy,
                "loss": fit.loss,
                "draws": row.draws,
                "sd_of_draws": row.of_draws,
                "keeps": ", ".join(prediction.get("keeps") or []),
                **{name: prediction.get(name) for name in _FACTS},
                "by_colours": prediction.get("colours", {}).get(row.positions),
            }
            for name, values in row.probes.items():
                names = [name]
                if len(values) > 1:
                    names = [f"{name}_{layer}" for layer in range(len(values))]
                line |= dict(zip(names, values, strict=True))
            lines.append(line)
        return lines

    @cached_property
    def arms(self) -> Any:
        """A pandas table: a row for each arm at each budget."""
        return frame(self.arm_lines())

    def claim_lines(self) -> list[Entry]:
        """Lines of the table of claims."""
        lines = []
        for claim, verdict in zip(self.registered, self.verdicts, strict=True):
            lines.append(
                {
                    "claim": verdict.claim,
                    "because": claim.because,
                    "of": claim.of,
                    "seeds": verdict.difference.seeds if verdict.difference else 0,
                    **_columns("difference", verdict.difference),
                    **_columns("hedges_g", verdict.effect),
                    "p": verdict.p,
                    "verdict": verdict.verdict,
                    "remarks": "; ".join(verdict.remarks),
                }
            )
        return lines

    @cached_property
    def claims(self) -> Any:
        """A pandas table: a row for each claim."""
        return frame(self.claim_lines())

    def row(
        self,
        arm: str,
        comparison: str | None = None,
        positions: str | None = None,
        examples: Any = ...,
        budget: int | None = None,
    ) -> ArmRow:
        """The row of an arm; the first positions and the last budget where none is named."""
        rows = [
            r
            for r in self.rows
            if r.arm == arm
            and comparison in (None, r.comparison)
            and budget in (None, r.budget)
            and positions in (None, r.positions)
            and examples in (..., r.examples)
        ]
        if len({r.comparison for r in rows}) > 1:
            raise OptionError(
                f"comparison must be named, as several have {arm!r}: "
                f"{', '.join(self.plan['comparisons'])}"
            )
        if not rows:
            arms = ", ".join(dict.fromkeys(r.arm for r in self.rows))
            raise OptionError(
                f"no comparison has the trials of {arm!r} that are asked for; comparisons are "
                f"{', '.join(self.plan['comparisons'])}, arms {arms}"
            )
        return [r for r in rows if r.positions == rows[0].positions][-1]

    def of_group(self, row: ArmRow, group: str) -> ArmRow:
        """A row with its scores on a named part of the test."""
        return replace(row, group=group)

    @staticmethod
    def differences(row: ArmRow, other: ArmRow) -> list[float]:
        """Differences paired by seed, positive if ``row`` is better; none of unlike scores."""
        pairs = pairs_of(row, other)
        if pairs is None:
            return []
        return pairs.differences

    def against_all_pairs(self, row: ArmRow) -> tuple[Interval | None, Interval | None]:
        """Difference from all pairs, and Hedges' g of it; None where no seed is shared."""
        pairs = None
        other = self.all_pairs(row)
        if other is not None:
            pairs = pairs_of(row, other)
        if pairs is None:
            return None, None
        return pairs.difference, effect_size(pairs.typical)

    def all_pairs(self, row: ArmRow) -> ArmRow | None:
        """The row of all pairs at the same budget and positions.

        ``None`` for all pairs themselves and for shuffled labels.
        """
        full = row.about.get("reference")
        if not full:
            arms = row.about["arms"].items()
            full = next((name for name, arm in arms if arm["kind"] == "full"), None)
        if row.arm == full or row.kind == "shuffled":
            return None
        rows = (other for other in self.rows if other.arm == full and other.place == row.place)
        return next(rows, None)

    @property
    def entry(self) -> Entry:
        """The last registration of claims."""
        entry: Entry = self.plan["registered"][-1]
        return entry

    @cached_property
    def registered(self) -> list[Claim]:
        """Claims as registered last."""
        return [Claim(**claim) for claim in self.entry["claims"]]

    @property
    def late(self) -> list[str]:
        """Claims that were made when both of their arms had been measured."""
        return list(self.entry.get("late", []))

    @property
    def withdrawn(self) -> list[str]:
        """Claims that were dropped when both of their arms had been measured."""
        return list(self.entry.get("withdrawn", []))

    @property
    def looked_at(self) -> set[int]:
        """Seeds that were looked at before claims were made, and do not count in them."""
        return set(self.plan.get("looked_at", []))

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each claim."""
        rows = [self.rows_of(claim) for claim in self.registered]
        evidence = [
            Evidence(claim, self._test(claim, *of_claim), str(claim) in self.late)
            for claim, of_claim in zip(self.registered, rows, strict=True)
        ]
        return [
            self._qualified(claim, of_claim, verdict)
            for claim, of_claim, verdict in zip(
                self.registered, rows, judged(evidence, len(self.withdrawn)), strict=True
            )
        ]

    @staticmethod
    def _test(claim: Claim, *rows: ArmRow) -> Pairs | FitShares | Steps | None:
        """The test of a claim; None without measurements."""
        if claim.of == SCORE:
            return pairs_of(*rows)
        if claim.of == STEPS:
            return steps_of(claim, *rows)
        fits = [row.fit for row in rows]
        if not all(fit.runs for fit in fits):
            return None
        counts = [fit.count(claim.of == SOLVING) for fit in fits]
        verb = {SOLVING: "solved", FITTING: "fitted"}[claim.of]
        return FitShares(counts[0], fits[0].runs, counts[1], fits[1].runs, verb)

    def _qualified(self, claim: Claim, rows: tuple[ArmRow, ...], verdict: Verdict) -> Verdict:
        """A verdict with remarks; none where an arm neither fitted nor levelled off."""
        remarks = [*verdict.remarks, *self._remarks(claim, *rows[:2])]
        if claim.of == STEPS and verdict.verdict == NOT_MEASURED and all(r.runs for r in rows):
            remarks.append(f"no training curves: {TOO_OLD}")
        measured = all(row.scores for row in rows)
        if claim.of != SCORE or verdict.verdict == NOT_MEASURED or not measured:
            return replace(verdict, remarks=tuple(remarks))
        if any(row.fit.failed for row in rows):
            unfit = "; ".join(f"{row.arm}: {row.fit.word}" for row in rows)
            return replace(verdict, verdict=NOT_FITTED, remarks=(unfit, *remarks))
        for row in rows:
            if row.fit.mostly(LEVELLED):
                remarks.append(f"{row.arm} levelled off short of a fit ({row.fit.word})")
            if row.fit.mostly(UNKNOWN):
                remarks.append(f"fit of {row.arm} unknown")
        wider = interval_with_test_set(*rows)
        if wider is not None:
            remarks.append(f"{wider}")
        return replace(verdict, remarks=tuple(remarks))

    def rows_of(self, claim: Claim) -> tuple[ArmRow, ...]:
        """The rows of its better and of its worse arm, without seeds that were looked at.

        Of an interaction four: those of the other comparison, too.
        """
        where: dict[str, Any] = {"comparison": claim.comparison, "budget": claim.budget}
        if claim.examples is not None:
            where["examples"] = claim.examples
        better = self.row(claim.better, positions=claim.positions, **where)
        where["positions"] = claim.worse_positions
        if claim.worse_comparison is not None:
            where["comparison"] = claim.worse_comparison
        elif claim.worse_positions is None:
            where["positions"] = better.positions
        worse = self.row(claim.worse, **where)
        rows = tuple(
            replace(row, group=claim.group).without(self.looked_at) for row in (better, worse)
        )
        if claim.beyond is None:
            return rows
        return rows + self.rows_of(replace(claim, comparison=claim.beyond, beyond=None))

    def _remarks(self, claim: Claim, row: ArmRow, other: ArmRow) -> list[str]:
        """Notes on two arms that could not differ, and on what was chosen after looking."""
        remarks = []
        if str(claim) in self.late:
            remarks.append(LATE)
        if self.withdrawn:
            remarks.append(WITHDRAWN)
        remarks += self.entry.get("looked", {}).get(str(claim), [])
        if claim.law:
            wrong = self._ordered_wrongly(claim, row)
            if wrong:
                remarks.append(f"its law orders wrongly {', '.join(wrong)}")
        if claim.equal and row.is_share and row.scores and other.scores:
            least = min(*row.scores.values(), *other.scores.values())
            if least >= 1 - claim.margin:
                remarks.append(SATURATED)
            if row.at_chance and other.at_chance:
                remarks.append(AT_CHANCE)
        return remarks

    def _ordered_wrongly(self, claim: Claim, row: ArmRow) -> list[str]:
        """Pairs of arms whose measurements are in another order than a claim's law says."""
        law = claim.law or {}
        measured = {}
        for other in self.rows:
            if other.arm in law and other.place == row.place:
                counted = replace(other, group=claim.group).without(self.looked_at)
                measured[other.arm] = counted.measured(claim)
        return [
            f"{one} and {other}"
            for one, score in measured.items()
            for other, better in measured.items()
            if law[one] > law[other] and score is not None and better is not None and score < better
        ]

    @property
    def broken(self) -> list[ArmRow]:
        """Arms above their ceiling: a law that does not hold, or a fault of this library."""
        return [row for row in self.rows if row.holds is False]

    @property
    def unlike(self) -> list[str]:
        """Trials whose initial state or number of parameters differs from others of their seed."""
        starts: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        unlike = []
        for record in (record for row in self.rows for record in row.records):
            group = (record["comparison"], record["positions"], record["seed"])
            start = (record["initial"], record["parameters"], record["position_parameters"])
            if starts.setdefault(group, start) != start:
                unlike.append(
                    f"{record['arm']} of {group} started as {start}, another arm as {starts[group]}"
                )
        return unlike

    def check_controls(self) -> None:
        """Refuse a study whose arms did not start alike, or in which shuffled labels were learned.

        Raises:
            ControlError: If two arms differ at the start, or the mean of seeds of shuffled labels
                is above chance by more than 4 standard errors.
        """
        for words in self.unlike:
            raise ControlError(words)
        for row in self.broken:
            if row.kind == "shuffled":
                raise ControlError(
                    f"{row.arm} of {row.comparison}, positions {row.positions}, should be at "
                    f"chance, {row.prediction['ceiling']:.3f}, and is {row.interval}: the test "
                    f"knows more than it should; see {self.folder / 'report.md'}"
                )

    @property
    def counts(self) -> dict[str, int]:
        """Trials planned, with a number, capped, failed."""
        return {
            "planned": len(self.plan["trials"]),
            "done": sum(len(row.records) for row in self.rows),
            "capped": sum(row.capped for row in self.rows),
            "failed": sum(row.failed for row in self.rows),
        }

    @property
    def failures(self) -> Iterator[str]:
        """Errors of trials of the plan, one line each."""
        ended = {run.record["key"]: run for row in self.rows for run in row.runs}
        for run in ended.values():
            if not run.has_number:
                record = run.record
                error = " ".join(record.get("error", "it diverged, and has no score").split())
                yield f"{record['comparison']}, {record['arm']}, seed {record['seed']}: {error}"

    @property
    def cpu_hours(self) -> float:
        """CPU hours of all trials on disk."""
        return sum(record.get("cpu_s", 0.0) for record in self.records.of_key.values()) / 3600

    @property
    def forged(self) -> int:
        """Trials whose accuracy is that of no whole number of answers: written by something else."""
        count = 0
        for row in self.rows:
            if row.about.get("kind", CLASSES) != CLASSES:
                continue
            for record in row.records:
                right = record["accuracy"] * record["answers"]
                count += abs(right - round(right)) > 1e-6 * max(1, record["answers"])
        return count
