"""``graphattn train``, ``evaluate``, ``predict`` and ``rollout``: options into arguments, progress, words."""

import json as words
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Optional

import typer

from ..errors import Interrupted, OptionError
from .options import Debug, Json, number, with_options
from .output import (
    Document,
    check_file,
    document,
    encodable,
    one_line,
    rendered,
    say,
    table,
    warnings_in_lines,
)

RUN = "The run"  # group of options


def training_options() -> type:
    """The dataclass of the options of a training."""
    # torch reads it at import, which is here: idle threads sleep, not spin
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from ..training import Options

    return Options


@with_options(training_options)
def train(
    folder: Annotated[
        Optional[str],
        typer.Argument(metavar="FOLDER", help="Of shapes; with --resume where they are now."),
    ] = None,
    out: Annotated[
        Optional[str],
        typer.Option(
            metavar="RUN",
            help="A folder for everything that is made; a run in it goes on.",
            rich_help_panel=RUN,
        ),
    ] = None,
    resume: Annotated[
        Optional[str],
        typer.Option(
            metavar="RUN",
            help="Go on with a run, to the same bits on one thread; --epochs, --workers and "
            "--device may be others.",
            rich_help_panel=RUN,
        ),
    ] = None,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Train no further: the best epoch so far, and its page.",
            rich_help_panel=RUN,
        ),
    ] = False,
    no_control: Annotated[
        bool,
        typer.Option("--no-control", help="Train nothing beside the model.", rich_help_panel=RUN),
    ] = False,
    json: Json = False,
    debug: Debug = False,
    **options: Any,
) -> None:
    """Train a model on a folder of shapes, or of simulations.

    Shapes are files .ply .obj .off .stl .glb .gltf (meshes or points), .las .laz .pcd .pts .xyz
    .asc .txt .csv .npy .npz (points), .swc .geojson .vtk .vtp (curves and trees, as are
    lines of .obj and .ply and points with a column order), .bvh (motions), .extxyz .cif (atoms).
    FOLDER has a folder for each class, or labels.csv, or files with a property label (y in a .npz)
    of each point, which win over folders unless --task classify is given. A part is held out by
    --seed; its scores are printed, then those of the controls and the differences from them over
    shapes. RUN gets the model (safetensors and JSON), a log and report.html. After any end the same
    command goes on, or --resume; epochs, patience, workers, processes and device may be others, and
    options that are not given are the run's. --names takes words, or a file with a value and a name
    a line. SIGINT, SIGTERM and SIGUSR1 end it after the step, with a state, and a status of 130,
    143 or 138. A job that a script starts with & ignores SIGINT: send it SIGTERM.

    Under torchrun each process computes on its shapes of every batch, and one writes. With --shard
    they share the points of every batch instead: for scans, uncut, that are too large for one
    process.

    With --task simulate FOLDER has trajectories, a file .npz, .xdmf, .pvd, .nc or .zarr each, and
    rollouts of those held out are beside "nothing changes" and a fitted linear stencil.

    \b
      graphattn train shapes --out run
      graphattn train --resume run
      graphattn train flows --out run --task simulate --fields u,v --steps 50
      torchrun --nproc_per_node 4 -m graphattn train shapes --out run
    """
    from .. import training
    from ..shapes.layouts import folder_of

    if no_control:
        options["control"] = ""
    if resume is not None:
        others = {*options} - {"device", "epochs", "workers"}
        if out is not None:
            others.add("out")
        if others:
            option = min(others).replace("_", "-").replace("start", "from")
            raise OptionError(f"--resume keeps the options of the run; --{option} is for a new one")
        run = resume
        with warnings_in_lines(), _callback(json) as tell:
            result = training.resume(run, folder, finish=finish, tell=tell, **options)
    else:
        if folder is not None:
            folder_of(folder)
        if folder is None or out is None:
            raise OptionError("train needs a FOLDER of shapes and --out RUN, or --resume RUN")
        run = out
        with warnings_in_lines(), _callback(json) as tell:
            result = training.train(folder, run, finish=finish, tell=tell, **_parsed(options))
    is_first = os.environ.get("RANK", "0") == "0"
    if json and is_first:
        document({"command": "train", "run": run, **result.to_dict()})


