"""One graph, all peers: everyone's answer is checked, then they take turns."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ..backends.choose import explained
from .crew import Crew, LostError
from .peers import all_peers
from .problem import FORWARD, MODES, Problem
from .result import Case, Row

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
FRESH_CALLS = 3  # plans are built this often, if that is quick


@dataclass(frozen=True)
class Effort:
    """How long to measure: ``repeats`` turns, but no more than ``limit`` seconds for a peer and a mode."""

    repeats: int = 7
    limit: float = 20.0

    @property
    def first(self) -> float:
        """Seconds for a first call, which may compile."""
        return 180.0 + 4 * self.limit


def measure(
    name: str,
    problem: Problem,
    peers: list[str],
    crew: Crew,
    effort: Effort,
    gb_per_s: float,
    folder: Path,
    say: Callable[[str], None],
) -> Case:
    """Run every peer on a problem."""
    known = all_peers()
    rows = [Row(peer, known[peer].about, known[peer].ours) for peer in peers]
    reference = folder / "reference.pt"
    for row in rows:
        say(f"{name}: {row.name}, first call")
        _first(row, problem, crew, effort, str(reference), TOLERANCE[problem.dtype])
    for mode in MODES:
        _turns([row for row in rows if row.times_ms.get(mode)], mode, crew, effort, lambda what: say(f"{name}: {what}"))
    for row in rows:
        if crew.runs(row.name):
            crew.ask(row.name, "close")
    explanation = explained(problem.graph, problem.request())
    return Case(
        name,
        repr(problem.graph),
        {
            "heads": problem.heads,
            "head_dim": problem.head_dim,
            "batch": problem.batch,
            "dtype": str(problem.dtype).removeprefix("torch."),
        },
        problem.edges,
        {mode: problem.floor_bytes(mode) / gb_per_s / 1e6 for mode in MODES},
        TOLERANCE[problem.dtype],
        rows,
        explanation.chosen,
        {c.name: c.cost_ms for c in explanation.candidates if c.runs},
    )


def _first(row: Row, problem: Problem, crew: Crew, effort: Effort, reference: str, tolerance: float) -> None:
    """Open, check, and the first call on fresh graphs; leaves a first time in ``times_ms`` of what can be measured."""
    try:
        row.refused, no_backward = crew.ask(row.name, "open", row.name, problem)
        if row.refused:
            return
        modes = (FORWARD,) if no_backward else MODES
        row.notes += [no_backward] * bool(no_backward)
        row.difference = crew.ask(row.name, "check", modes, reference, row.name == "auto", seconds=effort.first)
    except LostError as error:
        row.refused = [str(error)]
        return
    wrong = {mode: far for mode, far in row.difference.items() if not far <= tolerance}
    if wrong:
        what = ", ".join(f"{mode} by {far:.2g}" for mode, far in wrong.items())
        row.refused = [f"its answer differs from ours: {what} (allowed {tolerance:g}); not timed"]
        return
    for mode in modes:
        try:
            _fresh(row, mode, problem, crew, effort)
        except LostError as error:
            row.notes.append(f"{mode}: {error}")
            return


def _fresh(row: Row, mode: str, problem: Problem, crew: Crew, effort: Effort) -> None:
    firsts = []
    for _ in range(FRESH_CALLS):
        firsts.append(crew.ask(row.name, "fresh", mode, _copy(problem), seconds=effort.first))
        if firsts[-1].prepare_ms + firsts[-1].call_ms > 1e3 * effort.limit / 10:
            break
    fastest = min(firsts, key=lambda first: first.prepare_ms + first.call_ms)
    row.plan_ms[mode] = fastest.prepare_ms + fastest.call_ms  # the warm call is taken off once it is known
    row.times_ms[mode] = [fastest.call_ms]
    if firsts[0].peak_bytes is not None:
        row.peak_bytes[mode] = firsts[0].peak_bytes


def _copy(problem: Problem) -> Problem:
    """The same graph as another object, from which nothing was derived yet."""
    return pickle.loads(pickle.dumps(problem))


def _turns(rows: list[Row], mode: str, crew: Crew, effort: Effort, say: Callable[[str], None]) -> None:
    """Round after round, a turn of each, beginning with another one every time."""
    spent = {row.name: 0.0 for row in rows}
    first = {row.name: row.times_ms[mode][0] for row in rows}
    turns: dict[str, list[float]] = {row.name: [] for row in rows}
    for number in range(effort.repeats):
        say(f"{mode}, round {number + 1} of {effort.repeats}")
        start = number % max(1, len(rows))
        for row in rows[start:] + rows[:start]:
            if not crew.runs(row.name):  # ended in another mode
                continue
            cost = (turns[row.name] or [first[row.name]])[-1] / 1e3
            if spent[row.name] + cost > effort.limit * (
                1 if turns[row.name] else 3
            ):  # one warm turn, if at all possible
                continue
            try:
                turns[row.name].append(crew.ask(row.name, "turn", mode, seconds=10 + 3 * effort.limit))
                spent[row.name] += turns[row.name][-1] / 1e3
            except LostError as error:
                row.notes.append(f"{mode}: {error}")
                spent[row.name] = float("inf")
    for row in rows:
        got = turns[row.name]
        row.times_ms[mode] = got or [first[row.name]]
        if len(got) < effort.repeats:
            many = f"{len(got)} of {effort.repeats} turns" if got else "the first call alone"
            row.notes.append(f"{mode}: {many}, within its {effort.limit:g} s")
        row.plan_ms[mode] = max(0.0, row.plan_ms[mode] - (row.ms(mode) or 0.0))
