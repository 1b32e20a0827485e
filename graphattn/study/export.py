"""The numbers of a study for other programs: a table of comma-separated values, and one for LaTeX
with booktabs.
"""

import math
from typing import Any

from ..convert.files._csv import comma_separated as table_of
from .report import Report, Row
from .statistics import Interval, effect_size

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


def _interval(name: str, found: Interval | None) -> dict[str, Any]:
    """Mean and ends in three columns; empty where there are none."""
    if found is None:
        ends = (math.nan,) * 3
    else:
        ends = (found.mean, found.low, found.high)
    return {
        key: "" if math.isnan(x) else x
        for key, x in zip((name, f"{name}_low", f"{name}_high"), ends, strict=True)
    }


def comma_separated(report: Report) -> str:
    """A line for each arm at each budget: its score, its difference from all pairs, covariates, and
    every seed.
    """
    rows = []
    for row in report.rows:
        other = report.all_pairs(row)
        told = row.prediction
        if other is None:
            pairs = []
        else:
            pairs = report.differences(row, other)
        line: dict[str, Any] = {"study": report.plan["study"]}
        line |= {name: getattr(row, name) for name in ("comparison", "arm")} | {
            "kind": told["kind"]
        }
        line |= {
            name: getattr(row, name)
            for name in ("positions", "examples", "budget", "steps", "metric")
        }
        line |= (
            {"seeds": len(row.scores)}
            | _interval("score", row.interval)
            | {"ceiling": told["ceiling"]}
        )
        line |= _interval(
            "better_than_all_pairs", None if other is None else report.difference(row, other)
        )
        line |= _interval("hedges_g", effect_size(pairs))
        line |= {
            "capped": row.capped,
            "failed": row.failed,
            **{name: told.get(name) for name in _FACTS},
        }
        rows.append(line | {f"seed_{seed}": score for seed, score in row.scores.items()})
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return table_of([columns, *([row.get(name) for name in columns] for row in rows)])


def _escaped(text: str) -> str:
    """Words of users as they are, on one line."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _number(found: Interval | None, digits: int) -> str:
    if found is None:
        return "--"
    mean = f"{found.mean:.{digits}f}"
    if math.isnan(found.low):
        return f"${mean}$"
    return f"${mean}$ [${found.low:.{digits}f}$, ${found.high:.{digits}f}$]"


def latex(report: Report) -> str:
    r"""A ``table*`` of every arm at every budget, and one of the claims; needs
    ``\usepackage{booktabs}``.
    """
    name = _escaped(report.plan["study"])
    seeds = f"{report.plan['seeds']} seeds, mean and 95\\% interval, paired"
    used = {
        key: {getattr(row, key) for row in report.rows}
        for key in ("positions", "examples", "steps")
    }
    keys = [key for key, values in used.items() if len(values) > 1]
    lines = []
    group = None
    for row in report.rows:
        if group not in (None, row.comparison):
            lines.append(r"\midrule")
        if len(report.plan["comparisons"]) > 1 and group != row.comparison:
            lines.append(
                rf"\multicolumn{{{len(keys) + 4}}}{{l}}{{\emph{{{_escaped(row.comparison)}}}}} \\"
            )
        group = row.comparison
        lines.append(_line(report, row, keys))
    score = " / ".join(dict.fromkeys(row.metric for row in report.rows))
    head = ["Arm", *map(str.capitalize, keys), score.capitalize(), "Better than all pairs", "$g_z$"]
    tables = [_table(head, lines, "l" + "r" * len(keys) + "lll", f"{name}: {seeds}.", "arms")]
    if report.claims and not report.is_pilot:
        rows = []
        for claim, verdict in zip(report.claims, report.verdicts, strict=True):
            if verdict.p is None:
                p = "--"
            else:
                p = f"{verdict.p:.3g}"
            cells = [
                _escaped(str(claim)),
                _number(verdict.difference, 3),
                _number(verdict.effect, 2),
                p,
            ]
            rows.append(
                " & ".join([*cells, _escaped(", ".join((verdict.verdict, *verdict.remarks)))])
                + r" \\"
            )
        caption = f"{name}: claims made before training; $p$ of a sign-flip test, Holm-corrected."
        tables.append(
            _table(
                ["Claim", "Difference", "$g_z$", "$p$", "Verdict"], rows, "lllrl", caption, "claims"
            )
        )
    return "\n".join(["% \\usepackage{booktabs}", *tables])


def _line(report: Report, row: Row, keys: list[str]) -> str:
    other = report.all_pairs(row)
    if other is None:
        pairs = []
    else:
        pairs = report.differences(row, other)
    cells = [_escaped(row.arm)]
    for key in keys:
        value = getattr(row, key)
        cells.append(
            "all" if value is None else f"{value:,}" if isinstance(value, int) else _escaped(value)
        )
    cells += [
        _number(row.interval, 3),
        _number(report.difference(row, other) if other else None, 3),
    ]
    return " & ".join([*cells, _number(effect_size(pairs), 2)]) + r" \\"


def _table(head: list[str], lines: list[str], columns: str, caption: str, label: str) -> str:
    body = ["\\toprule", " & ".join(head) + r" \\", "\\midrule", *lines, "\\bottomrule"]
    around = [
        r"\begin{table*}[t]",
        r"\centering\small",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{label}}}",
    ]
    return "\n".join(
        [*around, rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}", r"\end{table*}", ""]
    )
