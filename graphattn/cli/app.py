"""All commands, in the order of ``graphattn --help``; what they do is in the files of this room.

Nothing here imports torch at the top: ``graphattn --help`` should not load it.
"""

from typing import Annotated

import typer

from .bench import bench
from .commands import explain, show, verify
from .doctor import doctor
from .group import Group
from .options import WHAT
from .patterns import gallery, patterns, zoo
from .questions import audit, facts
from .scale import scale
from .study import study
from .train import compare, evaluate, predict, train

app = typer.Typer(
    name="graphattn",
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Attention on any directed graph: look at a graph, see what would run on it, prove that "
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


for _command in (show, explain, facts, audit, verify, bench, scale):
    app.command(epilog=WHAT)(_command)


for _other in (study, patterns, zoo, gallery, train, evaluate, predict, compare, doctor):
    app.command()(_other)
