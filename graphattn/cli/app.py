"""The commands and their options; what they do is in the files of their names, and in :mod:`.commands`.

Nothing here imports torch: ``graphattn --help`` should not wait for it.
"""

from enum import StrEnum
from typing import Annotated, Any, Optional

import typer

from .group import Group


class Dtype(StrEnum):
    """What attention runs in."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


WHAT = """WHAT is one graph:

\b
  a name of the zoo           longformer
  an expression of builders   'sliding_window(64, 9) | global_tokens(64, [0])'
  a file                      ball.off, karate.npz, mask.npy, graph.json

\b
graphattn zoo lists the names, graphattn patterns the builders and their
arguments. An expression is written as in Python, in quotes for the shell:
  | & - @ ~                   join and turn over graphs
  .reverse() .k_hop(2)        and with_self_loops, without_self_loops,
                              with_global_tokens, subgraph, relabel
  load("scan.ply")            a file: positions for pos and queries, a mesh
                              for faces, a .npy array for ids and scores,
                              a graph where a graph belongs

\b
Files: a mesh (.off .obj .ply .stl .glb .gltf: its vertices), edges (.csv
.txt .tsv .edges .npz, .npy of integers (2, E)), a mask (.npy of bool (T, S)),
a saved graph (.json .safetensors). Points (.xyz .pts .txt .csv .npy .pcd .las
.laz, or a mesh) are a graph once knn or radius has made one. Options of a
file stand in load: header, weights, relabel, num_nodes, num_sources,
num_targets, duplicates of edges; columns, allow_nonfinite of points;
max_bytes.

\b
Examples:
  graphattn show 'cell_partition((8, 12), (4, 4), shift=(2, 2))'
  graphattn show 'knn(load("examples/files/ball.off"), k=6)' --out ball.png
  graphattn show 'mesh_vertices(load("examples/files/ball.off"), hops=2)'
  graphattn facts 'load("examples/files/karate.csv", header=True)'
"""


def _number(text: str, least: float = 1) -> typer.models.OptionInfo:
    return typer.Option(min=least, metavar="N", help=text)


app = typer.Typer(
    name="graphattn",
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention on any directed graph: look at a graph, see what would run on it, prove that the result is exact.",
)

What = Annotated[str, typer.Argument(metavar="WHAT", help="A name of the zoo, an expression of builders, or a file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from (or set GRAPHATTN_DEBUG=1).")]
Picture = Annotated[Optional[str], typer.Option(metavar="FILE", help="Draw a picture: .png, .pdf or .svg.")]
Device = Annotated[str, typer.Option(help="Where they are: cpu, cuda, cuda:1; it must be here.")]


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


@app.command(epilog=WHAT)
def show(
    what: What,
    out: Picture = None,
    save: Annotated[
        Optional[str],
        typer.Option(metavar="FILE", help="Write its edges (.npz, .csv), or the graph (.json, .safetensors)."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Look at a graph.

    Its mask in text, facts computed from its edges; a picture, or a file that holds it, if wanted.
    """
    from .commands import show as run

    run(what, out, save, json)


