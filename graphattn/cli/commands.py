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
    asked = item(what)
    if save is not None and os.path.exists(save) and any(os.path.samefile(save, path) for path in asked.paths):
        raise OptionError(f"--save {save} would replace a file that is read; give it another name")
    with step(f"looking at {what}"):
        drawing = str(asked.graph).partition("\n")[2]
        facts, notes = _facts(asked)
    if out is not None:
        with step(f"drawing {out}"):
            _draw(asked, out)
    if save is not None:
        notes += _saved(asked, save)
    if json:
        document(
            {
                **head("show", asked, notes),
                "name": asked.graph.name,
                "facts": facts,
                "drawing": drawing.splitlines(),
                "picture": out,
                "edges": save,
            }
        )
        return
    say(f"{asked.graph!r}\n\n{mask_lines(drawing)}\n")
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
    asked = item(what)
    import torch

    from ..attention import explain as explained

    with step(f"explaining {what}"):
        explanation = explained(asked.graph, dtype=getattr(torch, dtype), device=where, **sizes, **options)
    if json:
        document({**head("explain", asked), **explanation.to_dict()})
        return
    say(str(explanation))
    say_notes(asked.notes)


def verify(what: str, seed: int, heads: int | None, kv_heads: int | None, at_most: int, json: bool) -> bool:
    """Every backend against its dense twin; whether all is exact."""
    if heads is None and kv_heads is not None:
        raise OptionError("--kv-heads goes with --heads")
    options: dict[str, Any] = {} if heads is None else {"heads": (heads, heads if kv_heads is None else kv_heads)}
    asked = item(what)
    from ..verify import verify as verified

    with step(f"verifying {what}, {asked.graph.num_targets:,} targets") as tell:
        report = verified(asked.graph, seed=seed, at_most=at_most, progress=tell, **options)
    if json:
        document({**head("verify", asked), **report.to_dict(), "notes": [*asked.notes, *report.notes]})
        return report.ok
    say(str(report))
    say_notes(asked.notes)
    return report.ok


def head(command: str, asked: Item, notes: tuple[str, ...] | None = None) -> dict[str, Any]:
    """What every document of a command on a graph begins with."""
    told = asked.notes if notes is None else notes
    return {"command": command, "what": asked.what, "graph": repr(asked.graph), "notes": list(told)}


def say_notes(notes: tuple[str, ...]) -> None:
    """What a reader should know about the graph, a line each."""
    for note in notes:
        say(f"note: {note}")


def _facts(asked: Item) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    from ..graph.facts import facts

    graph = asked.graph
    nodes = graph.num_targets + graph.num_sources
    if nodes > _MOST_NODES:
        return None, (*asked.notes, f"no facts: they need the degrees of {nodes:,} nodes (limit {_MOST_NODES:,})")
    return facts(graph).to_dict(), asked.notes


def _draw(asked: Item, out: str) -> None:
    from ..interop.files._replace import save_picture
    from ..viz import plot

    save_picture(out, plot(asked.graph, **asked.places))


def _saved(asked: Item, path: str) -> tuple[str, ...]:
    """Write the graph; how to read it again, where that is not plain."""
    from ..interop import save_graph, saving
    from ..interop.files import save_edges

    graph = asked.graph
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
