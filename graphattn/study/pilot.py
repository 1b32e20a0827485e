"""A pilot: two seeds before a study is paid for, that warn of what no number of seeds can
settle.
"""

import math
from statistics import fmean, variance
from typing import TYPE_CHECKING

from .statistics import SHARES, seeds_needed

if TYPE_CHECKING:
    from .report import Report, Row

PILOT, PILOT_SEEDS, MOST_SEEDS = "pilot", 2, 1 << 16
"""Folder, number of seeds, and the first of them: more than a study may have, so that it sees none
of them.
"""
_PERFECT, _GUESS = 0.99, 0.95  # of accuracy; of the cross-entropy of a guess
_SIZES, _LIMIT = (0.01, 0.02, 0.05, 0.1, 0.2), 0.8


def _learning(report: "Report") -> list["Row"]:
    """Rows of the last budget that no law and no shuffling keeps at chance."""
    about = report.plan["comparisons"]
    last = [
        row
        for row in report.rows
        if row.scores and row.budget == len(about[row.comparison]["budgets"]) - 1
    ]
    return [row for row in last if row.may_leave(about[row.comparison]["chance"])]


def cautions(report: "Report") -> list[str]:
    """Arms at chance, with the reason that their loss in training gives, and arms too good to
    differ.
    """
    told = []
    for row in _learning(report):
        if not report.at_chance(row):
            continue
        guess = report.plan["comparisons"][row.comparison]["guess_nats"]
        loss = fmean(one["loss"] for one in report.records_of(row))
        words = (
            f"{row.comparison}, {row.arm}, positions {row.positions}: at chance after "
            f"{row.steps:,} batches"
        )
        if (reached := row.prediction["reached"]) < 1:
            told.append(
                f"{words}; its readout reaches {reached:.1%} of what it may need, which may be why"
            )
        elif loss >= _GUESS * guess:
            told.append(
                f"{words}, and its loss in training, {loss:.3g} nats, is that of a guess, "
                f"{guess:.3g}: the budget is "
                "too small to leave chance, or the rate is wrong"
            )
        else:
            told.append(
                f"{words}, though its loss in training fell from {guess:.3g} to {loss:.3g} nats: "
                "it learns by heart; "
                "more examples, or fewer batches"
            )
    for name in report.plan["comparisons"]:
        rows = [row for row in _learning(report) if row.comparison == name and row.is_share]
        best = [row.arm for row in rows if min(row.scores.values()) >= _PERFECT]
        if len(best) > 1:
            told.append(
                f"{name}: {', '.join(dict.fromkeys(best))} have {_PERFECT:g} or more and can "
                "hardly differ; a harder "
                "task, fewer examples or fewer batches would tell them apart"
            )
        capped = [row.arm for row in rows if row.capped]
        if capped:
            told.append(
                f"{name}: steps were over before the loss to stop at, of "
                f"{', '.join(dict.fromkeys(capped))}"
            )
    return told


def _differences(report: "Report") -> dict[str, list[list[float]]]:
    """Paired differences by comparison: of claims; where there are none, of arms and all pairs."""
    pairs = [report.rows_of(claim) for claim in report.claims]
    if not pairs:
        pairs = [
            (row, other)
            for row in _learning(report)
            if (other := report.all_pairs(row)) is not None
        ]
    found: dict[str, list[list[float]]] = {}
    for one, other in pairs:
        if len(differences := report.differences(one, other)) > 1:
            found.setdefault(one.comparison, []).append(differences)
    return found


def power(report: "Report") -> list[list[str]]:
    """Seeds for differences of several sizes, by comparison: with the deviation that was seen, and
    with the upper end of its one-sided 80 % interval.

    Source: Browne 1995, "On the Use of a Pilot Sample for Sample Size Determination" (the upper
    end).
    """
    from scipy.stats import chi2

    rows = []
    claims = max(1, len(report.claims))
    hours = report.cpu_hours / max(1, report.plan["seeds"])
    for name, differences in _differences(report).items():
        freedom = sum(len(each) - 1 for each in differences)
        seen = math.sqrt(sum((len(each) - 1) * variance(each) for each in differences) / freedom)
        most = seen * math.sqrt(freedom / chi2.ppf(1 - _LIMIT, freedom))
        if seen == 0:
            continue
        bounded = report.plan["comparisons"][name]["metric"] == "accuracy"
        for size in (size for size in _SIZES if not bounded or size < SHARES[1]):
            seeds = [seeds_needed(size, deviation, claims) for deviation in (seen, most)]
            row = [
                name,
                f"{size:g}",
                f"{seen:.3f}",
                f"{seeds[0]:,}",
                f"{most:.3f}",
                f"{seeds[1]:,}",
            ]
            rows.append([*row, f"{hours * seeds[0]:.2g} to {hours * seeds[1]:.2g}"])
    return rows
