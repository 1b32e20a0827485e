"""What ``graphattn facts`` and ``graphattn audit`` do: make the graph, ask it, print."""

import os
from typing import Any

from ..errors import GraphError, OptionError
from .commands import _head, _say_notes
from .output import document, say, step
from .what import item
from .wording import as_typed, in_words

_BUDGET = {"budget": "--budget"}


def facts(what: str, words: list[str], kind: str | None, budget: int, json: bool) -> None:
    """Everything that is known about a graph, or about the layers of a model, in seconds."""
    if ";" in what and not os.path.exists(what):
        _of_layers(what, words, budget, json)
        return
    asked = item(what, words, kind)
    from ..questions.facts import facts as found
    from ..questions.tile_fill import tile_fill

    with step(f"looking at {what}"), in_words({}):
        answer = found(asked.graph, budget=budget)
        try:
            fill, why = tile_fill(asked.graph), ""
        except GraphError as error:
            fill, why = None, str(error)
    if json:
        tiles: dict[str, Any] | None = None if fill is None else fill.to_dict()
        document({**_head("facts", asked), "name": asked.graph.name, "facts": answer.to_dict(), "tiles": tiles})
        return
    say(f"{asked.graph!r}\n\n{as_typed(str(answer), _BUDGET)}")
    say(f"no tiles: {why}" if fill is None else str(fill))
    _say_notes(asked.notes)


def _of_layers(what: str, words: list[str], budget: int, json: bool) -> None:
    """What stands between semicolons, first layer first."""
    if words:
        raise OptionError(f"layers between ; have no options after them, got {words[0]}; write 'causal(8); full(8)'")
    parts = [part.strip() for part in what.split(";") if part.strip()]
    if not parts:
        raise OptionError(f"no layer stands between the semicolons of {what!r}")
    made = {part: item(part, []).graph for part in dict.fromkeys(parts)}
    layers = [made[part] for part in parts]
    from ..questions.facts import facts as found

    with step(f"looking at {what}"), in_words({}):
        answer = found(layers, budget=budget)
    if json:
        document({"command": "facts", "what": what, "graphs": list(map(repr, layers)), "facts": answer.to_dict()})
        return
    say("\n".join(f"{i:3}  {layer!r}" for i, layer in enumerate(layers)))
    say(f"\n{as_typed(str(answer), _BUDGET)}")


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
