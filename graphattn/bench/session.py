"""The benchmark: every peer on every graph, in one run."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..backends.device import check_device
from ..errors import OptionError
from .crew import Crew, LostError
from .machine import machine
from .measure import Effort, measure
from .peers import all_peers
from .problem import Problem
from .report import Report
from .result import Row
from .shapes import Shape, shapes


@dataclass(frozen=True)
class Task:
    """A problem under a name, made when its turn comes."""

    name: str
    make: Callable[[], Problem]
    only_ours: bool = False


def suite(
    names: str = "cpu",
    *,
    quick: bool = False,
    sizes: Iterable[int] = (),
    **fields: Any,
) -> Iterator[Task]:
    """Tasks from the project's own table of shapes, :data:`SHAPES`.

    Args:
        names: Names of shapes or of tables (:data:`SUITES`), separated by commas.
        quick: Small sizes, for a look.
        sizes: About how many nodes; each shape once for every size.
        fields: Fields of :class:`Problem` other than the shape's own: ``dtype``, ``device``, ``heads``, ...
    """
    wanted = tuple(sizes)
    for shape in shapes(names):
        for size in wanted or (shape.quick_nodes if quick else shape.num_nodes,):
            name = f"{shape.name} {size}" if wanted else shape.name
            yield Task(name, _maker(shape, size, fields), shape.only_ours)


def _given(problem: Problem) -> Problem:
    return problem


def _maker(shape: Shape, size: int, fields: dict[str, Any]) -> Callable[[], Problem]:
    sizes = {"heads": shape.heads, "head_dim": shape.head_dim, "batch": shape.batch}
    return lambda: Problem(shape.make(size), **{**sizes, **fields})


def run(
    tasks: Mapping[str, Problem] | Iterable[Task],
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
    timed. Then all take turns.

    Args:
        tasks: Problems by name, or what :func:`suite` gives.
        peers: Names of those who take part, all by default; "auto", whom the others are compared with, always does.
        device: "cpu" or a CUDA device; that of every problem.
        threads: For each peer, torch's own number by default. On a CPU others also run on one thread, and count at
            their best of both.
        effort: Turns, and seconds at most.
        say: Told what goes on.
        done: Told after each case; the report holds those that are there.

    Raises:
        OptionError: If a peer or the device does not exist.
        GraphAttnError: If a graph cannot be made.
    """
    device, effort = check_device(device), effort or Effort()
    taking_part = _checked(tuple(peers))
    if isinstance(tasks, Mapping):
        tasks = [Task(name, partial(_given, problem)) for name, problem in tasks.items()]
    here = machine(device)
    settings: dict[str, Any] = {"repeats": effort.repeats, "limit_s": effort.limit, "peers": list(taking_part)}
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
        bandwidth = report.machine["stream_gb_per_s"]
        crews = {report.machine["threads"]: crew}
        if device == "cpu":
            crews.setdefault(1, single)
        for task in tasks:
            say(f"{task.name}: making the graph")
            problem = task.make()
            names = [name for name in taking_part if not task.only_ours or all_peers()[name].ours]
            measured = measure(task.name, problem, names, crews, effort, bandwidth, Path(folder), say)
            measured.rows += [_left_out(name) for name in taking_part if name not in names]
            report.cases.append(measured)
            done(report)
    return report


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
