"""The figures that this library holds itself to, and what a run says of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .problem import BOTH, FORWARD
from .result import Case

if TYPE_CHECKING:
    from .report import Report

Read = Callable[["Report", str], float | None]  # what a report says, by mode


@dataclass(frozen=True)
class Figure:
    """A figure, forward and with backward: how many times ours a peer takes, at least, unless it is ``at_most``."""

    name: str
    goals: tuple[float | None, float | None]
    read: Read
    at_most: bool = False


class Judged(NamedTuple):
    """A figure that was measured in one mode."""

    name: str
    mode: str
    value: float
    goal: float
    met: bool


def _of_case(name: str, read: Callable[[Case, str], float | None]) -> Read:
    def look(report: "Report", mode: str) -> float | None:
        case = next((case for case in report.cases if case.name == name), None)
        return None if case is None else read(case, mode)

    return look


def _peer(case: str, peer: str) -> Read:
    def ratio(measured: Case, mode: str) -> float | None:
        row = measured.row(peer)
        return None if row is None else measured.ratio(row, mode)

    return _of_case(case, ratio)


def _one_thread(case: Case, mode: str) -> float | None:
    """Compiled PyG over ours, both on one thread."""
    own, other = (None if row is None else row.at_ms.get(1, {}).get(mode) for row in map(case.row, ("auto", COMPILED)))
    return other / own if own and other else None


def _floor(case: Case, mode: str) -> float | None:
    ms = case.row("auto")
    time = None if ms is None else ms.ms(mode)
    return None if time is None else time / case.floor_ms[mode]


def _backward(case: Case, mode: str) -> float | None:
    row = case.row("auto")
    forward, both = (None, None) if row is None else (row.ms(FORWARD), row.ms(BOTH))
    return (both - forward) / forward if forward and both else None


def _from_points(case: Case, mode: str) -> float | None:
    """Seconds of building the graph, planning and the first step."""
    row = case.row("auto")
    ms = None if row is None else row.ms(mode)
    return None if row is None or ms is None else case.made_s + (row.plan_ms.get(mode, 0.0) + ms) / 1e3


def _gigabytes(case: Case, mode: str) -> float | None:
    row = case.row("auto")
    return None if row is None or mode not in row.peak_bytes else row.peak_bytes[mode] / 1e9


def _least(*reads: Read) -> Read:
    def least(report: "Report", mode: str) -> float | None:
        values = [value for read in reads if (value := read(report, mode)) is not None]
        return min(values, default=None)

    return least


def _pair(name: str) -> Read:
    return lambda report, mode: next((pair.ratio for pair in report.pairs if pair.name == name), None)


def _choices(report: "Report", mode: str) -> float | None:
    return max((choice.over_best for choice in report.choices), default=None)


COMPILED, HAND, EAGER, SDPA, MASK = "PyG compiled", "gather by hand", "PyG", "SDPA", "SDPA + mask"
_EDGES = ("knn16", "knn64", "mesh", "power_law")
_PAIRS = {
    "layer of 1": 2.5,
    "layer of 16": 1.8,
    "layer of 64": 1.2,
    "token": 1.0,
    "sigmoid": 1.5,
    "subtraction": 2.0,
    "bfloat16": 0.9,
    "chunks": 1.1,
    "kNN of 370": 1.5,
    "kNN of 16,384": 1.5,
    "kNN of 100,000": 1.5,
    "kNN of clouds": 1.5,
    "radius": 2.0,
    "1-ring": 1.2,
    "PLY": 1.5,
}
#: The table of goals, in the order in which it is shown.
FIGURES: tuple[Figure, ...] = (
    Figure("knn16: PyG compiled", (5, 5), _peer("knn16", COMPILED)),
    Figure("knn64: PyG compiled", (6, 5), _peer("knn64", COMPILED)),
    Figure("knn16: gather by hand", (4, 4), _peer("knn16", HAND)),
    Figure("knn64: gather by hand", (4, 4), _peer("knn64", HAND)),
    Figure("mesh: PyG compiled", (4, 4.5), _peer("mesh", COMPILED)),
    Figure("mesh_relabelled: PyG compiled", (6, 6), _peer("mesh_relabelled", COMPILED)),
    Figure("power_law: PyG compiled", (3.5, 3.5), _peer("power_law", COMPILED)),
    Figure("the four: PyG eager, the least", (30, 30), _least(*(_peer(name, EAGER) for name in _EDGES))),
    Figure(
        "the four: PyG compiled, both on one thread, the least",
        (None, 3),
        _least(*(_of_case(name, _one_thread) for name in _EDGES)),
    ),
    Figure("knn16: multiple of the floor", (None, 3), _of_case("knn16", _floor), at_most=True),
    Figure("mesh: multiple of the floor", (None, 2.6), _of_case("mesh", _floor), at_most=True),
    Figure("knn16_million: backward over forward", (None, 3), _of_case("knn16_million", _backward), at_most=True),
    Figure("knn16_million: kNN, plan and step, s", (None, 8), _of_case("knn16_million", _from_points), at_most=True),
    Figure("knn16_million: peak of a step, GB", (None, 4), _of_case("knn16_million", _gigabytes), at_most=True),
    Figure("window: SDPA + mask", (16, 17), _peer("window", MASK)),
    Figure("longformer: SDPA + mask", (15, 14), _peer("longformer", MASK)),
    Figure("swin: by hand", (1.7, 1.5), _peer("swin", "Swin by hand")),
    Figure("full: SDPA", (0.97, 0.97), _peer("full", SDPA)),
    Figure("causal: SDPA", (0.97, 0.97), _peer("causal", SDPA)),
    *(Figure(name, (goal, None), _pair(name), at_most=True) for name, goal in _PAIRS.items()),
    Figure("PyG points", (5, None), _pair("PyG points")),
    Figure("choice of 60, the worst over the best", (1.15, None), _choices, at_most=True),
)


def judged(report: "Report") -> list[Judged]:
    """Every figure that the report has something of."""
    found = []
    for figure in FIGURES:
        for mode, goal in zip((FORWARD, BOTH), figure.goals, strict=True):
            value = None if goal is None else figure.read(report, mode)
            if goal is not None and value is not None:
                met = value <= goal if figure.at_most else value >= goal
                found.append(Judged(figure.name, mode, value, goal, met))
    return found


def table(report: "Report") -> str:
    """The figures that were measured, each with its goal beside it."""
    at_most = {figure.name: figure.at_most for figure in FIGURES}
    modes = {figure.name: sum(goal is not None for goal in figure.goals) for figure in FIGURES}
    rows = [("figure", "measured", "goal", "")]
    for name, mode, value, goal, met in judged(report):
        which = f"{name}, {'step' if mode == BOTH else mode}" if modes[name] == 2 else name
        rows.append((which, f"{value:.3g}", f"{'<=' if at_most[name] else '>='} {goal:g}", "" if met else "missed"))
    width = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(f"{a:{width[0]}}  {b:>{width[1]}}  {c:>{width[2]}}  {d}".rstrip() for a, b, c, d in rows)
