"""What was measured, for people and for machines."""

import json
from dataclasses import dataclass, field
from typing import Any

from ..interop.files._replace import save_page
from .clock import quartiles
from .figures import judged, table
from .pairs import Measured
from .problem import BOTH, FORWARD, MODES
from .result import TARGET, Case, Row, threads
from .sample import Choice

SCHEMA = 1  # changes when the meaning of a key does


@dataclass
class Report:
    """All cases of a run; printing it is its purpose."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    cases: list[Case]
    pairs: list[Measured] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values: machine, settings, cases; times in ms, memory in bytes."""
        return {
            "schema": SCHEMA,
            "machine": self.machine,
            "settings": self.settings,
            "interrupted": self.interrupted,
            "cases": [case.to_dict() for case in self.cases],
            "pairs": [pair.to_dict() for pair in self.pairs],
            "choices": [{**choice._asdict(), "over_best": choice.over_best} for choice in self.choices],
            "figures": [figure._asdict() for figure in judged(self)],
        }

    def save(self, path: str) -> None:
        """Write :meth:`to_dict` as JSON."""
        save_page(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def __str__(self) -> str:
        return "\n\n".join([self.heading(), *map(shown, self.cases), *self.rest()])

    def rest(self) -> list[str]:
        """Pairs, choices and figures, as far as they were measured."""
        worst = sorted(self.choices, key=lambda choice: -choice.over_best)[:5]
        parts = ["\n".join(map(str, self.pairs))] * bool(self.pairs)
        if worst:
            parts.append("\n".join([f"choice on {len(self.choices)} graphs, the worst:", *map(_shown_choice, worst)]))
        return parts + [table(self)] * bool(judged(self))

    def heading(self) -> str:
        """Where, with what and how."""
        return _heading(self.machine, self.settings)


def _shown_choice(choice: Choice) -> str:
    times = ", ".join(f"{name} {forward:.3g} / {both:.3g} ms" for name, (forward, both) in choice.ms.items())
    return f"  {choice.graph}: {choice.chosen} takes {choice.over_best:.3g} of the best ({times})"


def _heading(machine: dict[str, Any], settings: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    lines = [
        f"{machine['date']}, {machine.get('gpu') or machine['processor']}, threads: {machine['threads']}, {versions}",
        f"memory streams at {machine['stream_gb_per_s']:.3g} GB/s; the floor is compulsory traffic at that speed",
        f"median of up to {settings['repeats']} turns ± half the distance of the quartiles; "
        "x is how many times the time of auto",
    ]
    if machine["load_before"] > 0.5 * machine["cores"]:
        lines.append(f"the machine was busy: load {machine['load_before']} on {machine['cores']} cores before the run")
    return "\n".join(lines)


def shown(case: Case) -> str:
    """One graph as a table: ratios first, then times; what did not run, and why."""
    s = case.sizes
    lines = [
        f"{case.name}: {case.graph}",
        f"H={s['heads']} D={s['head_dim']} B={s['batch']} {s['dtype']}, floor {case.floor_ms[FORWARD]:.3g} ms forward, "
        f"{case.floor_ms[BOTH]:.3g} ms with backward",
    ]
    head = ("", "x", "forward ms", "x", "fwd+bwd ms", "plan ms", "peak MB", "Medges/ms", "x floor", "difference")
    rows = [head, *(_cells(case, row) for row in case.rows if row.last is not None)]
    width = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for first, *rest in rows:
        cells = [first.ljust(width[0]), *(cell.rjust(w) for cell, w in zip(rest, width[1:], strict=True))]
        lines.append("  " + "  ".join(cells).rstrip())
    lines += [f"  best of the others, {mode}: {_best(case, mode)}" for mode in MODES if case.best_other(mode)]
    lines += [f"  choice, {mode}: {_choice(case, mode)}" for mode in MODES if case.choice(mode)]
    estimates = ", ".join(f"{name} {ms:.3g} ms" for name, ms in case.estimated_ms.items())
    lines.append(f"  explain expected, forward: {estimates or 'nothing can run'}")
    for row in case.rows:
        lines += [f"  {row.name}: not run: {reason}" for reason in row.refused]
        lines += [f"  {row.name}: {note}" for note in row.notes]
    return "\n".join(lines)


def _cells(case: Case, row: Row) -> tuple[str, ...]:
    times = []
    for mode in (FORWARD, BOTH):
        ratio = case.ratio(row, mode)
        times += ["-" if ratio is None else f"{ratio:.3g}", _time(row, mode)]
    last = row.last or FORWARD
    ms = row.ms(FORWARD) or 0.0
    peak = row.peak_bytes.get(last)
    return (
        row.name,
        *times,
        f"{row.plan_ms.get(last, 0.0):.3g}",
        "-" if peak is None else f"{peak / 1e6:,.4g}",
        f"{case.edges / ms / 1e6:.3g}" if ms else "-",
        f"{ms / case.floor_ms[FORWARD]:.3g}" if case.floor_ms[FORWARD] else "-",
        f"{max(row.difference.values(), default=0.0):.0e}" if row.name != "auto" else "-",
    )


def _time(row: Row, mode: str) -> str:
    if not row.times_ms.get(mode):
        return "-"
    low, middle, high = quartiles(row.times_ms[mode])
    return f"{middle:.3g} ±{50 * (high - low) / middle:.0f}%"


def _best(case: Case, mode: str) -> str:
    other = case.best_other(mode)
    assert other is not None
    where = f" on {threads(other.threads[mode])}" if mode in other.threads else ""
    return f"{other.name}{where}, {case.ratio(other, mode) or 0.0:.3g} times the time of auto"


def _choice(case: Case, mode: str) -> str:
    choice = case.choice(mode) or {}
    verdict = "within" if choice["within_target"] else "NOT within"
    return (
        f"auto ({choice['chosen']}) takes {choice['auto_over_best']:.2f} of the best ({choice['best']}), "
        f"{verdict} the target of {TARGET}"
    )
