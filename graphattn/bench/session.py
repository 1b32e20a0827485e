"""The benchmark: every peer on every graph, in one run."""

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..backends.device import check_device
from ..errors import OptionError
from .crew import Crew, LostError
from .machine import machine
from .measure import measure
from .pairs import PAIRS, Measured
from .peers import all_peers
from .problem import Problem
from .report import Report
from .result import Row
from .sample import SAMPLE
from .shapes import Shape, shapes
from .turns import Effort


@dataclass(frozen=True)
class Task:
    """A problem under a name, made when its turn comes, and whom it is for; ``weight`` is its share of a budget."""

    name: str
    make: Callable[[], Problem]
    only_ours: bool = False
    peers: tuple[str, ...] = ()
    weight: float = 20.0


@dataclass(frozen=True)
class PairTask:
    """A pair of calls, by name."""

    name: str
    weight: float = 2.0


@dataclass(frozen=True)
class ChoiceTask:
    """A graph of the sample on which the choice of a backend is judged, by number."""

    number: int
    weight: float = 0.25

    @property
    def name(self) -> str:
        """The graph's."""
        return f"choice on {SAMPLE[self.number][0]}"


Tasks = Task | PairTask | ChoiceTask
_QUESTIONS: dict[str, tuple[PairTask | ChoiceTask, ...]] = {
    "pairs": tuple(map(PairTask, PAIRS)),
    "choice": tuple(map(ChoiceTask, range(len(SAMPLE)))),
}
_QUESTIONS["figures"] = _QUESTIONS["pairs"] + _QUESTIONS["choice"]


def suite(
    names: str = "cpu",
    *,
    quick: bool = False,
    sizes: Iterable[int] = (),
    **fields: Any,
) -> Iterator[Tasks]:
    """Tasks from the project's own table of shapes, :data:`SHAPES`.

    Args:
        names: Names of shapes or of tables (:data:`SUITES`), separated by commas. "pairs" are those of
            :data:`PAIRS`, "choice" is that of a backend on sixty graphs; "figures" are both and the shapes of the
            table of goals, each with the peers that it is judged by.
        quick: Small sizes, for a look.
        sizes: About how many nodes; each shape once for every size.
        fields: Fields of :class:`Problem` other than the shape's own: ``dtype``, ``device``, ``heads``, ...
    """
    wanted, given = tuple(sizes), names.replace("-", "_").split(",")
    for name in given:
        yield from _QUESTIONS.get(name, ())
    of_shapes = [name for name in given if name not in ("pairs", "choice")]
    for shape in shapes(",".join(of_shapes)) if of_shapes else ():
        for size in wanted or (shape.quick_nodes if quick else shape.num_nodes,):
            name = f"{shape.name} {size}" if wanted else shape.name
            peers = (shape.rivals or ("auto",)) if "figures" in given else ()
            yield Task(name, _maker(shape, size, fields), shape.only_ours, peers, shape.weight)


def _given(problem: Problem) -> Problem:
    return problem


def _maker(shape: Shape, size: int, fields: dict[str, Any]) -> Callable[[], Problem]:
    sizes = {"heads": shape.heads, "head_dim": shape.head_dim, "batch": shape.batch}
    return lambda: Problem(shape.make(size), **{**sizes, **fields})


