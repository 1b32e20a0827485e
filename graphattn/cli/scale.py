"""``graphattn scale``: what processes that share a graph would own and receive, on paper."""

from typing import Annotated, Any, Optional

import typer

from ..errors import OptionError
from .commands import head, say_notes
from .options import Debug, Dtype, Json, What, number
from .output import document, say, step
from .what import item

_MOST = 100_000  # processes


def scale(
    what: What,
    processes: Annotated[
        str, typer.Option(metavar="N,N,..", help="Numbers of processes, each in turn.")
    ] = "1,8,64",
    width: Annotated[int, number("Heads times width of a head.")] = 1024,
    heads: Annotated[Optional[int], number("Heads of the query; by default of width 64.")] = None,
    kv_heads: Annotated[
        Optional[int], number("Heads of key and value; by default as many.")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="Of the rows that are sent.")] = Dtype.bfloat16,
    partition: Annotated[
        Optional[str],
        typer.Option(help="contiguous or rcb; rcb by default where positions or a grid are known."),
    ] = None,
    bandwidth: Annotated[float, number("Gigabytes a second that a process receives.", 1e-3)] = 50,
    teraflops: Annotated[float, number("Tera-operations a second of a process.", 1e-3)] = 200,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Plan a graph that many processes share, on paper.

    For each number of processes: own nodes, the rows of others that a process reads (halo), the
    plan of exchange, and the bytes of a layer's forward, counted; times are these divided by the
    rates given. Nothing is measured.

    \b
      graphattn scale 'grid_neighbourhood((512, 512), 13)' --processes 8,64,1000
    """
    import torch

    from ..distributed.paper import on_paper, times
    from ..distributed.plans import Rows

    numbers = _numbers(processes)
    if heads is None:
        heads = max(1, width // 64)
    if width % heads:
        raise OptionError(f"--width must be a multiple of the heads, got {width} and {heads}")
    rows = Rows(heads, kv_heads, width // heads, getattr(torch, dtype.value))
    subject = item(what)
    graph = subject.graph
    pos = subject.places.get("pos")
    if partition is None:
        if graph.is_square and (pos is not None or len(graph.edges.grid) > 1):
            partition = "rcb"
        else:
            partition = "contiguous"
    reports = []
    for P in numbers:
        with step(f"counting rows of {P} processes"):
            reports.append(on_paper(graph, P, rows, partition=partition, pos=pos))
    each = [(report, times(report, bandwidth, teraflops)) for report in reports]
    if json:
        plans: list[dict[str, Any]] = [
            {**r.to_dict(), "milliseconds": t._asdict()} for r, t in each
        ]
        document({**head("scale", subject), "plans": plans})
        return
    say(f"{graph!r}")
    say(
        f"{heads} heads of {width // heads}, {rows.of_kv} of key and value, {dtype.value}: "
        f"{rows.bytes:,} bytes a row of both\n"
    )
    lines: list[tuple[str, ...]] = [
        (
            "processes",
            "own",
            "halo",
            "halo/own",
            "interior",
            "plan",
            "MB",
            "exchange ms",
            "compute ms",
            "balance",
        )
    ]
    for report, time in each:
        c = report.counts
        own = int(c.targets.max())
        halo = int(c.remote.max())
        most = int(report.bytes_per_layer.max())
        shares = f"{halo / max(1, own):.2g}", f"{report.interior:.0%}", report.plan
        costs = (
            f"{most / 1e6:,.3g}",
            *(f"{milliseconds:.2g}" for milliseconds in time),
            f"{report.balance:.2f}",
        )
        lines.append((f"{c.processes:,}", f"{own:,}", f"{halo:,}", *shares, *costs))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)))
    say(
        f"\npartition: {reports[-1].partition}; own, halo, MB and times are those of the process "
        "that has most"
    )
    reasons: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        for refused in report.refused.items() if report.counts.processes > 1 else ():
            reasons.setdefault(refused, []).append(f"{report.counts.processes:,}")
    for (plan, reason), of in reasons.items():
        every = " and ".join(filter(None, (", ".join(of[:-1]), of[-1])))
        say(f"{every} processes, not {plan}: {reason}")
    say(
        f"times: at {bandwidth:g} GB/s and {teraflops:g} TFLOP/s, a layer's forward; the backward "
        "sends as much again"
    )
    say_notes(subject.notes)


def _numbers(processes: str) -> list[int]:
    words = processes.split(",")
    if not all(word.strip().isdecimal() and 0 < int(word) <= _MOST for word in words):
        raise OptionError(
            f"--processes must be whole numbers from 1 to {_MOST:,}, such as 1,8,64, got "
            f"{processes}"
        )
    return [int(word) for word in words]
