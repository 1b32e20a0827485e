"""Peers that take turns: round after round a call of each, as long as there is time."""

import contextlib
import time
from dataclasses import dataclass

from .crew import Crew, LostError
from .result import Row, threads

Run = tuple[Row, int, Crew]  # a peer's row, on so many threads, by the crew that has them
LEAST = 3  # turns of each, however short the time


@dataclass(frozen=True)
class Effort:
    """How long to measure: ``repeats`` turns, but no more than ``limit`` seconds for a peer and a mode.

    With a ``budget``, in seconds for everything, fewer turns where time is short, but three.
    """

    repeats: int = 7
    limit: float = 20.0
    budget: float | None = None

    @property
    def first(self) -> float:
        """Seconds for a first call, which may compile."""
        return 180.0 + 4 * self.limit


def who(row: Row, number: int, crew: Crew) -> str:
    return f"{row.name} on {threads(number)}"


def turns(runs: list[Run], mode: str, effort: Effort, until: float) -> None:
    """Round after round, a turn of each, beginning with another one every time."""
    numbers = range(len(runs))
    spent = [0.0 for _ in runs]
    taken: list[list[float]] = [[] for _ in runs]
    rounds = 0
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(lambda: _kept(runs, taken, mode, rounds, effort))  # after Ctrl-C, too
        for rounds in range(effort.repeats):
            if rounds >= LEAST and time.monotonic() > until:
                return
            start = rounds % max(1, len(runs))
            for i in (*numbers[start:], *numbers[:start]):
                row, _, crew = runs[i]
                if not crew.runs(row.name):  # ended in another mode
                    continue
                cost = (taken[i] or row.times_ms[mode])[-1] / 1e3
                if spent[i] + cost > effort.limit * (1 if taken[i] else 3):  # one warm turn, if at all possible
                    continue
                try:
                    taken[i].append(crew.ask(row.name, "turn", mode, seconds=10 + 3 * effort.limit))
                    spent[i] += taken[i][-1] / 1e3
                except LostError as error:
                    row.notes.append(f"{mode}: {error}")
                    spent[i] = float("inf")
        rounds = effort.repeats


def _kept(runs: list[Run], turns: list[list[float]], mode: str, rounds: int, effort: Effort) -> None:
    """What was measured, as the rows hold it, and a note of whoever had fewer turns than there were rounds."""
    for (row, _, _), taken in zip(runs, turns, strict=True):
        row.times_ms[mode] = taken or row.times_ms[mode]
        if len(taken) < rounds:
            many = f"{len(taken)} of {rounds} turns" if taken else "the first call alone"
            row.notes.append(f"{mode}: {many}, within its {effort.limit:g} s")
        row.plan_ms[mode] = max(0.0, row.plan_ms[mode] - (row.ms(mode) or 0.0))
