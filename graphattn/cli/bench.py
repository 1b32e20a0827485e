"""What ``graphattn bench`` does: time attention on a graph side by side with what people would use otherwise."""

import sys
from functools import partial
from typing import Any

from ..errors import OptionError
from .commands import say_notes
from .output import check_file, check_picture, one_line, say
from .what import item, item_or_pattern

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it


def bench(
    what: str | None,
    suite: str | None,
    quick: bool,
    sizes: str | None,
    *,
    fields: dict[str, Any],
    dtype: str,
    device: str,
    peers: str | None,
    repeats: int,
    limit: float,
    budget: float | None,
    threads: int | None,
    json: str | None,
    out: str | None,
) -> None:
    """Measure each graph in turn and print it; the numbers and the picture where they are wanted."""
    if out is not None:
        check_picture(out)
    if json is not None:
        check_file("--json", json)
    import time

    import torch

    from .. import bench as benchmark
    from ..backends.device import check_device
    from ..bench.report import shown

    fields = {name: value for name, value in fields.items() if value is not None}
    fields |= {"dtype": getattr(torch, dtype), "device": check_device(device)}
    if what is None:
        if sizes is not None and "x" in sizes:
            raise OptionError(f"--sizes of the table are numbers of nodes, got {sizes}")
        tasks = list(benchmark.suite(suite or "cpu", quick=quick, sizes=_sizes(sizes), **fields))
    elif suite is not None or quick:
        raise OptionError(f"--suite and --quick are for the project's own table; got {what} too")
    else:
        tasks = _tasks(what, _sizes(sizes), fields)

    start, said = time.monotonic(), 0

    def tell(what: str) -> None:
        """A line on stderr, wherever that goes: who waits wants to know for what."""
        say(f"[{time.monotonic() - start:4.0f} s] {one_line(what)}", sys.stderr)

    def done(report: Any) -> None:
        nonlocal said
        if len(report.cases) > said:
            if said == 0:
                say(report.heading())
            said = len(report.cases)
            say(f"\n{shown(report.cases[-1])}")
        if json is not None:  # after each, so that an interrupted run leaves what it has
            report.save(json)

    effort = benchmark.Effort(repeats, limit, budget)
    names = tuple(peers.split(",")) if peers else ()
    report = benchmark.run(tasks, peers=names, device=device, threads=threads, effort=effort, say=tell, done=done)
    for part in report.rest():
        say(f"\n{part}")
    if out is not None:
        from ..bench.picture import draw
        from ..interop.files._replace import save_picture

        save_picture(out, draw(report), dpi=200)
        say(f"\npicture: {one_line(out)}")
    if report.interrupted:
        say("\ninterrupted: this is what there was")
        raise SystemExit(INTERRUPTED)


def _tasks(what: str, sizes: list[Any], fields: dict[str, Any]) -> list[Any]:
    """The graph as it is, or the pattern once for every size; all are made first, so that a wrong one is told at
    once."""
    from ..bench import Problem
    from ..bench.session import Task
    from ..graph import Pattern

    subject = item_or_pattern(what) if sizes else item(what)
    if sizes and not isinstance(subject.graph, Pattern):
        raise OptionError(
            f"--sizes goes with a graph that is open in its size, such as 'sliding_window(..., 257)', or with --suite; "
            f"got {what}"
        )
    say_notes(subject.notes)
    graphs = {f"{what} at {size}": subject.graph(size) for size in sizes} or {what: subject.graph}
    return [Task(name, partial(Problem, graph, **fields)) for name, graph in graphs.items()]


def _sizes(text: str | None) -> list[Any]:
    """``1024,4096`` as numbers of nodes, ``8x8,16x16`` as axes of grids."""
    try:
        sizes = [tuple(map(int, size.split("x"))) for size in text.split(",")] if text is not None else []
    except ValueError:
        raise OptionError(f"--sizes must be whole numbers such as 1024,4096, or 8x8,16x16, got {text!r}") from None
    return [size if len(size) > 1 else size[0] for size in sizes]
