"""A pilot: two seeds before a study, with warnings of what no number of seeds can settle."""

import math
from dataclasses import replace
from statistics import fmean, variance

from ..statistics.intervals import SHARES, seeds_needed
from .claims import SCORE
from .data import METRICS
from .judge import CANNOT, LEVELLED, FittedArm
from .table import ArmRow, Results

_PERFECT, _GUESS = 0.99, 0.95  # of accuracy; of the cross-entropy of a guess
_MOST = 8  # times the batches of the study, that are tried where an arm does not fit
GROWTH = 2 + 4 + _MOST
"""Times the batches of the study that an arm takes which never fits, beyond its own."""
_SIZES, _LIMIT = (0.01, 0.02, 0.05, 0.1, 0.2), 0.8


def _last(row: ArmRow) -> int:
    """Number of the last budget of the study itself."""
    return int(row.about.get("own_budgets", len(row.about["budgets"]))) - 1


def _learning(results: Results) -> list[ArmRow]:
    """Rows of the study's last budget that no law and no shuffling keeps at chance."""
    return [
        row
        for row in results.rows
        if row.scores and row.may_leave_chance and row.budget == _last(row)
    ]


def unfit(results: Results) -> dict[str, set[str]]:
    """Arms that did not fit at the largest budget that they had, by comparison."""
    latest: dict[tuple[str, str, str], ArmRow] = {}
    for row in results.rows:
        if row.kind == "arm":
            latest[row.comparison, row.arm, row.positions] = row
    result: dict[str, set[str]] = {}
    for row in latest.values():
        if row.fit.failed:
            result.setdefault(row.comparison, set()).add(row.arm)
    return result


def may_grow(results: Results, name: str) -> bool:
    """True while a comparison's budget is less than 8 times that of the study."""
    about = results.plan["comparisons"][name]
    own = about["budgets"][about["own_budgets"] - 1]
    return bool(about["budgets"][-1]["steps"] < _MOST * own["steps"])


def budgets(results: Results) -> list[list[str]]:
    """The least budget at which each arm fitted or levelled off, from the study's last one on."""
    first: dict[tuple[str, str, str], ArmRow | None] = {}
    tried: dict[tuple[str, str, str], int] = {}
    for row in results.rows:
        if row.kind != "arm" or row.budget < _last(row):
            continue
        arm = (row.comparison, row.arm, row.positions)
        tried[arm] = row.steps
        first.setdefault(arm, None)
        if first[arm] is None and not row.fit.failed:
            first[arm] = row
    lines = []
    for arm, fitted in first.items():
        if fitted is None:
            words = f"none up to {tried[arm]:,} batches"
            runs = ""
        else:
            fit = fitted.fit
            words = fits_at(fit, fitted.steps)
            runs = fit.word
        lines.append([*arm, words, runs])
    return lines


def fits_at(fit: FittedArm, steps: int) -> str:
    """The budget at which an arm fits; or that most runs cannot, or that they level off."""
    most = max(fit.classes, key=lambda word: fit.classes[word], default="")
    if most == CANNOT:
        return "none: it cannot"
    if most == LEVELLED:
        return f"none: it levels off at {steps:,} batches"
    return f"{steps:,} batches"


def cautions(results: Results) -> list[str]:
    """Arms at chance, with the reason in their training loss, and arms too good to differ."""
    texts = []
    for row in _learning(results):
        if not row.at_chance:
            continue
        guess = row.about["guess_nats"]
        loss = fmean(record["loss"] for record in row.records)
        words = (
            f"{row.comparison}, {row.arm}, positions {row.positions}: at chance after "
            f"{row.steps:,} batches"
        )
        if (reached := row.prediction["reached"]) < 1:
            texts.append(
                f"{words}; its readout reaches {reached:.1%} of what it may need, which may be why"
            )
        elif loss >= _GUESS * guess:
            texts.append(
                f"{words}, and its loss in training, {loss:.3g} nats, is that of a guess, "
                f"{guess:.3g}: the budget is too small to leave chance, or the rate is wrong"
            )
        else:
            texts.append(
                f"{words}, though its loss in training fell from {guess:.3g} to {loss:.3g} nats: "
                "it learns by heart; more examples, or fewer batches"
            )
    for name, arms in unfit(results).items():
        steps = results.plan["comparisons"][name]["budgets"][-1]["steps"]
        texts.append(
            f"{name}: {', '.join(sorted(arms))} fit at no budget up to {steps:,} batches and did "
            "not level off, so that no claim on their scores would be judged; more batches, another "
            "rate, or a claim of fitting"
        )
    for name in results.plan["comparisons"]:
        rows = [row for row in _learning(results) if row.comparison == name and row.is_share]
        best = [row.arm for row in rows if min(row.scores.values()) >= _PERFECT]
        if len(best) > 1:
            texts.append(
                f"{name}: {', '.join(dict.fromkeys(best))} have {_PERFECT:g} or more and can "
                "hardly differ; a harder task, fewer examples or fewer batches would tell them "
                "apart"
            )
        capped = [row.arm for row in rows if row.capped]
        if capped:
            texts.append(
                f"{name}: steps were over before the loss to stop at, of "
                f"{', '.join(dict.fromkeys(capped))}"
            )
    return texts


def _differences(results: Results) -> dict[str, list[list[float]]]:
    """Paired differences by comparison: of claims on scores; without any, of arms and all pairs."""
    pairs = []
    for claim in results.registered:
        if claim.of == SCORE:
            if claim.budget is None:  # the study's last one
                row = results.row(claim.better, claim.comparison)
                claim = replace(claim, budget=_last(row))
            pairs.append(results.rows_of(claim))
    if not pairs:
        beside = [(row, results.all_pairs(row)) for row in _learning(results)]
        pairs = [(row, other) for row, other in beside if other is not None]
    by_comparison: dict[str, list[list[float]]] = {}
    for one, other in pairs:
        if len(values := results.differences(one, other)) > 1:
            by_comparison.setdefault(one.comparison, []).append(values)
    return by_comparison


def power(results: Results) -> list[list[str]]:
    """Seeds for differences of several sizes, by comparison.

    With the deviation that was measured, and with the upper end of its one-sided 80 % interval.

    Source: Browne 1995, "On the Use of a Pilot Sample for Sample Size Determination" (the upper
    end).
    """
    from scipy.stats import chi2

    rows = []
    claims = max(1, len(results.registered))
    hours = results.cpu_hours / max(1, results.plan["seeds"])
    for name, groups in _differences(results).items():
        freedom = sum(len(values) - 1 for values in groups)
        measured_deviation = math.sqrt(
            sum((len(values) - 1) * variance(values) for values in groups) / freedom
        )
        upper_deviation = measured_deviation * math.sqrt(freedom / chi2.ppf(1 - _LIMIT, freedom))
        if measured_deviation == 0:
            continue
        bounded = METRICS[results.plan["comparisons"][name]["metric"]].is_share
        for size in (size for size in _SIZES if not bounded or size < SHARES[1]):
            seeds = [
                seeds_needed(size, deviation, claims)
                for deviation in (measured_deviation, upper_deviation)
            ]
            row = [
                name,
                f"{size:g}",
                f"{measured_deviation:.3f}",
                f"{seeds[0]:,}",
                f"{upper_deviation:.3f}",
                f"{seeds[1]:,}",
            ]
            rows.append([*row, f"{hours * seeds[0]:.2g} to {hours * seeds[1]:.2g}"])
    return rows
