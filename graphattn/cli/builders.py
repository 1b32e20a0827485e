"""``graphattn builders``, ``zoo`` and ``gallery``: builders, and patterns of the literature."""

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
from .output import check_picture, document, one_line, say, step

# what stays on one line: an argument with its type and default
_KEPT = re.compile(r"\[[^()]*?\]+| [|=] |: ")


def builders(
    about: Annotated[
        str,
        typer.Argument(
            metavar="WORD", help="One builder in full, or those whose name or line has it."
        ),
    ] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the builders of expressions, each with its arguments."""
    from ..graphs.expression import callables, signature_of

    by_name = callables()
    about = about.replace("-", "_").lower()
    if about in by_name:
        chosen = [about]
    else:
        chosen = [name for name in by_name if about in f"{name} {summary(by_name[name])}".lower()]
    if not chosen:
        close = difflib.get_close_matches(about, by_name, 1)
        if close:
            hint = f"did you mean {close[0]}?"
        else:
            hint = "graphattn builders lists all"
        raise OptionError(f"no builder has {about!r} in its name or line; {hint}")
    if json:
        rows = [
            {
                "name": name,
                "signature": signature_of(by_name[name]),
                "line": summary(by_name[name]),
            }
            for name in chosen
        ]
        document({"command": "builders", "builders": rows})
    elif len(chosen) == 1:
        name = chosen[0]
        text = inspect.getdoc(by_name[name]) or ""
        say(f"{name}{signature_of(by_name[name])}\n\n{text}".rstrip())
    else:
        width = min(100, shutil.get_terminal_size().columns)
        for name in chosen:
            say(
                _filled(
                    f"{name}{_KEPT.sub(_together, signature_of(by_name[name]))}", width, "", "    "
                )
            )
            say(_filled(summary(by_name[name]), width, "    ", "    ") + "\n")
        say("One in full: graphattn builders knn. How they are joined: graphattn show --help")


def zoo(
    about: Annotated[
        str, typer.Argument(metavar="WORD", help="Only those whose names, line or family have it.")
    ] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the named patterns of the literature, a line each; show looks at one."""
    from ..graphs import zoo as named
    from ..graphs.catalogue.pattern import table

    matches = []
    for pattern in named().values():
        words = (pattern.name, pattern.also, pattern.line, pattern.family, pattern.paper)
        if about.lower() in " ".join((*words, str(pattern.source or ""))).lower():
            matches.append(pattern)
    if not matches:
        raise OptionError(
            f"no named pattern has {about!r} in its names, line or family; graphattn zoo lists all"
        )
    if json:
        fields = ("name", "family", "line", "code", "paper", "also")
        document(
            {
                "command": "zoo",
                "patterns": [{f: getattr(pattern, f) for f in fields} for pattern in matches],
            }
        )
        return
    say(
        f"{table(matches)}\n\nLook at one: graphattn show '{matches[0].name}', or any expression "
        "of builders:"
    )
    say("graphattn show 'sliding_window(64, 9, causal=False) | global_tokens(64, (0,))'")


def gallery(
    out: Annotated[str, typer.Option(metavar="FILE", help="A page (.html).")] = "gallery.html",
    debug: Debug = False,
) -> None:
    """Draw every named pattern of the literature.

    One page that needs no network: a thumbnail of each, with the line of code that builds it.
    """
    check_picture(out, (".html",))
    from ..graphs import zoo
    from ..io.writing import save_page
    from ..viz.gallery import gallery_page

    patterns = list(zoo().values())
    with step(f"drawing {len(patterns)} patterns"):
        save_page(out, gallery_page(patterns))
    say(f"{len(patterns)} patterns: {one_line(out)}")


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
    lines = textwrap.fill(
        text, max(30, width), initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
    return lines.replace("\0", " ")


def _together(part: "re.Match[str]") -> str:
    return part[0].replace(" ", "\0")
