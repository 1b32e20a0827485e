"""A study in a few lines for a terminal: the verdicts, then scores."""

from ..forecasts.baseline import interval_of
from ..judging.fits import CLASSES
from .cells import trials_text
from .markdown import joined
from .results import ArmRow, Results
from .sections import pilot_blocks
from .sections_of_claims import verdict_lines

_FEW = 24  # rows that are shown


def brief(results: Results) -> list[str]:
    """Counts of trials, verdicts, and the score of every arm."""
    seeds = results.plan["seeds"]
    lines = [f"{results.plan['study']}: trials: {trials_text(results)}; seeds: {seeds}"]
    if results.is_pilot:
        lines += joined(pilot_blocks(results)).splitlines()
    else:
        lines += verdict_lines(results)
    names = ("comparison", "arm", "positions", "examples", "steps")
    varying = [name for name in names if len({getattr(row, name) for row in results.rows}) > 1]
    for row in results.rows[:_FEW]:
        words = ", ".join(_word(row, name) for name in varying)
        line = f"{words}: {row.metric} {row.interval}"
        if row.prediction["kind"] != "shuffled" and row.scores:
            line += f"; {results.fit(row).word}"
        lines.append(line)
    for name, about in results.plan["comparisons"].items():
        for method, score in about["baselines"].items():
            lines.append(f"{name}, {method}, the study's own: {about['metric']} {score:.3f}")
        for method, by_seed in about.get("plain", {}).items():
            of_seeds = interval_of(about["metric"], by_seed)
            lines.append(f"{name}, {method}, same splits: {about['metric']} {of_seeds}")
    more = len(results.rows) - _FEW
    if more > 0:
        lines.append(f"and {more} more rows")
    return lines + _words(results)


def _words(results: Results) -> list[str]:
    """The meaning of each class of runs that is shown, a line each."""
    rows = [row for row in results.rows[:_FEW] if row.prediction["kind"] != "shuffled"]
    classes = {word for row in rows if row.scores for word in results.fit(row).classes}
    return [f"{word}: {rule}" for word, rule in CLASSES.items() if word in classes]


def _word(row: ArmRow, name: str) -> str:
    """A value by which rows differ; numbers with what they count."""
    value = getattr(row, name)
    if name in ("examples", "steps"):
        return f"{value or 'all'} {name}"
    return str(value)
