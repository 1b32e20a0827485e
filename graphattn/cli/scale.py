"""``graphattn scale``: what processes that share a graph would own and receive, on paper."""

from dataclasses import dataclass
from typing import Annotated, Any, Optional

import typer

from ..errors import OptionError
from ..io.fields import option
from .commands import head, say_notes
from .options import Debug, Dtype, Json, What, number, with_options
from .output import Document, document, say, step
from .what import item

_MOST = 100_000  # processes
_OF_A_MACHINE = 8  # GPUs
_GIGABYTES = 80.0  # of a GPU


@dataclass(frozen=True)
class Blocks:
    """Sizes of a model whose processes share a graph."""

    layers: int = option(12, "Blocks of the model, for the GB that are held.", group="", least=1)
    width: int = option(1024, "Heads times width of a head.", group="", least=1)
    heads: int | None = option(
        None, "Heads of the query; by default of width 64.", group="", least=1
    )
    kv_heads: int | None = option(
        None, "Heads of key and value; by default as many.", group="", least=1
    )
    dtype: Dtype = option(Dtype.bfloat16, "Of the rows that are sent.", group="")


@with_options(lambda: Blocks)
def scale(
    what: What,
    processes: Annotated[
        Optional[str],
        typer.Option(
            metavar="N,N,..", help="Numbers of processes, each in turn.", show_default="1,8,64"
        ),
    ] = None,
    gpus: Annotated[
        Optional[int], number("GPUs that there are, for a launch line in place of --processes.")
    ] = None,
    memory: Annotated[
        Optional[float],
        typer.Option(min=1e-3, help="Gigabytes of a GPU, for --gpus.", show_default="80"),
    ] = None,
    partition: Annotated[
        Optional[str],
        typer.Option(help="contiguous or rcb; rcb by default where positions or a grid are known."),
    ] = None,
    bandwidth: Annotated[float, number("Gigabytes a second that a process receives.", 1e-3)] = 50,
    teraflops: Annotated[float, number("Tera-operations a second of a process.", 1e-3)] = 200,
    json: Json = False,
    debug: Debug = False,
    **options: Any,
) -> None:
    """Plan a graph that many processes or GPUs share, on paper.

    For each number of processes: own nodes, the rows of others that a process reads (halo), the
    plan of exchange, and the bytes of a layer's forward, counted; times are these divided by the
    rates given. Nothing is measured.

    With --gpus it answers with a number of processes, their partition, plan and memory, and the
    launch line, for the number whose steps are shortest of those that fit.

    A scan that does not exist yet is counted as a grid of as many points.

    \b
      graphattn scale 'halo((512, 512), 8, 3)' --gpus 8 --memory 24
      graphattn scale 'halo((512, 512), 8, 3)' --processes 8,64,1000
    """
    import torch

    from ..distributed.paper import fewest, on_paper, times
    from ..distributed.paper import memory as bytes_held
    from ..distributed.plans import LayerWidths

    if gpus is not None:
        if processes is not None:
            raise OptionError("--gpus chooses the number of processes; leave out --processes")
        if gpus > _MOST:
            raise OptionError(f"--gpus must be at most {_MOST:,}, got {gpus:,}")
        numbers = sorted({gpus, *(1 << power for power in range(gpus.bit_length()))})
    elif memory is None:
        words = (processes or "1,8,64").split(",")
        if not all(word.strip().isdecimal() and 0 < int(word) <= _MOST for word in words):
            raise OptionError(
                f"--processes must be whole numbers from 1 to {_MOST:,}, such as 1,8,64, got "
                f"{processes}"
            )
        numbers = [int(word) for word in words]
    else:
        raise OptionError(f"--memory requires --gpus, whose memory it is; got --memory {memory:g}")
    if memory is None:
        memory = _GIGABYTES
    blocks = Blocks(**options)
    heads = blocks.heads or max(1, blocks.width // 64)
    if blocks.width % heads:
        raise OptionError(
            f"--width must be a multiple of the heads, got {blocks.width} and {heads}"
        )
    rows = LayerWidths(
        heads, blocks.kv_heads, blocks.width // heads, getattr(torch, blocks.dtype.value)
    )
    subject = item(what)
    graph = subject.graph
    pos = subject.places.get("pos")
    if partition is None:
        if graph.is_square and (pos is not None or len(graph.edges.grid) > 1):
            partition = "rcb"
        else:
            partition = "contiguous"
    if gpus is not None:
        numbers = _counted(numbers, fewest(graph.edges))
    reports = []
    for P in numbers:
        with step(f"counting rows of {P} processes"):
            reports.append(on_paper(graph, P, rows, partition=partition, pos=pos))
    timed_reports = [(report, times(report, bandwidth, teraflops)) for report in reports]
    held = [bytes_held(report, blocks.layers) for report in reports]
    answer = None
    if gpus is not None:
        answer = _answer(timed_reports, held, memory)
    if json:
        plans: list[Document] = [
            {**r.to_dict(), "milliseconds": t._asdict()} for r, t in timed_reports
        ]
        content = {**head("scale", subject), "plans": plans}
        if answer is not None:
            content["answer"] = answer
        document(content)
        return
    say(f"{graph!r}")
    say(
        f"{heads} heads of {blocks.width // heads}, {rows.of_kv} of key and value, {blocks.dtype.value}: "
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
            "GB held",
            "exchange ms",
            "compute ms",
            "balance",
        )
    ]
    for (report, time), size in zip(timed_reports, held, strict=True):
        c = report.counts
        own_nodes = int(c.targets.max())
        halo = int(c.remote.max())
        most = int(report.bytes_per_layer.max())
        shares = f"{halo / max(1, own_nodes):.2g}", f"{report.interior:.0%}", report.plan
        costs = (
            f"{most / 1e6:,.3g}",
            f"{size / 1e9:,.3g}",
            *(f"{milliseconds:.2g}" for milliseconds in time),
            f"{report.balance:.2f}",
        )
        lines.append((f"{c.processes:,}", f"{own_nodes:,}", f"{halo:,}", *shares, *costs))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)))
    say(
        f"\npartition: {reports[-1].partition}; own, halo, MB and times are those of the process "
        f"that has most\nGB held: in a training step of {blocks.layers} blocks (--layers)"
    )
    reasons: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        for refused in report.refused.items() if report.counts.processes > 1 else ():
            reasons.setdefault(refused, []).append(f"{report.counts.processes:,}")
    for (plan, reason), process_counts in reasons.items():
        listing = " and ".join(filter(None, (", ".join(process_counts[:-1]), process_counts[-1])))
        say(f"{listing} processes, not {plan}: {reason}")
    say(
        f"times: at {bandwidth:g} GB/s and {teraflops:g} TFLOP/s, a layer's forward; the backward "
        "sends as much again"
    )
    if answer is not None:
        say(
            f"\n{answer['processes']:,} of {gpus:,} GPUs: partition {answer['partition']}, plan "
            f"{answer['plan']}, {answer['bytes'] / 1e9:,.3g} GB of {memory:g} GB a process; "
            f"of the numbers above, {answer['fewest']:,} is the least that fits\n"
            f"assumed: {blocks.layers} blocks of width {blocks.width} (--layers, --width, --heads) in "
            f"{blocks.dtype.value}, trained with AdamW in float32, {_OF_A_MACHINE} GPUs a machine at most\n"
            f"{answer['launch']}"
        )
    say_notes(subject.notes)


