"""The numbers of a study for other programs: comma-separated values, and a LaTeX table."""

import math
from typing import Any

from ...io.tables import comma_separated as table_of
from ...statistics.intervals import Interval
from ..judging.claims import FITTING, SOLVING, STEPS
from ..judging.fits import UNKNOWN
from .results import ArmRow, Results

_FACTS = (
    "reached",
    "edges",
    "degree_most",
    "spectral_gap",
    "conductance_least",
    "conductance_most",
    "mean_resistance",
)
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
}
_SPECIAL |= {">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}", '"': "''"}
_SPECIAL |= {letter: f"{{{letter}}}" for letter in "[]*"}  # behind a line's end an option of it
_SPECIAL |= {letter: f"\\{letter}" for letter in "#$%&_{}"}


def comma_separated(results: Results) -> str:
    """A line for each arm and budget: score, difference from all pairs, covariates, every seed."""
    lines = [_values(results, row) for row in results.rows]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    return table_of([columns, *([line.get(name) for name in columns] for line in lines)])


def _values(results: Results, row: ArmRow) -> dict[str, Any]:
    """The numbers of a row, by column."""
    prediction = row.prediction
    difference, effect = results.beside_all_pairs(row)
    fit = results.fit(row)
    fitted = None
    if UNKNOWN not in fit.classes:
        fitted = fit.count()
    return {
        "study": results.plan["study"],
        "comparison": row.comparison,
        "arm": row.arm,
        "kind": prediction["kind"],
        "positions": row.positions,
        "examples": row.examples,
        "budget": row.budget,
        "steps": row.steps,
        "metric": row.metric,
        "seeds": len(row.scores),
        **_interval("score", row.interval),
        "score_of": _estimand(row.interval),
        "ceiling": row.ceiling,
        **_interval("better_than_all_pairs", difference),
        **_interval("hedges_g", effect),
        "runs": fit.runs,
        "fitted": fitted,
        "steps_to_fit": fit.steps,
        "capped": row.capped,
        "failed": row.failed,
        **{name: prediction.get(name) for name in _FACTS},
        **{f"seed_{seed}": score for seed, score in row.scores.items()},
    }


def _estimand(interval: Interval | None) -> str:
    """The estimand of a score: "mean", or "median" of runs that fall into two groups."""
    if interval is None:
        return ""
    return interval.of


def _interval(name: str, interval: Interval | None) -> dict[str, Any]:
    """Estimate and ends in three columns; empty where there are none."""
    columns: dict[str, Any] = dict.fromkeys((name, f"{name}_low", f"{name}_high"), "")
    if interval is not None:
        columns[name] = interval.value
        if not math.isnan(interval.low):
            columns[f"{name}_low"] = interval.low
            columns[f"{name}_high"] = interval.high
    return columns


def _escaped(text: str) -> str:
    """Words of users as they are, on one line."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _number(interval: Interval | None, digits: int) -> str:
    if interval is None:
        return "--"
    value, low, high = (_as_tex(x, digits) for x in (interval.value, interval.low, interval.high))
    if math.isnan(interval.low):
        return value
    return f"{value} [{low}, {high}]"


def _as_tex(number: float, digits: int) -> str:
    """A number in a table; a dash where none is given."""
    if math.isnan(number):
        return "--"
    if math.isinf(number):
        return r"$\infty$"
    return f"${number:.{digits}f}$"


def latex(results: Results) -> str:
    r"""A ``table*`` of every arm at every budget, and one of the claims; needs ``booktabs``."""
    tables = [_of_arms(results)]
    if results.claims and not results.is_pilot:
        tables.append(_of_claims(results))
    return "\n".join(["% \\usepackage{booktabs}", *tables])


def _of_arms(results: Results) -> str:
    """Every arm, with what of positions, examples and steps is not the same for all."""
    keys = [
        key
        for key in ("positions", "examples", "steps")
        if len({getattr(row, key) for row in results.rows}) > 1
    ]
    lines = []
    group = None
    for row in results.rows:
        if group not in (None, row.comparison):
            lines.append(r"\midrule")
        if len(results.plan["comparisons"]) > 1 and group != row.comparison:
            name = _escaped(row.comparison)
            lines.append(rf"\multicolumn{{{len(keys) + 4}}}{{l}}{{\emph{{{name}}}}} \\")
        group = row.comparison
        lines.append(_line(results, row, keys))
    score = " / ".join(dict.fromkeys(row.metric for row in results.rows))
    head = ["Arm", *map(str.capitalize, keys), score.capitalize(), "Better than all pairs", "$g_z$"]
    name = _escaped(results.plan["study"])
    caption = f"{name}: {results.plan['seeds']} seeds, mean (of runs in two groups, the median) and 95\\% interval, paired."
    return _table(head, lines, "l" + "r" * len(keys) + "lll", caption, "arms")


def _line(results: Results, row: ArmRow, keys: list[str]) -> str:
    difference, effect = results.beside_all_pairs(row)
    cells = [_escaped(row.arm), *(_plain(getattr(row, key)) for key in keys)]
    cells += [_number(row.interval, 3), _number(difference, 3), _number(effect, 2)]
    return " & ".join(cells) + r" \\"


def _plain(value: Any) -> str:
    """Positions, or a number of examples or steps."""
    if value is None:
        return "all"
    if isinstance(value, int):
        return f"{value:,}"
    return _escaped(value)


def _of_claims(results: Results) -> str:
    lines = []
    for claim, verdict in zip(results.claims, results.verdicts, strict=True):
        if verdict.p is None:
            p = "--"
        else:
            p = f"{verdict.p:.3g}"
        cells = [
            _escaped(str(claim)),
            _number(verdict.difference, 3),
            _number(verdict.effect, 2),
            p,
            _escaped(", ".join((verdict.verdict, *verdict.remarks))),
        ]
        lines.append(" & ".join(cells) + r" \\")
    name = _escaped(results.plan["study"])
    caption = f"{name}: claims made before training; $p$ of a sign-flip test"
    kinds = {claim.of for claim in results.claims}
    if STEPS in kinds:
        caption += ", of steps on ranks (the difference is then the ratio of steps)"
    if kinds & {FITTING, SOLVING}:
        caption += ", of shares of runs of Fisher's exact test"
    caption += ", Holm-corrected."
    head = ["Claim", "Difference", "$g_z$", "$p$", "Verdict"]
    return _table(head, lines, "lllrl", caption, "claims")


def _table(head: list[str], lines: list[str], columns: str, caption: str, label: str) -> str:
    body = ["\\toprule", " & ".join(head) + r" \\", "\\midrule", *lines, "\\bottomrule"]
    opening = [
        r"\begin{table*}[t]",
        r"\centering\small",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{label}}}",
    ]
    return "\n".join(
        [*opening, rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}", r"\end{table*}", ""]
    )
