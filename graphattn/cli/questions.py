"""What ``graphattn facts`` and ``graphattn audit`` do: make the graph, ask it, print."""

from typing import Any

from ..errors import GraphError
from .commands import _head, _say_notes
from .output import document, say, step
from .what import item
from .wording import in_words


def facts(what: str, words: list[str], kind: str | None, json: bool) -> None:
    """Everything that is known about a graph in seconds."""
    asked = item(what, words, kind)
    from ..questions.facts import facts as found
    from ..questions.tile_fill import tile_fill

    with step(f"looking at {what}"), in_words({}):
        answer = found(asked.graph)
        try:
            fill, why = tile_fill(asked.graph), ""
        except GraphError as error:
            fill, why = None, str(error)
    if json:
        tiles: dict[str, Any] | None = None if fill is None else fill.to_dict()
        document({**_head("facts", asked), "name": asked.graph.name, "facts": answer.to_dict(), "tiles": tiles})
        return
    say(f"{asked.graph!r}\n\n{answer}")
    say(f"no tiles: {why}" if fill is None else str(fill))
    _say_notes(asked.notes)


def audit(what: str, words: list[str], kind: str | None, path: str, json: bool) -> bool:
    """A mask beside the graph that it should be; whether all is right."""
    asked = item(what, words, kind)
    from ..interop.files import load_mask
    from ..questions.audit import audit as audited

    with step(f"auditing {path}"), in_words({"mask": "--mask", "expect": what}):
        found = audited(load_mask(path), asked.graph)
    if json:
        document({**_head("audit", asked), "mask": path, **found.to_dict()})
        return found.ok
    say(str(found))
    _say_notes(asked.notes)
    return found.ok
