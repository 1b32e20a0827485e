"""``graphattn facts`` and ``graphattn audit``: make the graph, ask it, print."""

import os
from typing import Annotated, Any, Optional

import typer

from ..errors import GraphError, OptionError
from .commands import head, say_notes
from .options import Debug, Json, What, number
from .output import document, say, step
from .what import item


def facts(
    what: What,
    budget: Annotated[int, number("Edges that searches may look at.")] = 1 << 26,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the facts of a graph that take seconds to compute.

    Degrees, symmetry and self-loops; components, cycles, hops until a node depends on all it ever
    will; how full its tiles are. What costs more is named, with the reason. The layers of a model
    stand in one WHAT with ; between them.

    \b
      graphattn facts 'sliding_window(64, 9, causal=True); full(64)'
    """
    if ";" in what and not os.path.exists(what):
        _of_layers(what, budget, json)
        return
    subject = item(what)
    from ..analysis.facts import facts as facts_of
    from ..analysis.tile_fill import tile_fill

    with step(f"looking at {what}"):
        answer = facts_of(subject.graph, budget=budget)
        try:
            fill = tile_fill(subject.graph)
            why = ""
        except GraphError as error:
            fill = None
            why = str(error)
    if json:
        tiles: dict[str, Any] | None = None if fill is None else fill.to_dict()
        document(
            {
                **head("facts", subject),
                "name": subject.graph.name,
                "facts": answer.to_dict(),
                "tiles": tiles,
            }
        )
        return
    say(f"{subject.graph!r}\n\n{answer}")
    say(f"no tiles: {why}" if fill is None else str(fill))
    say_notes(subject.notes)


def _of_layers(what: str, budget: int, json: bool) -> None:
    """Facts of the graphs between semicolons, first layer first."""
    parts = [part.strip() for part in what.split(";") if part.strip()]
    if not parts:
        raise OptionError(f"no layer stands between the semicolons of {what!r}")
    graphs = {part: item(part).graph for part in dict.fromkeys(parts)}
    layers = [graphs[part] for part in parts]
    from ..analysis.facts import facts as facts_of

    with step(f"looking at {what}"):
        answer = facts_of(layers, budget=budget)
    if json:
        document(
            {
                "command": "facts",
                "what": what,
                "graphs": list(map(repr, layers)),
                "facts": answer.to_dict(),
            }
        )
        return
    say("\n".join(f"{i:3}  {layer!r}" for i, layer in enumerate(layers)))
    say(f"\n{answer}")


def audit(
    what: What,
    mask: Annotated[
        Optional[str],
        typer.Option(metavar="FILE", help="The mask: .npy of bool (T, S), True for an edge."),
    ] = None,
    budget: Annotated[int, number("Entries that may be looked at.")] = 1 << 27,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare a mask with the graph that it should be, or a model's code with its configuration.

    Lists the wrong entries by kind, and the known mistake that makes them, if there is one: rows
    and columns swapped, a window off by one, a neighbourhood that clamps rows by the width. Exit
    status 0 if all entries are right, 1 if not.

    \b
      graphattn audit 'causal(8)' --mask mask.npy

    Without --mask, WHAT is a folder with a config.json of transformers, or that file: a small model
    of random weights is made of it, and what its layers read is compared with the windows and layer
    types that it names.

    \b
      graphattn audit mistral/config.json
    """
    if mask is not None:
        from ..analysis.masks.audit import audit as audited
        from ..convert.files import load_mask

        subject = item(what)
        with step(f"auditing {mask}"):
            report: Any = audited(load_mask(mask), subject.graph, budget=budget)
        header = {**head("audit", subject), "mask": mask}
        notes = subject.notes
    elif os.path.exists(what):
        from ..hf import audit_config

        with step(f"auditing {what}"):
            report = audit_config(what)
        header = {"command": "audit", "what": what}
        notes = ()
    else:
        raise OptionError(
            f"there is no folder or file {what} of a configuration; of a graph, give its mask: "
            "--mask mask.npy"
        )
    if json:
        document({**header, **report.to_dict()})
    else:
        say(str(report))
        say_notes(notes)
    raise typer.Exit(int(not report.ok))
