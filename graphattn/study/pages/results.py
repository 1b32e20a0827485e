"""The numbers of a study: what was predicted of every arm, and beside it what was measured."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import Any

import numpy as np

from ...errors import ControlError, OptionError
from ...statistics.collapse import Groups, groups_of
from ...statistics.intervals import (
    DIFFERENCES,
    MEAN,
    SHARES,
    Interval,
    effect_size,
    interval,
    iqm_interval,
)
from ..controls import DRAWN
from ..examples import read_examples, with_test_set
from ..judging.claims import (
    NOT_FITTED,
    NOT_MEASURED,
    SCORE,
    SOLVING,
    STEPS,
    Claim,
    FitShares,
    Pairs,
    Verdict,
    judged,
)
from ..judging.fits import TOO_OLD, FittedArm, Stretch, bound_of, fit_of, points_apart, reached
from ..judging.steps import StepRuns, Steps
from ..metrics import CLASSES, CONTROL, METRICS
from ..page import Block
from ..runs.records import MOST_SEEDS, Records

GROUP = ("comparison", "arm", "positions", "examples", "budget", "steps")
WITHDRAWN = "other claims withdrawn after looking"
LATE, SATURATED, AT_CHANCE = "late", "both within the margin of a perfect score", "both at chance"
SIGMAS = 4.0  # of a binomial, within which a score is at its ceiling


def _group(trial: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(trial[name] for name in GROUP)


@dataclass(frozen=True)
class ArmRow:
    """An arm at one budget.

    Args:
        comparison: Its name.
        arm: Its name.
        positions: Of the model.
        examples: Trained on; None for all.
        budget: Its number among the budgets of the comparison.
        steps: Batches.
        metric: Of its scores: that of the comparison; of shuffled labels accuracy, which chance is
            known of.
        prediction: What was said before training.
        scores: Of each seed; of rewirings the mean of the draws.
        bounded: Of each trial, where a law gives a ceiling: its score, and the ceiling of its
            graph.
        answers: That each seed was asked.
        capped: Trials that had not reached their loss when steps were over.
        failed: Trials without a number: they ended with an error, or diverged.
        draws: Drawings of its graph for each seed.
        of_draws: Standard deviation of the drawings of a seed; None of one alone.
    """

    comparison: str
    arm: str
    positions: str
    examples: int | None
    budget: int
    steps: int
    metric: str
    prediction: dict[str, Any]
    scores: dict[int, float]
    bounded: list[tuple[float, float]]
    answers: int
    capped: int
    failed: int
    draws: int = 1
    of_draws: float | None = None

    @property
    def interval(self) -> Interval | None:
        """Mean of the seeds."""
        if not self.scores:
            return None
        bounds = None
        if self.is_share:
            bounds = SHARES
        return interval(list(self.scores.values()), bounds)

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
        if self.prediction["kind"] in DRAWN or METRICS[self.metric].sign < 0:
            return law
        colours: float | None = self.prediction.get("colours", {}).get(self.positions)
        return min((ceiling for ceiling in (law, colours) if ceiling is not None), default=None)

    def may_leave(self, chance: float) -> bool:
        """True if no law keeps its score at chance."""
        ceiling = self.prediction["ceiling"]
        return self.prediction["kind"] != "shuffled" and (ceiling is None or ceiling > chance)

    @property
    def holds(self) -> bool | None:
        """True if no trial exceeds its ceiling by 4 standard deviations; None without one.

        Of shuffled labels the mean of the seeds: what is learned of them is right, or wrong, of
        many answers at once, so that seeds differ by more than guesses do.
        """
        if not self.bounded:
            return None
        if self.prediction["kind"] == "shuffled":
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


def _within(groups: list[list[float]]) -> float | None:
    """Standard deviation of values about the mean of their group; None where groups have one."""
    if not groups or len(groups[0]) < 2:
        return None
    return math.sqrt(fmean(variance(values) for values in groups))


def _bounds(row: ArmRow) -> tuple[float, float] | None:
    """The bounds of differences of a row's scores from another's."""
    if row.is_share:
        return DIFFERENCES
    return None


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
    plan: dict[str, Any]
    records: Records
    summary: Callable[[Any], list[Block]] | None = None
    figure: Callable[[Any], Any] | None = None

    @cached_property
    def rows(self) -> list[ArmRow]:
        """Every arm at every budget, in the order of the plan."""
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for trial in self.plan["trials"]:
            groups.setdefault(_group(trial), []).append(trial)
        return [self._row(group, trials) for group, trials in groups.items()]

    def _row(self, group: tuple[Any, ...], trials: list[dict[str, Any]]) -> ArmRow:
        about = self.plan["comparisons"][group[0]]
        prediction = about["arms"][group[1]]
        ended = self.ended.get(group, [])
        scored = [(trial, record) for trial, record in ended if self._has_number(record)]
        metric = about["metric"]
        answers = 0
        if scored:
            answers = scored[0][1]["answers"]
        if prediction["kind"] == "shuffled":
            metric = CONTROL[about.get("kind", CLASSES)]
            if about["readout"] in ("node", "edge"):
                answers = about["held"]  # nodes of a sample may be right or wrong together
        by_seed: dict[int, list[float]] = {}
        for trial, record in scored:
            by_seed.setdefault(trial["seed"], []).append(record[metric])
        draws = sum(trial["seed"] == trials[0]["seed"] for trial in trials)
        scores = {seed: sum(x) / len(x) for seed, x in by_seed.items() if len(x) == draws}
        bounded = []
        if prediction["ceiling"] is not None:
            bounded = [
                (record[metric], self._ceiling(prediction, trial)) for trial, record in scored
            ]
        names: dict[str, Any] = dict(zip(GROUP, group, strict=True))
        return ArmRow(
            **names,
            metric=metric,
            prediction=prediction,
            scores=scores,
            bounded=bounded,
            answers=answers,
            capped=sum(record["state"] == "capped" for _, record in scored),
            failed=len(ended) - len(scored),
            draws=draws,
            of_draws=_within([x for x in by_seed.values() if len(x) == draws]),
        )

    def _ceiling(self, prediction: dict[str, Any], trial: dict[str, Any]) -> float:
        """The predicted ceiling of a trial: of its draw, where draws have their own."""
        of_draws = prediction.get("ceilings")
        if not of_draws:
            return float(prediction["ceiling"])
        first = self.plan.get("first_seed", 0)
        return float(of_draws[trial["seed"] - first][trial["draw"]])

    @cached_property
    def ended(self) -> dict[tuple[Any, ...], list[tuple[dict[str, Any], dict[str, Any]]]]:
        """Planned trials that have ended, with their records, by row."""
        by_row: dict[tuple[Any, ...], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
        for trial in self.plan["trials"]:
            if trial["key"] in self.records.of_key:
                by_row.setdefault(_group(trial), []).append(
                    (trial, self.records.of_key[trial["key"]])
                )
        return by_row

    def records_of(self, row: ArmRow) -> list[dict[str, Any]]:
        """The trials of a row that have a number."""
        return [
            record
            for _, record in self.ended.get(_group(vars(row)), [])
            if self._has_number(record)
        ]

    @staticmethod
    def _has_number(record: dict[str, Any]) -> bool:
        """True if a trial was scored.

        The largest of logits that are NaN is the first class, and no answer.
        """
        return record["state"] != "failed" and all(
            record[name] is not None for name in METRICS if name in record
        )

    def with_test_set(self, row: ArmRow, other: ArmRow | None = None) -> Interval | None:
        """The interval of a row, or of its difference from another, over test examples as well.

        None where seeds draw test sets of their own, of bits, and of runs that collapsed.
        """
        over_seeds = row.interval
        if other is not None:
            over_seeds = self.difference(row, other)
        parts = [self._examples(of_row) for of_row in (row, other) if of_row is not None]
        if over_seeds is None or over_seeds.of != MEAN or any(part is None for part in parts):
            return None
        right, answers = parts[0]
        for of_other, _ in parts[1:]:
            right = right - of_other
        return with_test_set(over_seeds, right, answers)

    def _examples(self, row: ArmRow) -> Any:
        """Right answers (examples,), means over trials, and answers; None where they are unknown."""
        texts: list[Any] = [record.get("examples_right") for record in self.records_of(row)]
        if row.metric != "accuracy" or not texts or None in texts:
            return None
        counts = np.stack([read_examples(text) for text in texts])
        return counts[:, 0].mean(0), counts[0, 1]

    def fit(self, row: ArmRow) -> FittedArm:
        """The fits of an arm's runs to their training examples."""
        about = self.plan["comparisons"][row.comparison]
        colours = row.prediction.get("colours_in_training", row.prediction.get("colours", {}))
        runs = []
        for trial, record in self.ended.get(_group(vars(row)), []):
            if not self._has_number(record):
                continue
            law = None
            if row.prediction["ceiling"] is not None:
                law = self._ceiling(row.prediction, trial)
            runs.append((record, bound_of(record, law, colours.get(row.positions))))
        return fit_of(runs, row.metric, about.get("guess_nats", math.inf))

    def probes(self, row: ArmRow) -> dict[str, list[float]]:
        """Measurements in a row's trained models, means over trials: per layer or one number."""
        trials = [record["probes"] for record in self.records_of(row) if record.get("probes")]
        means: dict[str, list[float]] = {}
        for name in next(iter(trials), {}):
            values = [np.atleast_1d(trial[name]) for trial in trials if name in trial]
            means[name] = np.mean(np.array(values, dtype=float), 0).tolist()
        return means

    def row(
        self,
        arm: str,
        comparison: str | None = None,
        positions: str | None = None,
        examples: Any = ...,
        budget: int | None = None,
    ) -> ArmRow:
        """The row of an arm; the first positions and the last budget where none is named."""
        rows = [r for r in self.rows if r.arm == arm]
        rows = [r for r in rows if comparison in (None, r.comparison)]
        rows = [r for r in rows if budget in (None, r.budget)]
        rows = [r for r in rows if positions in (None, r.positions)]
        rows = [r for r in rows if examples in (..., r.examples)]
        if len({r.comparison for r in rows}) > 1:
            raise OptionError(
                f"comparison must be named, as several have {arm!r}: "
                f"{', '.join(self.plan['comparisons'])}"
            )
        if not rows:
            arms = ", ".join(dict.fromkeys(r.arm for r in self.rows))
            raise OptionError(f"no results of {arm!r} in {self.folder}; there are {arms}")
        return [r for r in rows if r.positions == rows[0].positions][-1]

    def all_pairs(self, row: ArmRow) -> ArmRow | None:
        """The row of all pairs at the same budget and positions, or ``None``.

        ``None`` for all pairs themselves and for shuffled labels.
        """
        about = self.plan["comparisons"][row.comparison]
        full = about.get("reference")
        if not full:
            arms = about["arms"].items()
            full = next((name for name, arm in arms if arm["kind"] == "full"), None)
        if row.arm == full or row.prediction["kind"] == "shuffled":
            return None
        same = (full, row.comparison, row.positions, row.budget)
        for other in self.rows:
            if (other.arm, other.comparison, other.positions, other.budget) == same:
                return other
        return None

    def beside_all_pairs(self, row: ArmRow) -> tuple[Interval | None, Interval | None]:
        """The difference of a row from all pairs, and Hedges' g of it; None where there is none."""
        other = self.all_pairs(row)
        if other is None:
            return None, None
        pairs = Pairs.of(self.differences(row, other), self._shared(row, other))
        return self.difference(row, other), effect_size(pairs.typical)

    def difference(self, row: ArmRow, other: ArmRow) -> Interval | None:
        """Mean and interval of :meth:`differences` of typical runs; None where there are none."""
        pairs = Pairs.of(self.differences(row, other), self._shared(row, other))
        if pairs.differences:
            return pairs.interval(_bounds(row))
        return None

    def _shared(self, row: ArmRow, other: ArmRow) -> tuple[list[float], list[float]]:
        """Scores of two rows on the seeds that both have, higher is better; none of unlike ones."""
        if row.metric != other.metric:
            return [], []
        sign = METRICS[row.metric].sign
        seeds = sorted(row.scores.keys() & other.scores.keys())
        return [sign * row.scores[seed] for seed in seeds], [
            sign * other.scores[seed] for seed in seeds
        ]

    def differences(self, row: ArmRow, other: ArmRow) -> list[float]:
        """Differences paired by seed, positive if ``row`` is better; none of unlike scores."""
        return [better - worse for better, worse in zip(*self._shared(row, other), strict=True)]

    @cached_property
    def claims(self) -> list[Claim]:
        """Claims as registered last."""
        return [Claim(**claim) for claim in self.plan["registered"][-1]["claims"]]

    @property
    def late(self) -> list[str]:
        """Claims that were made when both of their arms had been measured."""
        return list(self.plan["registered"][-1].get("late", []))

    @property
    def withdrawn(self) -> list[str]:
        """Claims that were dropped when both of their arms had been measured."""
        return list(self.plan["registered"][-1].get("withdrawn", []))

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each claim."""
        rows = [self.rows_of(claim) for claim in self.claims]
        counts = [self._counts(claim, *pair) for claim, pair in zip(self.claims, rows, strict=True)]
        verdicts = judged(
            self.claims,
            [self.differences(better, worse) for better, worse in rows],
            self.late,
            [_bounds(better) for better, _ in rows],
            len(self.withdrawn),
            counts,
            [self._shared(better, worse) for better, worse in rows],
        )
        return [
            self._qualified(claim, pair, verdict)
            for claim, pair, verdict in zip(self.claims, rows, verdicts, strict=True)
        ]

    def _counts(self, claim: Claim, row: ArmRow, other: ArmRow) -> FitShares | Steps | None:
        """Runs that fit or solve, or steps, of a claim about them whose arms have runs."""
        if claim.of == SCORE:
            return None
        if claim.of == STEPS:
            return self._steps(claim, row, other)
        fits = (self.fit(row), self.fit(other))
        if not all(fit.runs for fit in fits):
            return None
        counts = [fit.count(claim.of == SOLVING) for fit in fits]
        if claim.of == SOLVING:
            verb = "solved"
        else:
            verb = "fitted"
        return FitShares(counts[0], fits[0].runs, counts[1], fits[1].runs, verb)

    def _steps(self, claim: Claim, row: ArmRow, other: ArmRow) -> Steps | None:
        """Steps of the seeds of both arms to the level of a claim; None where curves are missing."""
        better = self._stretches(row, claim)
        worse = self._stretches(other, claim)
        if better is None or worse is None:
            return None
        seeds = sorted(better.keys() & worse.keys())
        if not seeds:
            return None
        budget = min(row.steps, other.steps)
        runs = [
            StepRuns.of([of_arm[seed] for seed in seeds]).within(budget)
            for of_arm in (better, worse)
        ]
        records = [*self._curves(row), *self._curves(other)]
        return Steps(
            runs[0],
            runs[1],
            budget,
            max(map(points_apart, records)),
            row.steps != other.steps,
        )

    def _curves(self, row: ArmRow) -> list[dict[str, Any]]:
        """Trials of a row that ended without an error, those that diverged too."""
        return [
            record
            for _, record in self.ended.get(_group(vars(row)), [])
            if record["state"] != "failed"
        ]

    def _stretches(self, row: ArmRow, claim: Claim) -> dict[int, list[Stretch | None]] | None:
        """By seed the stretch in which each drawing had the level of a claim; None without curves."""
        by_seed: dict[int, list[Stretch | None]] = {}
        for trial, record in self.ended.get(_group(vars(row)), []):
            if record["state"] == "failed":
                continue
            if not record.get("curve"):
                return None
            stretch = reached(record, claim.least, claim.curve)
            by_seed.setdefault(trial["seed"], []).append(stretch)
        return {seed: of_seed for seed, of_seed in by_seed.items() if len(of_seed) == row.draws}

    def _qualified(self, claim: Claim, rows: tuple[ArmRow, ArmRow], verdict: Verdict) -> Verdict:
        """A verdict with remarks; none where an arm neither fitted nor levelled off."""
        remarks = (*verdict.remarks, *self._remarks(claim, *rows))
        if claim.of == STEPS and any(
            not record.get("curve") for row in rows for record in self._curves(row)
        ):
            remarks = (*remarks, f"no training curves: {TOO_OLD}")
        measured = all(row.scores for row in rows)
        if claim.of != SCORE or verdict.verdict == NOT_MEASURED or not measured:
            return replace(verdict, remarks=remarks)
        fits = [self.fit(row) for row in rows]
        if any(fit.failed for fit in fits):
            words = self._unfit(rows, fits)
            return replace(verdict, verdict=NOT_FITTED, remarks=(words, *remarks))
        for row, fit in zip(rows, fits, strict=True):
            if fit.levelled:
                remarks = (*remarks, f"{row.arm} levelled off short of a fit ({fit.word})")
        collapsed = [row for row in rows if row.groups is not None]
        for row in collapsed:
            remarks = (*remarks, f"{row.arm}: {row.groups}")
        if collapsed:
            remarks = (*remarks, self._of_all_runs(rows, fits))
        wider = self.with_test_set(*rows)
        if wider is not None:
            remarks = (*remarks, f"{wider}")
        unknown = [row.arm for row, fit in zip(rows, fits, strict=True) if fit.unknown]
        if unknown:
            remarks = (*remarks, f"fit of {' and '.join(unknown)} unknown: {TOO_OLD}")
        return replace(verdict, remarks=remarks)

    def _of_all_runs(self, rows: tuple[ArmRow, ArmRow], fits: list[FittedArm]) -> str:
        """Shares of runs that solved, and the difference of interquartile means, in words."""
        counts = [(fit.count(solved=True), fit.runs) for fit in fits]
        solved = FitShares(*counts[0], *counts[1], "solved")
        scores = self._shared(*rows)
        return f"{solved}, p {solved.p:.3g}; all runs: {iqm_interval(*scores)}"

    def _unfit(self, rows: tuple[ArmRow, ArmRow], fits: list[FittedArm]) -> str:
        """The arms that did not fit, and at which budget, in words."""
        about = self.plan["comparisons"][rows[0].comparison]
        if rows[0].budget == len(about["budgets"]) - 1:
            budget = "the largest budget tried"
        else:
            budget = f"{rows[0].steps:,} batches"
        failed = []
        others = []
        for row, fit in zip(rows, fits, strict=True):
            if fit.failed:
                failed.append(f"{row.arm} did not fit at {budget}")
            elif fit.levelled:
                others.append(f"{row.arm} levelled off ({fit.word})")
            elif fit.unknown:
                others.append(f"of {row.arm} it is not known")
            else:
                others.append(f"{row.arm} did ({fit.word})")
        return "; ".join(failed + others)

    def rows_of(self, claim: Claim) -> tuple[ArmRow, ArmRow]:
        """The rows of its better and of its worse arm."""
        where: dict[str, Any] = {"comparison": claim.comparison, "budget": claim.budget}
        if claim.examples is not None:
            where["examples"] = claim.examples
        better = self.row(claim.better, positions=claim.positions, **where)
        where["positions"] = claim.worse_positions
        if claim.worse_comparison is not None:
            where["comparison"] = claim.worse_comparison
        elif claim.worse_positions is None:
            where["positions"] = better.positions
        rows = (better, self.row(claim.worse, **where))
        if claim.group is None:
            return rows
        return self.of_group(rows[0], claim.group), self.of_group(rows[1], claim.group)

    def of_group(self, row: ArmRow, group: str) -> ArmRow:
        """A row with its scores on a named part of the test; of rewirings the mean of the draws."""
        scores: dict[int, list[float]] = {}
        answers = 0
        for trial, record in self.ended.get(_group(vars(row)), []):
            part = record.get("groups", {}).get(group)
            if trial["seed"] in row.scores and part is not None:
                scores.setdefault(trial["seed"], []).append(part[row.metric])
                answers = part["answers"]
        means = {seed: fmean(values) for seed, values in scores.items()}
        return replace(row, scores=means, answers=answers, bounded=[])

    def test_groups(self, row: ArmRow) -> list[str]:
        """Names of the parts of the test of its comparison."""
        return self.plan["comparisons"][row.comparison].get("groups", [])

    def _remarks(self, claim: Claim, row: ArmRow, other: ArmRow) -> tuple[str, ...]:
        """Notes on two arms that could not differ, and on what was chosen after looking."""
        remarks = []
        if str(claim) in self.late:
            remarks.append(LATE)
        if self.withdrawn:
            remarks.append(WITHDRAWN)
        remarks += self.plan["registered"][-1].get("looked", {}).get(str(claim), [])
        if not claim.equal or not row.is_share:
            return tuple(remarks)
        if row.scores and other.scores:
            least = min(*row.scores.values(), *other.scores.values())
            if least >= 1 - claim.margin:
                remarks.append(SATURATED)
            if self.at_chance(row) and self.at_chance(other):
                remarks.append(AT_CHANCE)
        return tuple(remarks)

    def at_chance(self, row: ArmRow) -> bool:
        """True if the mean of an arm's seeds is within 4 standard errors of chance.

        Of bits, if no better than a guess by the shares of the classes.
        """
        about = self.plan["comparisons"][row.comparison]
        if row.metric == "bits":
            return fmean(row.scores.values()) * math.log(2) >= about.get("guess_nats", math.inf)
        if row.metric != "accuracy":
            return False  # what a guess has varies with the samples held out
        chance = about["chance"]
        guesses = len(row.scores) * about["held"]
        most = chance + SIGMAS * math.sqrt(chance * (1 - chance) / guesses)
        return fmean(row.scores.values()) <= most

    @property
    def is_pilot(self) -> bool:
        """True if its seeds are those that no study has."""
        return bool(self.plan.get("first_seed", 0) >= MOST_SEEDS)

    @property
    def broken(self) -> list[ArmRow]:
        """Arms above their ceiling: a law that does not hold, or a fault of this library."""
        return [row for row in self.rows if row.holds is False]

    @property
    def unlike(self) -> list[str]:
        """Trials whose initial state or number of parameters differs from others of their seed."""
        starts: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        unlike = []
        for record in (record for row in self.rows for record in self.records_of(row)):
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
            if row.prediction["kind"] == "shuffled":
                raise ControlError(
                    f"{row.arm} of {row.comparison}, positions {row.positions}, should be at "
                    f"chance, {row.prediction['ceiling']:.3f}, and is {row.interval}: the test "
                    f"knows more than it should; see {self.folder / 'report.md'}"
                )

    @property
    def counts(self) -> dict[str, int]:
        """Trials planned, with a number, capped, failed."""
        planned = len(self.plan["trials"])
        done = sum(len(self.records_of(row)) for row in self.rows)
        capped, failed = (
            sum(getattr(row, name) for row in self.rows) for name in ("capped", "failed")
        )
        return {"planned": planned, "done": done, "capped": capped, "failed": failed}

    @property
    def failures(self) -> Iterator[str]:
        """Errors of trials of the plan, one line each."""
        for record in {
            record["key"]: record for of_row in self.ended.values() for _, record in of_row
        }.values():
            if not self._has_number(record):
                error = " ".join(record.get("error", "it diverged, and has no score").split())
                yield f"{record['comparison']}, {record['arm']}, seed {record['seed']}: {error}"

    @property
    def cpu_hours(self) -> float:
        """CPU hours of all trials on disk."""
        return sum(record.get("cpu_s", 0.0) for record in self.records.of_key.values()) / 3600
