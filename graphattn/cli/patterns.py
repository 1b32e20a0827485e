"""``graphattn patterns``: every builder with its arguments."""

import difflib
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..errors import OptionError
from .options import Debug, Json
from .output import document, say

_KEPT = re.compile(r"\[[^()]*?\]+| [|=] |: ")  # what stays on one line: an argument with its type and default


def patterns(
    about: Annotated[
        str, typer.Argument(metavar="WORD", help="One builder in full, or those whose name or line has it.")
    ] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the builders of expressions, each with its arguments."""
    from ..graphs.expression import callables, signature_of

    known = callables()
    about = about.replace("-", "_").lower()
    chosen = (
        [about] if about in known else [name for name in known if about in f"{name} {summary(known[name])}".lower()]
    )
    if not chosen:
        close = difflib.get_close_matches(about, known, 1)
        hint = f"did you mean {close[0]}?" if close else "graphattn patterns lists all"
        raise OptionError(f"no builder has {about!r} in its name or line; {hint}")
    if json:
        rows = [{"name": name, "signature": signature_of(known[name]), "line": summary(known[name])} for name in chosen]
        document({"command": "patterns", "patterns": rows})
    elif len(chosen) == 1:
        name = chosen[0]
        say(f"{name}{signature_of(known[name])}\n\n{inspect.getdoc(known[name]) or ''}".rstrip())
    else:
        width = min(100, shutil.get_terminal_size().columns)
        for name in chosen:
            say(_filled(f"{name}{_KEPT.sub(_together, signature_of(known[name]))}", width, "", "    "))
            say(_filled(summary(known[name]), width, "    ", "    ") + "\n")
        say("One in full: graphattn patterns knn. How they are joined: graphattn show --help")


def summary(function: Callable[..., Any]) -> str:
    """The first paragraph of the documentation, on one line.

    Example:
        >>> from graphattn.graphs import full
        >>> summary(full)
        'Every node reads every node, itself included: an encoder.'
    """
    first = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return " ".join(re.sub(r"``|:\w+:`~?(?:[\w.]*\.)?([^`]*)`", r"\1", first).split())


def _filled(text: str, width: int, first: str, rest: str) -> str:
    lines = textwrap.fill(text, max(30, width), initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return lines.replace("\0", " ")


def _together(part: "re.Match[str]") -> str:
    return part[0].replace(" ", "\0")
