"""One graph, all peers: everyone's answer is checked, then they take turns."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ..backends.choose import explained
from .crew import Crew
from .first_calls import TOLERANCE, first_calls
from .peers import all_peers
from .problem import MODES, Problem
from .result import Case, Row, threads
from .turns import Effort, Run, turns, who

Slower = dict[tuple[str, int], str]  # peers on a number of threads that an earlier case showed to be slower, and how

SLOWER = 1.5  # times another number of threads: a peer is then measured on that other number alone


def measure(
    name: str,
    problem: Problem,
    peers: list[str],
    crews: Mapping[int, Crew],
    effort: Effort,
    gb_per_s: float,
    folder: Path,
    say: Callable[[str], None],
    seconds: float = math.inf,
    slower: Slower | None = None,
) -> Case:
    """Run every peer on a problem: ours on the first crew's number of threads, the others at the best of all crews'.

    Compiled code is often faster on one thread, for on several it adds by atomic operations. What an earlier case
    showed is taken from ``slower``, and what this one shows is added. Ctrl-C ends it with what there is.
    """
    known, most, until = all_peers(), next(iter(crews)), time.monotonic() + seconds
    slower = {} if slower is None else slower
    runs: list[Run] = [
        (Row(peer, known[peer].about, known[peer].ours), number, crew)
        for peer in peers
        for number, crew in crews.items()
        if number == most or not known[peer].ours or (peer == "auto" and len(peers) > 1)
        if (peer, number) not in slower
    ]
    interrupted = False
    try:
        first_calls(runs, name, problem, effort, str(folder / "reference.pt"), say)
        for mode, share in zip(MODES, (0.35, 1.0), strict=True):
            now = time.monotonic()
            takes_part = [run for run in runs if run[0].times_ms.get(mode) and not _hopeless(run, runs)]
            say(f"{name}: {mode}, in turn: {', '.join(who(*run) for run in takes_part)}")
            turns(takes_part, mode, effort, now + share * (until - now))
        for row, _, crew in runs:
            if crew.runs(row.name):
                crew.ask(row.name, "close")
    except KeyboardInterrupt:
        interrupted = True
    for row, number, _ in runs:
        if not row.times_ms and not row.refused:
            row.refused = ["interrupted before its first call"]
        row.at_ms = {number: {mode: ms for mode in MODES if (ms := row.ms(mode)) is not None}}
    rows = [_best([(row, number) for row, number, _ in runs if row.name == peer], slower, name) for peer in peers]
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
        interrupted=interrupted,
    )


def _best(measured: list[tuple[Row, int]], slower: Slower, case: str) -> Row:
    """A peer's row, at the better of two numbers of threads if it ran on both; ours on the first."""
    (first, number), *others = measured
    if first.ours:
        for other, _ in others:
            first.at_ms |= other.at_ms
        return first
    for other, other_number in others:
        for row, n, rival in ((first, number, other), (other, other_number, first)):
            worse = _times_slower(row, rival)
            if worse > SLOWER:
                slower[row.name, n] = f"not tried on {threads(n)}: on {case} that took {worse:.2g} times as long"
        first = first.faster_of(other, number, other_number)
    first.notes += [words for (peer, n), words in slower.items() if peer == first.name and n not in first.at_ms]
    return first


def _times_slower(row: Row, rival: Row) -> float:
    """The least ratio over all modes; 0 where they were not both measured."""
    times = [(row.ms(mode), rival.ms(mode)) for mode in MODES]
    return min((ms / other if ms and other else 0.0) for ms, other in times)


def _hopeless(run: Run, runs: list[Run]) -> bool:
    """Whether the same peer's first calls were clearly faster on another number of threads."""
    row = run[0]
    rivals = [other for other, *_ in runs if other is not row and other.name == row.name]
    return not row.ours and any(_times_slower(row, rival) > SLOWER for rival in rivals)
