"""``graphattn bench``: attention on a graph, timed beside other libraries."""

from typing import Annotated, Any, Optional

import typer

from ..errors import OptionError
from .commands import say_notes
from .options import Debug, Device, Dtype, Json, What, number
from .output import document, say, step
from .what import item, item_or_pattern


def bench(
    what: What,
    sizes: Annotated[
        Optional[str],
        typer.Option(
            metavar="N,N,..",
            help="Of a WHAT with ... for its size, each in turn: 1024,4096 or 8x8,16x16.",
        ),
    ] = None,
    heads: Annotated[int, number("Heads.")] = 4,
    head_dim: Annotated[int, number("Width of a head.")] = 32,
    batch: Annotated[int, number("Product of the leading dimensions.")] = 1,
    dtype: Annotated[Dtype, typer.Option(help="Of query, key and value.")] = Dtype.float32,
    device: Device = "cpu",
    peers: Annotated[
        Optional[str],
        typer.Option(metavar="NAME,..", help="Backends, SDPA or PyG beside auto; all by default."),
    ] = None,
    repeats: Annotated[int, number("Turns of each; the median is printed.")] = 7,
    limit: Annotated[
        float, number("Seconds for the turns of each, forward and with backward.", 0.1)
    ] = 20,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Time attention on a graph beside torch's SDPA and PyG.

    Every backend, SDPA with the graph as its mask and PyG's TransformerConv, forward and with
    backward, in turns; each answer is checked first. On the CPU the others run on one thread, too.

    \b
      graphattn bench 'sliding_window(..., 257, causal=True)' --sizes 1024,4096
    """
    import torch

    from ..arguments import device as available
    from ..bench.machine import heading, machine
    from ..bench.timing import compare
    from ..graph import Pattern

    device = str(available(device, numbers=True))
    nodes = _sizes(sizes)
    if nodes:
        subject = item_or_pattern(what)
    else:
        subject = item(what)
    if nodes and not isinstance(subject.graph, Pattern):
        raise OptionError(
            "--sizes goes with a graph that is open in its size, such as 'sliding_window(..., "
            f"257, causal=True)'; got {what}"
        )
    graphs = [subject.graph(size) for size in nodes] or [subject.graph]
    facts = machine(device)
    results = []
    if not json:
        say(heading(facts))
        say_notes(subject.notes)
    options: dict[str, Any] = {
        "heads": heads,
        "head_dim": head_dim,
        "batch": batch,
        "device": device,
    }
    options |= {"dtype": getattr(torch, dtype.value), "repeats": repeats, "limit": limit}
    for graph in graphs:
        with step(f"measuring {graph.name or what}") as progress:
            names: Any = ()
            if peers:
                names = peers.split(",")
            results.append(compare(graph, peers=names, progress=progress, **options))
        if not json:
            say(f"\n{results[-1]}")
    if json:
        settings = {"repeats": repeats, "limit_s": limit}
        graphs = [result.to_dict() for result in results]
        document(
            {
                "command": "bench",
                "what": what,
                "machine": facts,
                "settings": settings,
                "graphs": graphs,
            }
        )


def _sizes(text: str | None) -> list[Any]:
    """``1024,4096`` as numbers of nodes, ``8x8,16x16`` as axes of grids."""
    try:
        if text is not None:
            sizes = [tuple(map(int, size.split("x"))) for size in text.split(",")]
        else:
            sizes = []
    except ValueError:
        raise OptionError(
            f"--sizes must be whole numbers such as 1024,4096, or 8x8,16x16, got {text!r}"
        ) from None
    return [size if len(size) > 1 else size[0] for size in sizes]
