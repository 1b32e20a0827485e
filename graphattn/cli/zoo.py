"""``graphattn zoo``: the named patterns of the literature."""

from typing import Annotated

import typer

from ..errors import OptionError
from .options import Debug, Json
from .output import document, say


def zoo(
    about: Annotated[str, typer.Argument(metavar="WORD", help="Only those whose name, line or family has it.")] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the named patterns of the literature, a line each; show looks at one."""
    from ..graphs import zoo as named
    from ..graphs.catalogue.pattern import table

    word = about.lower()
    matches = [
        pattern
        for pattern in named().values()
        if word in f"{pattern.name} {pattern.line} {pattern.family} {pattern.paper}".lower()
    ]
    if not matches:
        raise OptionError(f"no named pattern has {about!r} in its name, line or family; graphattn zoo lists all")
    if json:
        fields = ("name", "family", "line", "code", "paper")
        document({"command": "zoo", "patterns": [{f: getattr(pattern, f) for f in fields} for pattern in matches]})
        return
    say(f"{table(matches)}\n\nLook at one: graphattn show '{matches[0].name}', or any expression of builders:")
    say("graphattn show 'sliding_window(64, 9) | global_tokens(64, (0,))'")