@app.command(epilog=WHAT)
def explain(
    what: What,
    heads: Annotated[int, _number("Heads of the query.")] = 8,
    kv_heads: Annotated[Optional[int], _number("Heads of key and value; by default as many.")] = None,
    head_dim: Annotated[int, _number("Width of a head.")] = 64,
    value_dim: Annotated[Optional[int], _number("Width of a value head; by default the same.")] = None,
    batch: Annotated[int, _number("Product of the leading dimensions.")] = 1,
    dtype: Annotated[Dtype, typer.Option(help="Of query, key and value.")] = Dtype.float32,
    device: Device = "cpu",
    score_bias: Annotated[bool, typer.Option("--score-bias", help="With a bias on every edge.")] = False,
    softcap: Annotated[bool, typer.Option("--softcap", help="With capped scores.")] = False,
    dropout: Annotated[bool, typer.Option("--dropout", help="With dropout.")] = False,
    weights: Annotated[bool, typer.Option("--return-weights", help="Returning the weights.")] = False,
    lse: Annotated[bool, typer.Option("--return-lse", help="Returning the log-sum-exp.")] = False,
    edge_features: Annotated[bool, typer.Option("--edge-features", help="With features on the edges.")] = False,
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
    run(what, sizes, flags, dtype.value, device, json)


@app.command(epilog=WHAT)
def facts(
    what: What,
    budget: Annotated[int, _number("Edges that searches may look at.")] = 1 << 26,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Ask a graph what is known about it in seconds.

    Degrees, symmetry and self-loops; components, cycles, hops until a node depends on all it ever will; how full its
    tiles are. What costs more is named, with the reason. The layers of a model stand in one WHAT with ; between them.

    \b
      graphattn facts 'sliding_window(64, 9); full(64)'
    """
    from .questions import facts as run

    run(what, budget, json)


@app.command(epilog=WHAT)
def audit(
    what: What,
    mask: Annotated[
        Optional[str], typer.Option(metavar="FILE", help="The mask: .npy of bool (T, S), True for an edge.")
    ] = None,
    budget: Annotated[int, _number("Entries that may be looked at.")] = 1 << 27,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare a mask with the graph that it should be, or a model's code with its configuration.

    Lists the wrong entries by kind, and the known mistake that makes them, if there is one: rows and columns swapped,
    a window off by one, a neighbourhood that clamps rows by the width. Exit status 0 if all entries are right, 1 if
    not.

    \b
      graphattn audit 'causal(8)' --mask mask.npy

    Without --mask, WHAT is a folder with a config.json of transformers, or that file: a small model of random weights
    is made of it, and what its layers read is compared with the windows and layer types that it names.

    \b
      graphattn audit mistral/config.json
    """
    from .questions import audit as run

    if not run(what, mask, budget, json):
        raise typer.Exit(1)


@app.command(epilog=WHAT)
def verify(
    what: What,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the random inputs and of the sample.")] = 0,
    heads: Annotated[Optional[int], _number("Heads of the query; 4 on 2 by default.")] = None,
    kv_heads: Annotated[Optional[int], _number("Heads of key and value; by default as many.")] = None,
    at_most: Annotated[int, _number("Targets in the sample of a graph too large for all.")] = 256,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure whether attention on a graph is exact.

    Output and gradients of every backend are compared with plain dense attention in float64: at every target where
    that takes at most minutes (causal up to about 2,000 nodes, sparse graphs up to ten thousands), else at a sample;
    the report says which. Exit status 0 if all that was compared is exact, 1 if something is not.
    """
    from .commands import verify as run

    if not run(what, seed, heads, kv_heads, at_most, json):
        raise typer.Exit(1)


@app.command(epilog=WHAT)
def bench(
    what: What,
    sizes: Annotated[
        Optional[str],
        typer.Option(metavar="N,N,..", help="Of a WHAT with ... for its size, each in turn: 1024,4096 or 8x8,16x16."),
    ] = None,
    heads: Annotated[int, _number("Heads.")] = 4,
    head_dim: Annotated[int, _number("Width of a head.")] = 32,
    batch: Annotated[int, _number("Product of the leading dimensions.")] = 1,
    dtype: Annotated[Dtype, typer.Option(help="Of query, key and value.")] = Dtype.float32,
    device: Device = "cpu",
    peers: Annotated[
        Optional[str], typer.Option(metavar="NAME,..", help="Backends, SDPA or PyG beside auto; all by default.")
    ] = None,
    repeats: Annotated[int, _number("Turns of each; the median is told.")] = 7,
    limit: Annotated[float, _number("Seconds for the turns of each, forward and with backward.", 0.1)] = 20,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Time attention on a graph beside torch's SDPA and PyG.

    Every backend, SDPA with the graph as its mask and PyG's TransformerConv, forward and with backward, in turns; each
    answer is checked first. On the CPU the others run on one thread, too.

    \b
      graphattn bench 'sliding_window(..., 257)' --sizes 1024,4096
    """
    from .bench import bench as run

    problem = {"heads": heads, "head_dim": head_dim, "batch": batch, "dtype": dtype.value, "device": device}
    run(what, sizes, problem, peers, repeats, limit, json)


@app.command()
def study(
    name: Annotated[Optional[str], typer.Argument(metavar="NAME", help="A suite of --list; or report.")] = None,
    folder: Annotated[Optional[str], typer.Argument(metavar="DIR", help="Of report: a study's folder.")] = None,
    out: Annotated[Optional[str], typer.Option(metavar="DIR", help="Folder of the results.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller: fewer seeds, steps, sizes or arms.")] = False,
    seeds: Annotated[Optional[int], _number("6 to judge one claim, 9 for ten; the suite's own by default.")] = None,
    arms: Annotated[Optional[str], typer.Option(metavar="NAME,..", help="Only these, with their controls.")] = None,
    processes: Annotated[Optional[int], _number("Trials at once; as many as there are cores by default.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the suites.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Settle by experiment what a connectivity buys.

    Predictions are written first, then every arm and its controls are trained, then the report: report.md, report.json,
    figure.pdf, figure.svg. Interrupted by anything, the same command goes on. It ends with an error, and the
    report is there, if shuffled labels were learned or arms did not start alike.

    \b
      graphattn study --list
      graphattn study digits --quick --out digits
      graphattn study report digits
    """
    from .study import study as run

    run(name, folder, out, quick, seeds, arms, processes, list_, json)


@app.command()
def patterns(
    about: Annotated[
        str, typer.Argument(metavar="WORD", help="One builder in full, or those whose name or line has it.")
    ] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the builders of expressions, each with its arguments."""
    from .patterns import patterns as run

    run(about, json)


@app.command()
def zoo(
    about: Annotated[str, typer.Argument(metavar="WORD", help="Only those whose name, line or family has it.")] = "",
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
    epochs: Annotated[Optional[int], _number("At most so many; by default by the number of points.")] = None,
    seed: Annotated[int, _number("Of the split and of all that is drawn.", 0)] = 0,
    sample: Annotated[
        Optional[int], _number("Points drawn of each shape that has more; 0 takes all; 512 to classify.", 0)
    ] = None,
    elements: Annotated[
        Optional[str], typer.Option(help="Of meshes: vertices, faces or edges; by default what has labels.")
    ] = None,
    points: Annotated[Optional[int], _number("Points of a batch; by default those of up to 16 shapes.")] = None,
    val: Annotated[
        Optional[float],
        typer.Option(help="Share of shapes whose loss says which epoch is kept.", show_default="0.1"),
    ] = None,
    test: Annotated[
        Optional[float], typer.Option(help="Share of shapes that are held out.", show_default="0.2")
    ] = None,
    lr: Annotated[Optional[float], typer.Option(help="Largest rate of AdamW.")] = None,
    patience: Annotated[Optional[int], _number("Epochs without a better one before the end; 0 waits.", 0)] = None,
    workers: Annotated[Optional[int], _number("Processes that load changed shapes.", 0)] = None,
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


@app.command()
def doctor(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure this machine for the choice of backends, and keep the result.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="What --calibrate measures: cpu or cuda.")] = "cpu",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check this installation, or measure this machine.

    Versions, optional extras, devices, and every backend against plain dense attention. Exit status 0 if all is well,
    1 if not. With --calibrate, some seconds of measurements instead, which the choice of backends uses from then on.
    """
    from ..errors import OptionError
    from .calibrate import calibrate as measure
    from .doctor import doctor as run

    if not calibrate and device != "cpu":
        raise OptionError("device is what --calibrate measures; without it, doctor looks at every device")
    if calibrate:
        measure(json, device)
    else:
        run(json)