def run(
    tasks: Mapping[str, Problem] | Iterable[Tasks],
    *,
    peers: Iterable[str] = (),
    device: str = "cpu",
    threads: int | None = None,
    effort: Effort | None = None,
    say: Callable[[str], None] = lambda what: None,
    done: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Measure attention on some graphs, ours and everyone else's, side by side.

    Every peer has a process of its own. Its output and gradients are compared with ours first; one that differs is not
    timed. Then all take turns. Ctrl-C ends it, and the report holds what was measured.

    Args:
        tasks: Problems by name, or what :func:`suite` gives.
        peers: Names of those who take part, all or the task's own by default; "auto", whom the others are compared
            with, always does.
        device: "cpu" or a CUDA device; that of every problem.
        threads: For each peer, torch's own number by default. On a CPU others also run on one thread, and count at
            their best of both.
        effort: Turns, and seconds at most.
        say: Told what goes on.
        done: Told after each task; the report holds those that are there.

    Raises:
        OptionError: If a peer or the device does not exist.
        GraphAttnError: If a graph cannot be made.
    """
    device, effort = check_device(device), effort or Effort()
    wanted = tuple(peers)
    taking_part = _checked(wanted)
    if isinstance(tasks, Mapping):
        tasks = [Task(name, partial(_given, problem)) for name, problem in tasks.items()]
    every, start = list(tasks), time.monotonic()
    here = machine(device)
    settings: dict[str, Any] = {
        "repeats": effort.repeats,
        "limit_s": effort.limit,
        "budget_s": effort.budget,
        "peers": list(taking_part),
    }
    report = Report(here | {"command": sys.argv}, settings, [])
    with (
        Crew(device, threads) as crew,
        Crew(device, 1) as single,
        tempfile.TemporaryDirectory(prefix="graphattn-bench-") as folder,
    ):
        say("measuring the bandwidth of memory")
        try:
            report.machine |= crew.ask("auto", "about")
        except LostError as error:
            raise OptionError(f"device {device!r} with threads={threads} cannot be used: {error}") from None
        crews = {report.machine["threads"]: crew}
        if device == "cpu":
            crews.setdefault(1, single)
        measured = _Measured(report, crews, effort, Path(folder), say)
        for i, task in enumerate(every):
            seconds = math.inf
            if effort.budget is not None:
                left = start + effort.budget - time.monotonic()
                seconds = max(0.0, left * task.weight / sum(later.weight for later in every[i:]))
            told = f", about {seconds:.0f} s" if seconds < math.inf else ""
            say(f"{task.name} ({i + 1} of {len(every)}{told})")
            try:
                measured(task, seconds, taking_part if wanted or not getattr(task, "peers", ()) else None)
            except KeyboardInterrupt:
                report.interrupted = True
            done(report)
            if report.interrupted:
                break
    return report


@dataclass
class _Measured:
    """What measures one task after the other into a report."""

    report: Report
    crews: dict[int, Crew]
    effort: Effort
    folder: Path
    say: Callable[[str], None]
    slower: dict[tuple[str, int], str] = field(default_factory=dict)

    def __call__(self, task: Tasks, seconds: float, peers: tuple[str, ...] | None) -> None:
        if isinstance(task, Task):
            self._case(task, seconds, peers or _checked(task.peers))
        elif isinstance(task, PairTask):
            self.report.pairs.append(self._pair(task, min(seconds, self.effort.limit)))
            self.say(str(self.report.pairs[-1]))
        else:
            self._choice(task, min(seconds, 1.0))

    def _case(self, task: Task, seconds: float, peers: tuple[str, ...]) -> None:
        start = time.monotonic()
        problem = task.make()
        made = time.monotonic() - start
        names = [name for name in peers if not task.only_ours or all_peers()[name].ours]
        case = measure(
            *(task.name, problem, names, self.crews, self.effort, self.report.machine["stream_gb_per_s"]),
            *(self.folder, self.say, seconds - made, self.slower),
        )
        case.made_s = made
        case.rows += [_left_out(name) for name in peers if name not in names]
        self.report.cases.append(case)
        self.report.interrupted |= case.interrupted

    def _pair(self, task: PairTask, seconds: float) -> Measured:
        about, (crew, *_) = PAIRS[task.name].about, self.crews.values()
        try:
            times = crew.ask("pairs", "pair", task.name, max(21, self.effort.repeats), seconds)
        except LostError as error:
            return Measured(task.name, about, [], [], str(error))
        return Measured(task.name, about, *times)

    def _choice(self, task: ChoiceTask, seconds: float) -> None:
        crew, *_ = self.crews.values()
        try:
            self.report.choices.append(crew.ask("pairs", "choice", task.number, seconds))
        except LostError as error:
            self.say(f"{task.name}: not measured: {error}")


def _left_out(name: str) -> Row:
    peer = all_peers()[name]
    return Row(name, peer.about, peer.ours, ["left out: no peer holds its intermediate results in this memory"])


def _checked(names: tuple[str, ...]) -> tuple[str, ...]:
    known = {_plain(name): name for name in all_peers()}
    for name in names:
        if _plain(name) not in known:
            raise OptionError(f"peers are {', '.join(known.values())}; got {name!r}")
    wanted = {"auto", *(map(_plain, names) if names else known)}
    return tuple(name for plain, name in known.items() if plain in wanted)


def _plain(name: str) -> str:
    """Letters and digits: ``sdpa-mask`` is "SDPA + mask"."""
    return "".join(filter(str.isalnum, name.lower()))