def _parsed(texts: dict[str, Any]) -> dict[str, Any]:
    """Options whose words and numbers stand in a text, as values."""
    options = dict(texts)
    for name in ("features", "augment", "control", "fields", "forcing"):
        if name in options:
            options[name] = tuple(word for word in options[name].split(",") if word)
    if "ignore" in options:
        values = [value for value in options["ignore"].split(",") if value.strip()]
        if not all(value.strip().isdecimal() for value in values):
            raise OptionError(
                f"--ignore must be comma-separated whole numbers from 0, got {texts['ignore']!r}"
            )
        options["ignore"] = tuple(map(int, values))
    if "names" in options:
        options["names"] = _names(options["names"], options.get("ignore", ()))
    if "model_options" in options:
        options["model_options"] = _object(options["model_options"])
    return options


Votes = Annotated[int, number("Grids over which answers of thinned scans are averaged.")]
Part = Annotated[
    Optional[str],
    typer.Option(
        metavar="WORD",
        help="Of a run with --model best what answers, in place of the chosen one: network, forest "
        "or mean.",
    ),
]
RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="The folder that train wrote.")]


def evaluate(
    run: RunFolder,
    folder: Annotated[
        Optional[str],
        typer.Argument(metavar="FOLDER", help="Of shapes with labels; the run's own by default."),
    ] = None,
    votes: Votes = 1,
    model: Part = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a trained model on a folder of shapes.

    On the held-out part, if it is the folder of the run; else on all of it.
    """
    from .. import training

    with warnings_in_lines():
        result = training.evaluate(run, folder, votes=votes, model=model)
    if json:
        document({"command": "evaluate", "run": run, **result.to_dict()})
        return
    say(str(result))


def predict(
    run: RunFolder,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Point clouds or meshes.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="A folder for what is written.")],
    votes: Votes = 1,
    model: Part = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict classes or numbers of files.

    FILE is .ply .obj .off .stl .glb .gltf (a mesh or points), .las .laz .pcd .pts .xyz .asc .txt
    .csv .npy .npz (points), .swc .geojson .vtk .vtp .bvh (curves), .extxyz or .cif (atoms), as of
    graphattn train.

    DIR gets each file with a field more, prediction, as .ply (coloured, if it had no colours) or as
    .las: the number of a class, as the labels of training have it (of a folder for each class: its
    place among their names, from 0), or the predicted number. predictions.csv has the probability
    of each class, and in the column unlike the features that are outside of what training saw, with
    both ranges; it is empty where none are, and else the units may be others. Where points have
    classes, there is a .csv of them beside each .ply.
    """
    from .. import training

    with warnings_in_lines():
        lines = training.predict(run, files, out, votes=votes, model=model)
    if json:
        document({"command": "predict", "run": run, "files": lines})
        return
    for line in lines:
        say(
            f"{one_line(line['file'])}: {_prediction(line)} -> {one_line(line.get('ply') or line['las'])}"
        )


def _prediction(line: Document) -> str:
    """The prediction for a file in words, or the number of its predictions."""
    for token in ("points", "faces", "edges"):
        if token in line:
            return f"{line[token]:,} {token}"
    name = one_line(str(line["prediction"]))
    if "probability" in line:
        return f"{name} ({line['probability']:.0%})"
    return name


def rollout(
    run: RunFolder,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A trajectory.")],
    out: Annotated[
        str, typer.Option(metavar="FILE", help="A file .xdmf, .pvd, .npz, .nc or .zarr.")
    ],
    steps: Annotated[
        Optional[int],
        typer.Option(min=1, metavar="N", help="Steps; by default those that FILE has."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Simulate on from the first steps of a trajectory, with a model of train --task simulate.

    FILE is .npz, .xdmf, .pvd, .vtu, .nc or .zarr. Fixed nodes and forcing are put back at every
    step. --out is for ParaView (.xdmf, or .pvd where nodes move), .npz, or, of FILE .nc or .zarr,
    with its coordinates .nc or .zarr. A file in other units than those of training, or with a jump,
    is warned of. A rollout ends where a state is NaN or 100 standard deviations of training from
    its mean.

    \b
      graphattn rollout run flow.npz --steps 200 --out series.xdmf
    """
    from .. import training
    from ..shapes import load_trajectory, save_trajectory
    from ..shapes.series import format_of
    from ..training.reading.simulations import MOST_BYTES

    with warnings_in_lines():
        trajectory = load_trajectory(file, max_bytes=MOST_BYTES)
        if format_of(trajectory, out) != ".zarr":  # which is a folder
            check_file("--out", out)
        series = training.rollout(run, trajectory, steps)
        save_trajectory(series, out)
    if json:
        document(
            {"command": "rollout", "run": run, "file": file, "out": out, "states": series.num_steps}
        )
        return
    say(f"{one_line(file)}: {series!r} -> {one_line(out)}")


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Folders that train wrote.")],
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Scores of several runs side by side.

    With the difference from the first run over the shapes that both held out, and its 95 %
    interval.
    """
    from .. import training
    from ..statistics.paired import Difference

    rows = training.compare(runs)
    if json:
        document({"command": "compare", "runs": rows})
        return
    lines = [("run", "model", "epochs", rows[0]["metric"], "shapes", "less the first")]
    for row in rows:
        over = ""
        if "difference" in row:
            over = str(Difference(row["difference"], row["low"], row["high"], row["shapes"]))
        cells = (
            one_line(row["run"]),
            row["model"],
            row["unfinished"] or str(row["epochs"]),
            f"{row['score']:.3f}",
            f"{row['shapes']:,}",
        )
        lines.append((*cells, over))
    rendered(table(lines))


def _names(text: str, ignore: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the classes: words with commas between them, or lines of a file, ``2 ground``.

    Those of ignored values are left out.
    """
    if not os.path.isfile(text):
        # names.txt, folder/names
        if os.path.dirname(text) or re.fullmatch(r"[^,]+\.\w{1,4}", text.strip()):
            raise OptionError(
                f"--names must be comma-separated names, or a file; no file {text!r} is there"
            )
        words = (word.strip() for word in text.split(","))
        return tuple(word for word in words if word)
    with open(text, encoding="utf-8-sig") as file:
        lines = [line.replace(",", " ", 1).split(maxsplit=1) for line in file if line.strip()]
    if not all(len(line) == 2 and line[0].isdecimal() for line in lines):
        return tuple(" ".join(line) for line in lines)
    named = {int(value): name.strip() for value, name in lines}
    if max(named, default=0) >= 1 << 16:
        raise OptionError(f"--names: {text} must have values below {1 << 16:,}, got {max(named):,}")
    return tuple(
        named.get(value, str(value))
        for value in range(max(named, default=-1) + 1)
        if value not in ignore
    )


def _object(text: str) -> dict[str, Any]:
    try:
        value = words.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OptionError(
            f"--model-options must be a JSON object, such as '{{\"widths\": [64, 64]}}', got "
            f"{text!r}"
        )
    return value


@contextmanager
def _callback(json: bool) -> Iterator[Callable[[Any], None]]:
    """A callback that prints the messages of a run, with a bar on a terminal."""
    from ..io.progress import Pace, bars

    lines = (lambda text: None) if json else say
    pace = Pace()
    with bars() as update:

        def tell(progress: Any) -> None:
            if progress.phase in ("begin", "end"):
                lines(progress.words)
            elif update is not None:
                update(progress.phase, progress.done, encodable(progress.words, "utf-8"))
            else:
                left = pace.left(progress.phase, progress.done)
                if progress.epoch is not None and progress.phase == "training":
                    lines(f"{progress.words}, {left}")

        try:
            yield tell
        except KeyboardInterrupt as error:  # with the command that goes on
            raise Interrupted(signal.SIGINT, str(error) or "interrupted") from None
