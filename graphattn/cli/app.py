"""All commands, in the order of ``graphattn --help``; what they do is in the files of this room.

Nothing here imports torch at the top: ``graphattn --help`` should not load it.
"""

from typing import Annotated

import typer

from .bench import bench
from .builders import builders, gallery, zoo
from .commands import explain, show, verify
from .doctor import doctor
from .group import Command, CommandGroup
from .options import WHAT
from .questions import audit, facts
from .scale import scale
from .study import study
from .train import compare, evaluate, predict, rollout, train

app = typer.Typer(
    name="graphattn",
    cls=CommandGroup,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Attention on any directed graph: look at a graph, see what would run on it, check that "
        "the result is exact."
    ),
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from ..versions import VERSION
        from .output import say

        say(f"graphattn {VERSION}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


#: Commands in the order of ``--help``, by what they are for.
_GROUPS = {
    "Look at a graph": (show, facts, builders, zoo, gallery),
    "Check it, and see what it costs": (audit, verify, explain, bench, scale, doctor),
    "Learn from folders of shapes": (train, evaluate, predict, rollout, compare),
    "Settle what a connectivity buys": (study,),
}
_OF_WHAT = (show, explain, facts, audit, verify, bench, scale)

for _heading, _commands in _GROUPS.items():
    for _command in _commands:
        _epilog = None
        if _command in _OF_WHAT:
            _epilog = WHAT
        app.command(cls=Command, epilog=_epilog, rich_help_panel=_heading)(_command)
