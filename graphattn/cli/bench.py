"""What ``graphattn bench`` does: time attention on a graph beside what people would use otherwise."""

from typing import Any

from ..errors import OptionError
from .commands import say_notes
from .output import document, say, step
from .what import item, item_or_pattern


def bench(
    what: str,
    sizes: str | None,
    problem: dict[str, Any],
    peers: str | None,
    repeats: int,
    limit: float,
    json: bool,
) -> None:
    """Measure the graph, or the pattern at each size, and print it."""
    import torch

    from ..backends.device import check_device
    from ..bench.machine import heading, machine
    from ..bench.timing import compare
    from ..graph import Pattern

    device = check_device(problem["device"])
    nodes = _sizes(sizes)
    subject = item_or_pattern(what) if nodes else item(what)
    if nodes and not isinstance(subject.graph, Pattern):
        raise OptionError(
            f"--sizes goes with a graph that is open in its size, such as 'sliding_window(..., 257)'; got {what}"
        )
    graphs = [subject.graph(size) for size in nodes] or [subject.graph]
    facts, results = machine(device), []
    if not json:
        say(heading(facts))
        say_notes(subject.notes)
    options = {**problem, "device": device, "dtype": getattr(torch, problem["dtype"]), "repeats": repeats}
    for graph in graphs:
        with step(f"measuring {graph.name or what}") as progress:
            names = peers.split(",") if peers else ()
            results.append(compare(graph, peers=names, limit=limit, progress=progress, **options))
        if not json:
            say(f"\n{results[-1]}")
    if json:
        settings = {"repeats": repeats, "limit_s": limit}
        graphs = [result.to_dict() for result in results]
        document({"command": "bench", "what": what, "machine": facts, "settings": settings, "graphs": graphs})


def _sizes(text: str | None) -> list[Any]:
    """``1024,4096`` as numbers of nodes, ``8x8,16x16`` as axes of grids."""
    try:
        sizes = [tuple(map(int, size.split("x"))) for size in text.split(",")] if text is not None else []
    except ValueError:
        raise OptionError(f"--sizes must be whole numbers such as 1024,4096, or 8x8,16x16, got {text!r}") from None
    return [size if len(size) > 1 else size[0] for size in sizes]
