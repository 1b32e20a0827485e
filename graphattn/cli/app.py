"""The commands and their options; what they do is in :mod:`.commands` and :mod:`.doctor`."""

from enum import StrEnum
from typing import Annotated, Any, Optional

import typer

from .group import Group, PatternCommand


class Kind(StrEnum):
    """What a file may hold."""

    mesh = "mesh"
    points = "points"
    edges = "edges"
    mask = "mask"


class Dtype(StrEnum):
    """What attention runs in."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


app = typer.Typer(
    name="graphattn",
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention on any directed graph: look at a graph, see what would run on it, prove that the result is exact.",
)

_PATTERN: dict[str, Any] = {
    "cls": PatternCommand,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}
What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="A pattern or a file, with its own options after it; a name of graphattn zoo; an expression of patterns.",
    ),
]
As = Annotated[Optional[Kind], typer.Option("--as", help="What the file holds, if its name does not say.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from (or set GRAPHATTN_DEBUG=1).")]


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False
) -> None:
    if version:
        from .. import __version__
        from .output import say

        say(f"graphattn {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


@app.command(**_PATTERN)
def show(
    ctx: typer.Context,
    what: What,
    out: Annotated[Optional[str], typer.Option(metavar="FILE", help="Draw a picture: .png, .pdf or .svg.")] = None,
    save: Annotated[Optional[str], typer.Option(metavar="FILE", help="Write the edges: .npz or .csv.")] = None,
    kind: As = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Look at a graph.

    Its mask in text, facts computed from its edges; a picture, or its edges in a file, if wanted.
    """
    from .commands import show as run

    run(what, list(ctx.args), kind and kind.value, out, save, json)


@app.command(**_PATTERN)
def explain(
    ctx: typer.Context,
    what: What,
    heads: Annotated[int, typer.Option(min=1, help="Heads of the query.")] = 8,
    kv_heads: Annotated[Optional[int], typer.Option(min=1, help="Heads of key and value; by default as many.")] = None,
    head_dim: Annotated[int, typer.Option(min=1, help="Width of a head.")] = 64,
    value_dim: Annotated[Optional[int], typer.Option(min=1, help="Width of a value head; by default the same.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Product of the leading dimensions.")] = 1,
    dtype: Annotated[Dtype, typer.Option(help="Of query, key and value.")] = Dtype.float32,
    device: Annotated[str, typer.Option(help="Where they are: cpu, cuda, cuda:1; it must be here.")] = "cpu",
    score_bias: Annotated[bool, typer.Option("--score-bias", help="With a bias on every edge.")] = False,
    softcap: Annotated[bool, typer.Option("--softcap", help="With capped scores.")] = False,
    dropout: Annotated[bool, typer.Option("--dropout", help="With dropout.")] = False,
    weights: Annotated[bool, typer.Option("--return-weights", help="Returning the weights.")] = False,
    lse: Annotated[bool, typer.Option("--return-lse", help="Returning the log-sum-exp.")] = False,
    edge_features: Annotated[bool, typer.Option("--edge-features", help="With features on the edges.")] = False,
    kind: As = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """See what would run on a graph, and why.

    Every backend's estimated cost, or its reasons against.
    """
    from .commands import explain as run

    flags = {
        "score_bias": score_bias,
        "softcap": softcap,
        "dropout_p": dropout,
        "return_weights": weights,
        "return_lse": lse,
        "edge_attr": edge_features,
    }
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "value_dim": value_dim, "batch": batch}
    run(what, list(ctx.args), kind and kind.value, sizes, flags, dtype.value, device, json)


@app.command(**_PATTERN)
def facts(
    ctx: typer.Context,
    what: What,
    budget: Annotated[int, typer.Option(min=1, help="Edges that searches may look at.")] = 1 << 26,
    kind: As = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Ask a graph what is known about it in seconds.

    Degrees, symmetry and self-loops; components, cycles, hops until a node depends on all it ever will; how full its
    tiles are. What costs more is named, with the reason. The layers of a model stand in quotes with ; between them:
    graphattn facts 'sliding_window(64, 9); Longformer'.
    """
    from .questions import facts as run

    run(what, list(ctx.args), kind and kind.value, budget, json)


@app.command(**_PATTERN)
def audit(
    ctx: typer.Context,
    what: What,
    mask: Annotated[str, typer.Option(metavar="FILE", help="The mask: .npy of bool (T, S), True for an edge.")],
    kind: As = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare a mask with the graph that it should be.

    Lists the wrong entries by kind, and the known mistake that makes them, if there is one: rows and columns swapped,
    a window off by one, a neighbourhood that clamps rows by the width. Exit status 0 if all entries are right, 1 if
    not.
    """
    from .questions import audit as run

    if not run(what, list(ctx.args), kind and kind.value, mask, json):
        raise typer.Exit(1)


@app.command(**_PATTERN)
def verify(
    ctx: typer.Context,
    what: What,
    seed: Annotated[int, typer.Option(help="Of the random inputs and of the sample.")] = 0,
    heads: Annotated[Optional[int], typer.Option(min=1, help="Heads of the query; 4 on 2 by default.")] = None,
    kv_heads: Annotated[Optional[int], typer.Option(min=1, help="Heads of key and value; by default as many.")] = None,
    at_most: Annotated[int, typer.Option(min=1, help="Targets in the sample of a graph too large for all.")] = 256,
    kind: As = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure whether attention on a graph is exact.

    Output and gradients of every backend are compared with plain dense attention in float64: at every target where
    that takes seconds (causal up to about 2,000 nodes, sparse graphs up to ten thousands), beyond that at a sample, and
    the report says which. Exit status 0 if all that was compared is exact, 1 if something is not.
    """
    from .commands import verify as run

    if not run(what, list(ctx.args), kind and kind.value, seed, heads, kv_heads, at_most, json):
        raise typer.Exit(1)


@app.command()
def patterns(debug: Debug = False) -> None:
    """List what can be looked at: every pattern and kind of file, with its options."""
    import shutil

    from .help import catalogue
    from .output import say

    say(catalogue(min(80, shutil.get_terminal_size().columns)).rstrip("\n"))


@app.command()
def zoo(
    about: Annotated[str, typer.Argument(metavar="[WORD]", help="Only those whose name, line or family has it.")] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the named patterns of the literature, a line each; show looks at one."""
    from .zoo import zoo as run

    run(about, json)


@app.command()
def gallery(
    out: Annotated[
        str, typer.Option(metavar="FILE", help="A page (.html), or one picture (.png, .pdf or .svg).")
    ] = "gallery.html",
    debug: Debug = False,
) -> None:
    """Draw every named pattern of the literature.

    One page that needs no network: a thumbnail of each, with the line of code that builds it.
    """
    from .gallery import gallery as run

    run(out)


@app.command()
def doctor(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure this machine for the choice of backends, and keep the result.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check this installation, or measure this machine.

    Versions, optional extras, devices, and every backend against plain dense attention. Exit status 0 if all is well,
    1 if not. With --calibrate, some seconds of measurements instead, which the choice of backends uses from then on.
    """
    from .calibrate import calibrate as measure
    from .doctor import doctor as run

    (measure if calibrate else run)(json)
