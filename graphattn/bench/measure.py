"""One graph, all peers: everyone's answer is checked, then they take turns."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ..backends.choose import explained
from .crew import Crew, LostError
from .peers import all_peers
from .problem import FORWARD, MODES, Problem
from .result import Case, Row, threads

Run = tuple[Row, int, Crew]  # a peer's row, on so many threads, by the crew that has them

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
    crews: Mapping[int, Crew],
    effort: Effort,
    gb_per_s: float,
    folder: Path,
    say: Callable[[str], None],
) -> Case:
    """Run every peer on a problem: ours on the first crew's number of threads, the others at the best of all crews'.

    Compiled code is often faster on one thread, for on several it adds by atomic operations.
    """
    known, most = all_peers(), next(iter(crews))
    runs: list[Run] = [
        (Row(peer, known[peer].about, known[peer].ours), number, crew)
        for peer in peers
        for number, crew in crews.items()
        if number == most or not known[peer].ours
    ]
    reference = folder / "reference.pt"
    for row, number, crew in runs:
        say(f"{name}: {row.name} on {threads(number)}, first call")
        _first(row, problem, crew, effort, str(reference), TOLERANCE[problem.dtype])
    for mode in MODES:
        _turns([run for run in runs if run[0].times_ms.get(mode)], mode, effort, lambda what: say(f"{name}: {what}"))
    for row, _, crew in runs:
        if crew.runs(row.name):
            crew.ask(row.name, "close")
    rows = [_best(*((row, number) for row, number, _ in runs if row.name == peer)) for peer in peers]
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


def _best(first: tuple[Row, int], other: tuple[Row, int] | None = None) -> Row:
    """A peer's row, at the better of two numbers of threads if it ran on both."""
    return first[0] if other is None else first[0].faster_of(other[0], first[1], other[1])


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


def _turns(runs: list[Run], mode: str, effort: Effort, say: Callable[[str], None]) -> None:
    """Round after round, a turn of each, beginning with another one every time."""
    numbers = range(len(runs))
    spent = [0.0 for _ in runs]
    turns: list[list[float]] = [[] for _ in runs]
    for number in range(effort.repeats):
        say(f"{mode}, round {number + 1} of {effort.repeats}")
        start = number % max(1, len(runs))
        for i in (*numbers[start:], *numbers[:start]):
            row, _, crew = runs[i]
            if not crew.runs(row.name):  # ended in another mode
                continue
            cost = (turns[i] or row.times_ms[mode])[-1] / 1e3
            if spent[i] + cost > effort.limit * (1 if turns[i] else 3):  # one warm turn, if at all possible
                continue
            try:
                turns[i].append(crew.ask(row.name, "turn", mode, seconds=10 + 3 * effort.limit))
                spent[i] += turns[i][-1] / 1e3
            except LostError as error:
                row.notes.append(f"{mode}: {error}")
                spent[i] = float("inf")
    for (row, _, _), got in zip(runs, turns, strict=True):
        row.times_ms[mode] = got or row.times_ms[mode]
        if len(got) < effort.repeats:
            many = f"{len(got)} of {effort.repeats} turns" if got else "the first call alone"
            row.notes.append(f"{mode}: {many}, within its {effort.limit:g} s")
        row.plan_ms[mode] = max(0.0, row.plan_ms[mode] - (row.ms(mode) or 0.0))
