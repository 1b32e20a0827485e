"""``graphattn bench``: attention on a graph against what people would use otherwise, timed side by side."""

import sys
from functools import partial
from typing import Annotated, Any, Optional

import typer

from ..errors import OptionError
from .app import As, Debug, Dtype, app
from .group import PatternCommand
from .output import encodable, is_terminal, one_line, say


class BenchCommand(PatternCommand):
    """WHAT may be left out: then it is the project's own table of shapes."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[WHAT]", "[OPTIONS OF WHAT]", "[OPTIONS]"]


@app.command(cls=BenchCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    ctx: typer.Context,
    what: Annotated[Optional[str], typer.Argument(metavar="WHAT", help="A pattern or a file; or --suite.")] = None,
    suite: Annotated[
        Optional[str], typer.Option(metavar="NAMES", help="Shapes of our own table, or all of it: cpu (default).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The table in small sizes.")] = False,
    sizes: Annotated[
        Optional[str], typer.Option(metavar="N,N,..", help="A sweep: --size of the pattern, nodes of the table.")
    ] = None,
    heads: Annotated[Optional[int], typer.Option(min=1, help="Heads; 4, or the table's.")] = None,
    head_dim: Annotated[Optional[int], typer.Option(min=1, help="Width of a head; 32, or the table's.")] = None,
    batch: Annotated[Optional[int], typer.Option(min=1, help="Batch; 1, or the table's.")] = None,
    dtype: Annotated[Dtype, typer.Option(help="Of query, key and value.")] = Dtype.float32,
    device: Annotated[str, typer.Option(help="Where they are: cpu, cuda, cuda:1.")] = "cpu",
    peers: Annotated[
        Optional[str], typer.Option(metavar="NAME,..", help="Who takes part beside auto; all by default.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each; the median is told.")] = 7,
    limit: Annotated[float, typer.Option(min=0.1, help="Seconds for a peer's turns, forward and with backward.")] = 20,
    threads: Annotated[Optional[int], typer.Option(min=1, help="Threads of each; torch's own number.")] = None,
    json: Annotated[Optional[str], typer.Option(metavar="FILE", help="Write all numbers as JSON.")] = None,
    out: Annotated[Optional[str], typer.Option(metavar="FILE", help="Draw a picture: .png, .pdf or .svg.")] = None,
    kind: As = None,
    debug: Debug = False,
) -> None:
    """Measure attention on a graph, side by side with others.

    Ours, PyG's TransformerConv, torch's SDPA and FlexAttention take turns in one run; each answer is checked first.
    Without WHAT the graphs are the project's own table.
    """
    _check_files(out, json)
    import torch

    from .. import bench as benchmark
    from ..backends.device import check_device
    from ..bench.report import shown

    fields: dict[str, Any] = {"heads": heads, "head_dim": head_dim, "batch": batch}
    fields = {name: value for name, value in fields.items() if value is not None}
    fields |= {"dtype": getattr(torch, dtype.value), "device": check_device(device)}
    if what is None:
        tasks = list(benchmark.suite(suite or "cpu", quick=quick, sizes=_numbers(sizes), **fields))
    elif suite is not None or quick:
        raise OptionError(f"--suite and --quick are for the project's own table; got {what} too")
    else:
        tasks = _tasks(what, list(ctx.args), kind and kind.value, sizes, fields)

    def done(report: Any) -> None:
        _clear()
        if len(report.cases) == 1:
            say(report.heading())
        say(f"\n{shown(report.cases[-1])}")
        if json is not None:  # after each, so that an interrupted run leaves what it has
            report.save(json)

    effort = benchmark.Effort(repeats, limit)
    names = tuple(peers.split(",")) if peers else ()
    report = benchmark.run(tasks, peers=names, device=device, threads=threads, effort=effort, say=_tell, done=done)
    if out is not None:
        from ..bench.picture import draw
        from ..interop.files._replace import save_picture

        save_picture(out, draw(report), dpi=200)
        say(f"\npicture: {one_line(out)}")


def _tasks(what: str, words: list[str], kind: str | None, sizes: str | None, fields: dict[str, Any]) -> list[Any]:
    """The pattern or file as it is, or once for every size; all are made first, so that a wrong one is told at once."""
    from ..bench import Problem
    from ..bench.session import Task
    from .commands import _say_notes
    from .what import item, pattern

    if sizes is not None and pattern(what) is None:
        raise OptionError(f"--sizes goes with a pattern that takes --size, or with --suite; got {what}")
    tasks = []
    for size in [None] if sizes is None else sizes.split(","):
        asked = item(what, words if size is None else [*words, "--size", size], kind)
        tasks.append(Task(what if size is None else f"{what} {size}", partial(Problem, asked.graph, **fields)))
        _say_notes(asked.notes)
    return tasks


def _numbers(sizes: str | None) -> tuple[int, ...]:
    try:
        return () if sizes is None else tuple(int(size) for size in sizes.split(","))
    except ValueError:
        raise OptionError(f"--sizes must be whole numbers such as 1024,4096, got {sizes!r}") from None


def _check_files(out: str | None, json: str | None) -> None:
    """Say at once what would fail at the end."""
    from .commands import check_file, check_picture

    if out is not None:
        check_picture(out)
    if json is not None:
        check_file("--json", json)


def _tell(what: str) -> None:
    """One line on a terminal, rewritten; elsewhere nothing, since results come case by case."""
    if is_terminal():
        sys.stderr.write(f"\r\x1b[K{encodable(one_line(what), sys.stderr.encoding or 'utf-8')[:79]}")
        sys.stderr.flush()


def _clear() -> None:
    if is_terminal():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
