"""What the commands on a graph do: make it, ask the library, print."""

import os
from pathlib import Path
from typing import Any

from ..errors import OptionError
from .loading import Item
from .output import document, mask_lines, rendered, say, step, table
from .what import item
from .wording import in_words

_MOST_NODES = 1 << 26  # whose degrees fit in a GiB


def show(what: str, words: list[str], kind: str | None, out: str | None, json: bool) -> None:
    """The graph, its mask, its facts, a picture."""
    if out is not None:
        _check_picture(out)
    asked = item(what, words, kind)
    with step(f"looking at {what}"):
        drawing = str(asked.graph).partition("\n")[2]
        facts, notes = _facts(asked)
    if out is not None:
        with step(f"drawing {out}"):
            _draw(asked, out)
    if json:
        document(
            {
                **_head("show", asked, notes),
                "name": asked.graph.name,
                "facts": facts,
                "drawing": drawing.splitlines(),
                "picture": out,
            }
        )
        return
    say(f"{asked.graph!r}\n\n{mask_lines(drawing)}\n")
    if facts is not None:
        rendered(table([(name.removeprefix("num_").replace("_", " "), _shown(value)) for name, value in facts.items()]))
    _say_notes(notes)
    if out is not None:
        say(f"\npicture: {out}")


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
    asked = item(what, words, kind)
    import torch

    from ..attention import explain as explained

    try:
        where = torch.device(device)
    except RuntimeError:
        raise OptionError(f"--device must be cpu, cuda, cuda:1 or the like, got {device!r}") from None
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
    with step(f"verifying {what}"):
        report = verified(asked.graph, seed=seed, at_most=at_most, **options)
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


def _check_picture(out: str) -> None:
    """Say at once what would fail at the end."""
    from ..errors import need_extra

    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise need_extra("matplotlib", "plot") from error
    known = FigureCanvasBase.get_supported_filetypes()
    suffix = Path(out).suffix.lower().removeprefix(".")
    if suffix not in known:
        raise OptionError(f"--out must end in .png, .pdf, .svg or another that matplotlib writes, got {out}")
    folder = Path(out).parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise OptionError(f"--out: {folder} is no folder that can be written to")


def _draw(asked: Item, out: str) -> None:
    from ..viz import plot

    figure = plot(asked.graph, **asked.places)
    try:
        figure.savefig(out)
    except OSError as error:
        raise OptionError(f"--out: cannot write {out}: {error.strerror or error}") from error
