"""``graphattn show``, ``explain`` and ``verify``: make the graph, ask the library, print."""

import os
import shlex
from dataclasses import replace
from json import dumps
from typing import Annotated, Optional

import typer

from ..errors import OptionError
from .options import Debug, Device, Dtype, Json, Picture, What, number
from .output import (
    Document,
    check_file,
    check_picture,
    document,
    mask_lines,
    one_line,
    rendered,
    say,
    step,
    table,
)
from .what import NamedGraph, item, shown_item

_MOST_NODES = 1 << 26  # whose degrees fit in a GiB


def show(
    what: What,
    out: Picture = None,
    save: Annotated[
        Optional[str],
        typer.Option(
            metavar="FILE", help="Write its edges (.npz, .csv), or the graph (.json, .safetensors)."
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Look at a graph.

    Its mask in text, facts computed from its edges; a picture, or a file that holds it, if wanted.
    """
    if out is not None:
        check_picture(out)
    if save is not None:
        from ..convert import files, saving

        check_file("--save", save, (*files.save.KINDS, *saving.KINDS))
    subject = shown_item(what)
    if (
        save is not None
        and os.path.exists(save)
        and any(os.path.samefile(save, path) for path in subject.paths)
    ):
        raise OptionError(f"--save {save} would replace a file that is read; give it another name")
    with step(f"looking at {what}"):
        drawing = str(subject.graph).partition("\n")[2]
        facts, notes = _facts(subject)
    if out is not None:
        with step(f"drawing {out}"):
            from ..io.writing import save_picture
            from ..viz import plot

            graph = subject.graph
            if subject.title:
                graph = replace(graph, name=f"{subject.title}: {graph.name}")
            save_picture(out, plot(graph, **subject.places))
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
        from ..analysis.facts import called, shown

        rendered(table([(called(name), shown(value)) for name, value in facts.items()]))
    say_notes(notes)
    if out is not None:
        say(f"\npicture: {one_line(out)}")
    if save is not None:
        say(f"\nsaved: {one_line(save)}")


def explain(
    what: What,
    heads: Annotated[int, number("Heads of the query.")] = 8,
    kv_heads: Annotated[
        Optional[int], number("Heads of key and value; by default as many.")
    ] = None,
    head_dim: Annotated[int, number("Width of a head.")] = 64,
    batch: Annotated[int, number("Samples in a call.")] = 1,
    dtype: Annotated[Dtype, typer.Option(help="Of query, key and value.")] = Dtype.float32,
    device: Device = "cpu",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """See what would run on a graph, and why.

    Every backend's estimated cost, or its reasons against; graphattn.explain in Python takes biases
    and options, too.
    """
    import torch

    from ..functional import explain as explained

    subject = item(what)
    with step(f"explaining {what}"):
        explanation = explained(
            subject.graph,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            batch=batch,
            dtype=getattr(torch, dtype.value),
            device=device,
        )
    if json:
        document({**head("explain", subject), **explanation.to_dict()})
        return
    say(str(explanation))
    say_notes(subject.notes)


def verify(
    what: What,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure the exactness of attention on a graph.

    Output and gradients of every backend are compared with plain dense attention in float64: at
    every target where that takes at most minutes (causal up to about 2,000 nodes, sparse graphs up
    to ten thousands), else at a sample; the report says which. Exit status 0 if all that was
    compared is exact, 1 if something is not.
    """
    subject = item(what)
    from ..exactness import verify as verified

    with step(f"verifying {what}, {subject.graph.num_targets:,} targets") as progress:
        report = verified(subject.graph, progress=progress)
    if json:
        document(
            {
                **head("verify", subject),
                **report.to_dict(),
                "notes": [*subject.notes, *report.notes],
            }
        )
    else:
        say(str(report))
        say_notes(subject.notes)
    raise typer.Exit(int(not report.ok))


def head(command: str, subject: NamedGraph, notes: tuple[str, ...] | None = None) -> Document:
    """The first keys of every document of a command on a graph."""
    if notes is None:
        notes = subject.notes
    return {
        "command": command,
        "what": subject.what,
        "graph": repr(subject.graph),
        "notes": list(notes),
    }


def say_notes(notes: tuple[str, ...]) -> None:
    """Notes on the graph, a line each."""
    for note in notes:
        say(f"note: {note}")


def _facts(subject: NamedGraph) -> tuple[Document | None, tuple[str, ...]]:
    from ..analysis.facts import counted

    graph = subject.graph
    nodes = graph.num_targets + graph.num_sources
    if nodes > _MOST_NODES:
        return None, (
            *subject.notes,
            f"no facts: they need the degrees of {nodes:,} nodes (limit {_MOST_NODES:,})",
        )
    return counted(graph), subject.notes


def _saved(subject: NamedGraph, path: str) -> tuple[str, ...]:
    """Write the graph; returns the command that reads it, if that needs options."""
    from ..convert.files import save_edges
    from ..convert.saving import is_saved_graph, save_graph

    graph = subject.graph
    is_graph = is_saved_graph(path)
    with step(f"writing {path}"):
        save_graph(graph, path) if is_graph else save_edges(path, graph)
    options = "".join(
        [
            ', duplicates="keep"' * graph.has_repeated_edges,
            f", header=True, num_sources={graph.num_sources}, num_targets={graph.num_targets}"
            * path.endswith(".csv"),
        ]
    )
    again = one_line(shlex.quote(f"load({dumps(path, ensure_ascii=False)}{options})"))
    if options and not is_graph:
        return (f"read it again: graphattn show {again}",)
    return ()