def _counted(numbers: list[int], least: int) -> list[int]:
    """The numbers of processes that can be counted on paper.

    Raises:
        OptionError: If there are none.
    """
    counted = [number for number in numbers if number >= least]
    if not counted:
        raise OptionError(f"--gpus must be at least {least:,} for this graph, got {numbers[-1]:,}")
    return counted


def _answer(timed_reports: list[tuple[Any, Any]], held: list[int], gigabytes: float) -> Document:
    """The plan whose steps are shortest, of those that fit into the memory of a GPU.

    Raises:
        OptionError: If none fits.
    """
    fit = [number for number, size in enumerate(held) if size <= gigabytes * 1e9]
    if not fit:
        least = min(held)
        raise OptionError(
            f"--memory: a process holds {least / 1e9:,.3g} GB at least, got {gigabytes:g}; take "
            "more --gpus, or fewer --layers"
        )
    best = min(fit, key=lambda number: sum(timed_reports[number][1]))
    report = timed_reports[best][0]
    number = report.counts.processes
    return {
        "processes": number,
        "fewest": timed_reports[fit[0]][0].counts.processes,
        "partition": report.partition,
        "plan": report.plan,
        "bytes": held[best],
        "launch": _launch(number),
    }


def _launch(processes: int) -> str:
    """The line that starts so many processes, on machines that each have as many."""
    if processes == 1:
        return "python train.py"
    if processes <= _OF_A_MACHINE:
        return f"torchrun --standalone --nproc_per_node {processes} train.py"
    # torchrun starts as many on each machine
    per_machine = max(n for n in range(1, _OF_A_MACHINE + 1) if processes % n == 0)
    return (
        f"torchrun --nnodes {processes // per_machine} --nproc_per_node {per_machine} "
        "--rdzv_backend c10d --rdzv_endpoint HOST:29500 train.py"
    )
