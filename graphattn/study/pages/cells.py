"""Cells of a report's tables: names, numbers and intervals as text."""

from ...statistics.intervals import Interval
from .markdown import verbatim
from .results import ArmRow, Results

AT_LIMIT = "at the step limit"
"""State of trials that are capped: steps were over before the loss at which training stops."""
EFFECT = (
    "Hedges' g of the paired differences with its interval by the noncentral t: their mean in "
    "units of their standard deviation from seed to seed (Cohen's d_z, less the bias of few seeds)."
)
"""Note on effect sizes."""


def trials_text(results: Results) -> str:
    """Numbers of trials: planned, done, of these at the step limit, and failed."""
    counts = results.counts
    done = f"{counts['done']} done"
    if counts["capped"]:
        done += f" ({counts['capped']} {AT_LIMIT})"
    return f"{counts['planned']} planned, {done}, {counts['failed']} failed"


def arm_name(results: Results, comparison: str, arm: str) -> str:
    """The name of an arm, behind that of its comparison where there are several."""
    if len(results.plan["comparisons"]) == 1:
        return verbatim(arm)
    return verbatim(f"{comparison}: {arm}")


def formatted(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    if value is None:
        return "-"
    return format(value, form)


def examples_text(number: int | None) -> str:
    """A number of training examples."""
    if number is None:
        return "all"
    return f"{number:,}"


def steps_text(results: Results, row: ArmRow) -> str:
    """The batches of a row, and what of its budget is equal if it is not they."""
    equal = results.plan["comparisons"][row.comparison]["budgets"][row.budget]["equal"]
    if equal == "steps":
        return f"{row.steps:,}"
    return f"{row.steps:,} (equal {equal})"


def interval_text(interval: Interval | None) -> str:
    """An estimate with its interval, or a dash."""
    if interval is None:
        return "-"
    return str(interval)


def ends_text(interval: Interval | None) -> str:
    """The ends of an interval whose estimate stands beside it."""
    if interval is None:
        return "-"
    return f"[{interval.low:.3f}, {interval.high:.3f}]"


def effect_text(interval: Interval | None) -> str:
    """An effect size with its interval, or a dash."""
    if interval is None:
        return "-"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
