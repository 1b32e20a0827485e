"""The first calls of everyone: is the answer right, what does a plan take, and what a call."""

import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from .crew import Crew, LostError
from .problem import FORWARD, MODES, Problem
from .result import Row
from .turns import Effort, Run, who

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
FRESH_CALLS = 3  # plans are built this often, if that is quick


def first_calls(
    runs: list[Run], name: str, problem: Problem, effort: Effort, reference: str, say: Callable[[str], None]
) -> None:
    """The reference's answer, everyone else's two at a time, for they compile; then a call on a fresh graph of each."""
    tolerance, answered = TOLERANCE[problem.dtype], {}

    def answer(run: Run, leads: bool = False) -> None:
        start = time.monotonic()
        answered[id(run)] = _answer(run[0], problem, run[2], effort, reference, tolerance, leads)
        outcome = run[0].refused[0] if run[0].refused else "is the reference" if leads else "agrees"
        say(f"{name}: {who(*run)}: {outcome} ({time.monotonic() - start:.1f} s)")

    answer(runs[0], leads=True)
    with ThreadPoolExecutor(2) as pool:
        try:
            list(pool.map(answer, runs[1:]))
        except KeyboardInterrupt:
            for _, _, crew in runs:
                crew.kill()
            raise
    for run in runs:
        row, _, crew = run
        _fresh_calls(row, answered.get(id(run), ()), problem, crew, effort)
        if row.times_ms:
            taken = ", ".join(f"{mode} {row.times_ms[mode][0]:.3g} ms" for mode in MODES if mode in row.times_ms)
            say(f"{name}: {who(*run)}: {taken} at first")


def _answer(
    row: Row, problem: Problem, crew: Crew, effort: Effort, reference: str, tolerance: float, leads: bool = False
) -> tuple[str, ...]:
    """Open, and compare the answer; the modes that can be measured."""
    try:
        row.refused, no_backward = crew.ask(row.name, "open", row.name, problem)
        if row.refused:
            return ()
        modes = (FORWARD,) if no_backward else MODES
        row.notes += [no_backward] * bool(no_backward)
        row.difference = crew.ask(row.name, "check", modes, reference, leads, seconds=effort.first)
    except LostError as error:
        row.refused = [str(error)]
        return ()
    wrong = {mode: far for mode, far in row.difference.items() if not far <= tolerance}
    if wrong:
        what = ", ".join(f"{mode} by {far:.2g}" for mode, far in wrong.items())
        row.refused = [f"its answer differs from ours: {what} (allowed {tolerance:g}); not timed"]
        return ()
    return modes


def _fresh_calls(row: Row, modes: tuple[str, ...], problem: Problem, crew: Crew, effort: Effort) -> None:
    for mode in modes:
        try:
            _fresh(row, mode, problem, crew, effort)
        except LostError as error:
            row.notes.append(f"{mode}: {error}")
            return


def _fresh(row: Row, mode: str, problem: Problem, crew: Crew, effort: Effort) -> None:
    firsts = []
    for _ in range(FRESH_CALLS if row.ours else 1):
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
