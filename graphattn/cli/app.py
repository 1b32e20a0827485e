"""All commands, in the order of ``graphattn --help``; what they do is in the files of this room.

Nothing here imports torch at the top: ``graphattn --help`` should not wait for it.
"""

from typing import Annotated, Any, Optional

import typer

from .bench import bench
from .commands import explain, show, verify
from .doctor import doctor
from .gallery import gallery
from .group import Group
from .options import WHAT, Debug, Json, number
from .patterns import patterns
from .questions import audit, facts
from .study import study
from .zoo import zoo

app = typer.Typer(
    name="graphattn",
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention on any directed graph: look at a graph, see what would run on it, prove that the result is exact.",
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False
) -> None:
    if version:
        from ..versions import VERSION
        from .output import say

        say(f"graphattn {VERSION}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


for _command in (show, explain, facts, audit, verify, bench):
    app.command(epilog=WHAT)(_command)


app.command()(study)
app.command()(patterns)
app.command()(zoo)
app.command()(gallery)


@app.command()
def train(
    folder: Annotated[
        Optional[str], typer.Argument(metavar="FOLDER", help="Of shapes; with --resume where they are now.")
    ] = None,
    out: Annotated[Optional[str], typer.Option(metavar="RUN", help="A new folder for everything that is made.")] = None,
    resume: Annotated[
        Optional[str], typer.Option(metavar="RUN", help="Go on with a run, to the same bits on one thread.")
    ] = None,
    task: Annotated[
        Optional[str], typer.Option(help="classify, segment or regress; by default what the labels are for.")
    ] = None,
    model: Annotated[
        Optional[str],
        typer.Option(
            help="unet, point-transformer (also -v2, -v3), litept, stratified-transformer, swin3d, pct, mesh, "
            "encode-process-decode or perceptron; by default unet, which reads nearest points; "
            "mesh, which reads along edges, for numbers at vertices."
        ),
    ] = None,
    graph: Annotated[
        Optional[str], typer.Option(metavar="RECIPE", help="'knn(..., 16)'; one for each level with ; between.")
    ] = None,
    features: Annotated[
        Optional[str],
        typer.Option(
            metavar="WORD,..",
            help="distance,outward,spread,position,normals,constant or properties of files.",
        ),
    ] = None,
    augment: Annotated[
        Optional[str], typer.Option(metavar="WORD,..", help="rotation,mirror,stretch,drop,jitter in training.")
    ] = None,
    model_options: Annotated[
        Optional[str], typer.Option(metavar="JSON", help="Arguments of the model: '{\"widths\": [64, 64]}'.")
    ] = None,
    epochs: Annotated[Optional[int], number("At most so many; by default by the number of points.")] = None,
    seed: Annotated[int, number("Of the split and of all that is drawn.", 0)] = 0,
    sample: Annotated[
        Optional[int], number("Points drawn of each shape that has more; 0 takes all; 512 to classify.", 0)
    ] = None,
    elements: Annotated[
        Optional[str], typer.Option(help="Of meshes: vertices, faces or edges; by default what has labels.")
    ] = None,
    points: Annotated[Optional[int], number("Points of a batch; by default those of up to 16 shapes.")] = None,
    val: Annotated[
        Optional[float],
        typer.Option(help="Share of shapes whose loss says which epoch is kept.", show_default="0.1"),
    ] = None,
    test: Annotated[
        Optional[float], typer.Option(help="Share of shapes that are held out.", show_default="0.2")
    ] = None,
    lr: Annotated[Optional[float], typer.Option(help="Largest rate of AdamW.")] = None,
    patience: Annotated[Optional[int], number("Epochs without a better one before the end; 0 waits.", 0)] = None,
    workers: Annotated[Optional[int], number("Processes that load changed shapes.", 0)] = None,
    control: Annotated[
        Optional[str],
        typer.Option(
            metavar="WORD,..", help="Trained beside it: perceptron, random (graphs).", show_default="perceptron"
        ),
    ] = None,
    no_control: Annotated[bool, typer.Option("--no-control", help="Train nothing beside it.")] = False,
    device: Annotated[Optional[str], typer.Option(help="Where the model is: cpu, cuda.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a model on a folder of shapes.

    FOLDER has a folder for each class, or labels.csv, or files with a property label (y in a .npz) of each point. A
    part is held out by --seed; its scores are printed, beside those of the controls and the differences from them over
    shapes. RUN gets the model (safetensors and JSON), a log and report.html. After any end --resume goes on.

    \b
      graphattn train shapes --out run
      graphattn train --resume run
    """
    from .train import train as run

    fields: dict[str, Any] = {"task": task, "model": model, "graph": graph, "features": features, "augment": augment}
    fields |= {"model_options": model_options, "epochs": epochs, "seed": seed or None, "sample": sample}
    fields["elements"] = elements
    numbers = {"points": points, "val": val, "test": test, "lr": lr, "patience": patience, "workers": workers}
    run(folder, out, resume, {**fields, **numbers, "control": "" if no_control else control, "device": device}, json)


RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="The folder that train wrote.")]


@app.command()
def evaluate(
    run: RunFolder,
    folder: Annotated[
        Optional[str], typer.Argument(metavar="FOLDER", help="Of shapes with labels; the run's own by default.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a trained model on a folder of shapes.

    On the held-out part, if it is the folder of the run; else on all of it.
    """
    from .train import evaluate as measure

    measure(run, folder, json)


@app.command()
def predict(
    run: RunFolder,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Point clouds or meshes.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="A folder for what is written.")],
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict classes or numbers of files.

    DIR gets a coloured .ply of each with the property prediction, and predictions.csv with the probability of each
    class; where points have classes, a .csv of them beside each .ply.
    """
    from .train import predict as made

    made(run, files, out, json)


app.command()(doctor)
