"""What ``graphattn facts`` and ``graphattn audit`` do: make the graph, ask it, print."""

import os
from typing import Any

from ..errors import GraphError, OptionError
from .commands import head, say_notes
from .output import document, say, step
from .what import item


def facts(what: str, budget: int, json: bool) -> None:
    """Everything that is known about a graph, or about the layers of a model, in seconds."""
    if ";" in what and not os.path.exists(what):
        _of_layers(what, budget, json)
        return
    subject = item(what)
    from ..questions.facts import facts as facts_of
    from ..questions.tile_fill import tile_fill

    with step(f"looking at {what}"):
        answer = facts_of(subject.graph, budget=budget)
        try:
            fill, why = tile_fill(subject.graph), ""
        except GraphError as error:
            fill, why = None, str(error)
    if json:
        tiles: dict[str, Any] | None = None if fill is None else fill.to_dict()
        document({**head("facts", subject), "name": subject.graph.name, "facts": answer.to_dict(), "tiles": tiles})
        return
    say(f"{subject.graph!r}\n\n{answer}")
    say(f"no tiles: {why}" if fill is None else str(fill))
    say_notes(subject.notes)


def _of_layers(what: str, budget: int, json: bool) -> None:
    """What stands between semicolons, first layer first."""
    parts = [part.strip() for part in what.split(";") if part.strip()]
    if not parts:
        raise OptionError(f"no layer stands between the semicolons of {what!r}")
    made = {part: item(part).graph for part in dict.fromkeys(parts)}
    layers = [made[part] for part in parts]
    from ..questions.facts import facts as facts_of

    with step(f"looking at {what}"):
        answer = facts_of(layers, budget=budget)
    if json:
        document({"command": "facts", "what": what, "graphs": list(map(repr, layers)), "facts": answer.to_dict()})
        return
    say("\n".join(f"{i:3}  {layer!r}" for i, layer in enumerate(layers)))
    say(f"\n{answer}")


def audit(what: str, path: str | None, budget: int, json: bool) -> bool:
    """A mask beside the graph that it should be, or a configuration beside its model; whether all is right."""
    if path is None:
        return _of_config(what, json)
    subject = item(what)
    from ..interop.files import load_mask
    from ..questions.audit import audit as audited

    with step(f"auditing {path}"):
        report = audited(load_mask(path), subject.graph, budget=budget)
    if json:
        document({**head("audit", subject), "mask": path, **report.to_dict()})
        return report.ok
    say(str(report))
    say_notes(subject.notes)
    return report.ok


def _of_config(what: str, json: bool) -> bool:
    if not os.path.exists(what):
        raise OptionError(
            f"there is no folder or file {what} of a configuration; of a graph, give its mask: --mask mask.npy"
        )
    from ..hf import audit_config

    with step(f"auditing {what}"):
        report = audit_config(what)
    if json:
        document({"command": "audit", "what": what, **report.to_dict()})
    else:
        say(str(report))
    return report.ok
