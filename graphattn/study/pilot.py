"""A pilot: two seeds before a study, with warnings of what no number of seeds can settle."""

import math
from statistics import fmean, variance

from .metrics import METRICS
from .results import Results, Row
from .statistics import SHARES, seeds_needed

_PERFECT, _GUESS = 0.99, 0.95  # of accuracy; of the cross-entropy of a guess
_SIZES, _LIMIT = (0.01, 0.02, 0.05, 0.1, 0.2), 0.8


def _learning(results: Results) -> list[Row]:
    """Rows of the last budget that no law and no shuffling keeps at chance."""
    about = results.plan["comparisons"]
    last = [
        row
        for row in results.rows
        if row.scores and row.budget == len(about[row.comparison]["budgets"]) - 1
    ]
    return [row for row in last if row.may_leave(about[row.comparison]["chance"])]


def cautions(results: Results) -> list[str]:
    """Arms at chance, with the reason in their training loss, and arms too good to differ."""
    told = []
    for row in _learning(results):
        if not results.at_chance(row):
            continue
        guess = results.plan["comparisons"][row.comparison]["guess_nats"]
        loss = fmean(one["loss"] for one in results.records_of(row))
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
                f"{guess:.3g}: the budget is too small to leave chance, or the rate is wrong"
            )
        else:
            told.append(
                f"{words}, though its loss in training fell from {guess:.3g} to {loss:.3g} nats: "
                "it learns by heart; more examples, or fewer batches"
            )
    for name in results.plan["comparisons"]:
        rows = [row for row in _learning(results) if row.comparison == name and row.is_share]
        best = [row.arm for row in rows if min(row.scores.values()) >= _PERFECT]
        if len(best) > 1:
            told.append(
                f"{name}: {', '.join(dict.fromkeys(best))} have {_PERFECT:g} or more and can "
                "hardly differ; a harder task, fewer examples or fewer batches would tell them "
                "apart"
            )
        capped = [row.arm for row in rows if row.capped]
        if capped:
            told.append(
                f"{name}: steps were over before the loss to stop at, of "
                f"{', '.join(dict.fromkeys(capped))}"
            )
    return told


def _differences(results: Results) -> dict[str, list[list[float]]]:
    """Paired differences by comparison: of claims; where there are none, of arms and all pairs."""
    pairs = [results.rows_of(claim) for claim in results.claims]
    if not pairs:
        pairs = [
            (row, other)
            for row in _learning(results)
            if (other := results.all_pairs(row)) is not None
        ]
    found: dict[str, list[list[float]]] = {}
    for one, other in pairs:
        if len(differences := results.differences(one, other)) > 1:
            found.setdefault(one.comparison, []).append(differences)
    return found


def power(results: Results) -> list[list[str]]:
    """Seeds for differences of several sizes, by comparison.

    With the deviation that was measured, and with the upper end of its one-sided 80 % interval.

    Source: Browne 1995, "On the Use of a Pilot Sample for Sample Size Determination" (the upper
    end).
    """
    from scipy.stats import chi2

    rows = []
    claims = max(1, len(results.claims))
    hours = results.cpu_hours / max(1, results.plan["seeds"])
    for name, differences in _differences(results).items():
        freedom = sum(len(each) - 1 for each in differences)
        seen = math.sqrt(sum((len(each) - 1) * variance(each) for each in differences) / freedom)
        most = seen * math.sqrt(freedom / chi2.ppf(1 - _LIMIT, freedom))
        if seen == 0:
            continue
        bounded = METRICS[results.plan["comparisons"][name]["metric"]].is_share
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
