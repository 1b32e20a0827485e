"""What the commands on a graph do: make it, ask the library, print."""

import os
import shlex
from pathlib import Path
from typing import Any

from ..errors import OptionError
from .loading import Item
from .names import PICTURES, SAVED
from .output import document, mask_lines, one_line, rendered, say, step, table
from .what import item
from .wording import in_words

_LONGEST = 255  # bytes of a file's name
_MOST_NODES = 1 << 26  # whose degrees fit in a GiB


def show(what: str, words: list[str], kind: str | None, out: str | None, save: str | None, json: bool) -> None:
    """The graph, its mask, its facts, a picture, a file of its edges."""
    if out is not None:
        check_picture(out)
    if save is not None:
        check_file("--save", save, SAVED)
        if os.path.exists(what) and os.path.exists(save) and os.path.samefile(what, save):
            raise OptionError(f"--save {save} would replace the file that is read; give it another name")
    asked = item(what, words, kind)
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
                **_head("show", asked, notes),
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
        rendered(table([(name.removeprefix("num_").replace("_", " "), _shown(value)) for name, value in facts.items()]))
    _say_notes(notes)
    if out is not None:
        say(f"\npicture: {one_line(out)}")
    if save is not None:
        say(f"\nedges: {one_line(save)}")


def explain(
    what: str,
    words: list[str],
    kind: str | None,
    sizes: dict[str, Any],
    options: dict[str, bool],
    dtype: str,
    device: str,
    json: bool,
) -> None:
    """Which backend would run, and why."""
    from ..backends.device import check_device

    with in_words({"device": "--device"}):
        where = check_device(device, "leave it out for the CPU; graphattn doctor lists devices")
    asked = item(what, words, kind)
    import torch

    from ..attention import explain as explained

    with in_words({"heads": "--heads", "kv_heads": "--kv-heads"}), step(f"explaining {what}"):
        found = explained(asked.graph, dtype=getattr(torch, dtype), device=where, **sizes, **options)
    if json:
        document({**_head("explain", asked), **found.to_dict()})
        return
    say(str(found))
    _say_notes(asked.notes)


def verify(
    what: str,
    words: list[str],
    kind: str | None,
    seed: int,
    heads: int | None,
    kv_heads: int | None,
    at_most: int,
    json: bool,
) -> bool:
    """Every backend against its dense twin; whether all is exact."""
    asked = item(what, words, kind)
    from ..verify import verify as verified

    options: dict[str, Any] = {} if heads is None else {"heads": (heads, heads if kv_heads is None else kv_heads)}
    if heads is None and kv_heads is not None:
        raise OptionError("--kv-heads goes with --heads")
    with step(f"verifying {what}, {asked.graph.num_targets:,} targets") as tell:
        report = verified(asked.graph, seed=seed, at_most=at_most, progress=tell, **options)
    if json:
        document({**_head("verify", asked), **report.to_dict(), "notes": [*asked.notes, *report.notes]})
        return report.ok
    say(str(report))
    _say_notes(asked.notes)
    return report.ok


def _head(command: str, asked: Item, notes: tuple[str, ...] | None = None) -> dict[str, Any]:
    found = asked.notes if notes is None else notes
    return {"command": command, "what": asked.what, "graph": repr(asked.graph), "notes": list(found)}


def _say_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        say(f"note: {note}")


def _facts(asked: Item) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    from ..graph.facts import facts

    graph = asked.graph
    nodes = graph.num_targets + graph.num_sources
    if nodes > _MOST_NODES:
        return None, (*asked.notes, f"no facts: they need the degrees of {nodes:,} nodes (limit {_MOST_NODES:,})")
    return facts(graph).to_dict(), asked.notes


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def check_picture(out: str, endings: tuple[str, ...] = PICTURES) -> None:
    """Say at once what would fail at the end."""
    from importlib.util import find_spec

    from ..errors import need_extra

    check_file("--out", out, endings)
    if find_spec("matplotlib") is None:
        raise need_extra("matplotlib", "plot")


def check_file(flag: str, path: str, endings: tuple[str, ...] = ()) -> None:
    """Say at once that a file cannot be written: not a pipe either, on which a writer would wait for ever."""
    if endings and Path(path).suffix.lower() not in endings:
        raise OptionError(f"{flag} must end in {' or '.join(endings)}, got {path}")
    folder, name = os.path.split(path)
    can_be = "\0" not in path and len(os.fsencode(name)) <= _LONGEST
    if os.path.exists(path):
        fits = os.path.isfile(path) and os.access(path, os.W_OK)
    else:
        fits = os.path.isdir(folder or ".") and os.access(folder or ".", os.W_OK)
    if not (can_be and fits):
        raise OptionError(f"{flag}: {path} is no file in a folder that can be written to")


def _draw(asked: Item, out: str) -> None:
    from ..interop.files._replace import save_picture
    from ..viz import plot

    save_picture(out, plot(asked.graph, **asked.places))


def _saved(asked: Item, path: str) -> tuple[str, ...]:
    """Write the edges; how to read them again, where that is not plain."""
    from ..interop.files import save_edges

    graph = asked.graph
    with in_words({}), step(f"writing {path}"):
        save_edges(path, graph)
    sizes = f"--num-sources {graph.num_sources} --num-targets {graph.num_targets}"
    copies = " --duplicates keep" * graph.has_repeated_edges
    again = f"--header {sizes}{copies}" if Path(path).suffix.lower() == ".csv" else copies.strip()
    return (f"the edges read again: graphattn show {one_line(shlex.quote(path))} {again}",) if again else ()
