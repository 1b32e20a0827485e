"""What the commands on a graph do: make it, ask the library, print."""

import os
import shlex
from json import dumps
from pathlib import Path
from typing import Any

from ..errors import OptionError
from .output import check_file, check_picture, document, mask_lines, one_line, rendered, say, step, table
from .what import Item, item

_MOST_NODES = 1 << 26  # whose degrees fit in a GiB


def show(what: str, out: str | None, save: str | None, json: bool) -> None:
    """The graph, its mask, its facts, a picture, a file that holds it."""
    if out is not None:
        check_picture(out)
    if save is not None:
        from ..interop import files, saving

        check_file("--save", save, (*files.save.KINDS, *saving.KINDS))
    subject = item(what)
    if save is not None and os.path.exists(save) and any(os.path.samefile(save, path) for path in subject.paths):
        raise OptionError(f"--save {save} would replace a file that is read; give it another name")
    with step(f"looking at {what}"):
        drawing = str(subject.graph).partition("\n")[2]
        facts, notes = _facts(subject)
    if out is not None:
        with step(f"drawing {out}"):
            _draw(subject, out)
    if save is not None:
        notes += _saved(subject, save)
    if json:
        document(
            {
                **head("show", subject, notes),
                "name": subject.graph.name,
                "facts": facts,
                "drawing": drawing.splitlines(),
                "picture": out,
                "edges": save,
            }
        )
        return
    say(f"{subject.graph!r}\n\n{mask_lines(drawing)}\n")
    if facts is not None:
        from ..questions.facts_of_one import called, shown

        rendered(table([(called(name), shown(value)) for name, value in facts.items()]))
    say_notes(notes)
    if out is not None:
        say(f"\npicture: {one_line(out)}")
    if save is not None:
        say(f"\nsaved: {one_line(save)}")


def explain(what: str, sizes: dict[str, Any], options: dict[str, bool], dtype: str, device: str, json: bool) -> None:
    """Which backend would run, and why."""
    from ..backends.device import check_device

    where = check_device(device, "leave it out for the CPU; graphattn doctor lists devices")
    subject = item(what)
    import torch

    from ..attention import explain as explained

    with step(f"explaining {what}"):
        explanation = explained(subject.graph, dtype=getattr(torch, dtype), device=where, **sizes, **options)
    if json:
        document({**head("explain", subject), **explanation.to_dict()})
        return
    say(str(explanation))
    say_notes(subject.notes)


def verify(what: str, seed: int, heads: int | None, kv_heads: int | None, at_most: int, json: bool) -> bool:
    """Every backend against its dense twin; whether all is exact."""
    if heads is None and kv_heads is not None:
        raise OptionError("--kv-heads goes with --heads")
    options: dict[str, Any] = {} if heads is None else {"heads": (heads, heads if kv_heads is None else kv_heads)}
    subject = item(what)
    from ..verify import verify as verified

    with step(f"verifying {what}, {subject.graph.num_targets:,} targets") as tell:
        report = verified(subject.graph, seed=seed, at_most=at_most, progress=tell, **options)
    if json:
        document({**head("verify", subject), **report.to_dict(), "notes": [*subject.notes, *report.notes]})
        return report.ok
    say(str(report))
    say_notes(subject.notes)
    return report.ok


def head(command: str, subject: Item, notes: tuple[str, ...] | None = None) -> dict[str, Any]:
    """What every document of a command on a graph begins with."""
    notes = subject.notes if notes is None else notes
    return {"command": command, "what": subject.what, "graph": repr(subject.graph), "notes": list(notes)}


def say_notes(notes: tuple[str, ...]) -> None:
    """What a reader should know about the graph, a line each."""
    for note in notes:
        say(f"note: {note}")


def _facts(subject: Item) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    from ..graph.facts import facts

    graph = subject.graph
    nodes = graph.num_targets + graph.num_sources
    if nodes > _MOST_NODES:
        return None, (*subject.notes, f"no facts: they need the degrees of {nodes:,} nodes (limit {_MOST_NODES:,})")
    return facts(graph).to_dict(), subject.notes


def _draw(subject: Item, out: str) -> None:
    from ..interop.files._replace import save_picture
    from ..viz import plot

    save_picture(out, plot(subject.graph, **subject.places))


def _saved(subject: Item, path: str) -> tuple[str, ...]:
    """Write the graph; how to read it again, where that is not plain."""
    from ..interop import save_graph, saving
    from ..interop.files import save_edges

    graph = subject.graph
    is_graph = Path(path).suffix.lower() in saving.KINDS
    with step(f"writing {path}"):
        save_graph(graph, path) if is_graph else save_edges(path, graph)
    options = "".join(
        [
            ', duplicates="keep"' * graph.has_repeated_edges,
            f", header=True, num_sources={graph.num_sources}, num_targets={graph.num_targets}" * path.endswith(".csv"),
        ]
    )
    again = one_line(shlex.quote(f"load({dumps(path, ensure_ascii=False)}{options})"))
    return (f"read it again: graphattn show {again}",) if options and not is_graph else ()
