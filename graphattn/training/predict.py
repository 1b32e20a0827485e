"""Predictions of a trained model for files: coloured copies of them, and a table."""

import os
import warnings
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..arguments import several
from ..errors import OptionError
from ..io.reading import PathLike
from ..io.tables import comma_separated
from ..io.writing import replace_file, save_page
from ..shapes import Shape, load, save
from ..shapes.depths import as_of
from ..shapes.files.las import add_fields
from .evaluate import votes_of
from .pages.colours import of_classes, of_numbers
from .reading.data import OneShape
from .reading.elements import coloured_tokens
from .reading.inputs import rows_of
from .reading.ranges import Ranges, load_ranges, unlike, warn_of
from .reading.scenes import prepared
from .run import Run, make_folder
from .tasks import Task

_ROWS = 1 << 16  # that are text at once


def predict(
    run: PathLike,
    files: Iterable[PathLike],
    out: PathLike,
    *,
    votes: int = 1,
    model: str | None = None,
) -> list[dict[str, Any]]:
    """Write each file with a property more, ``prediction``, and ``predictions.csv``.

    A .las or .laz stays one, with every dimension, and ``probability`` besides. Other files become
    .ply with every property of points and faces; those without colours get those of the prediction.
    A class is the value that its label has in the files of training. Where shapes have answers, the
    table has a line for each file: its class and the probability of each class, or its number.
    Where points have them, a table ``NAME.csv`` beside each .ply has a line for each point. Files
    of the same name keep the folders in which they differ.

    Args:
        run: The folder of the run.
        files: Of shapes, as :func:`graphattn.load` reads them.
        out: The folder that is written to.
        votes: Of scans that are thinned, the number of grids over which answers are averaged.
        model: Of a run with ``model="best"``, what answers in the place of the chosen one:
            "network", "forest" or "mean".

    Returns:
        For each file its name, the written file, its differences from those of training (with a
        warning: it may be in other units), and the prediction with its probability.

    Raises:
        LoaderError: With the file that cannot be read or does not fit the model; those before it
            are written.
    """
    trained_run = Run.load(run).here()
    if trained_run.inputs.simulation is not None:
        raise OptionError(f"run must not simulate, got {run}; take graphattn rollout")
    paths = [Path(file) for file in several(files, "files", "must be a list of paths")]
    names = _names(paths)
    folder = Path(out)
    for path in paths:
        if path.is_dir():
            raise OptionError(
                f"files must be point clouds or meshes, got the folder {path}; name its files, "
                f"such as {path / '*.ply'}, or graphattn evaluate where they have labels"
            )
        if folder.resolve() in (path.parent.resolve(), path.resolve().parent):
            raise OptionError(
                f"out must be another folder than that of {path}, where files would be replaced"
            )
        if path.stem == "predictions" and trained_run.task.readout == "node":
            raise OptionError(
                f"files must not be called predictions, as the table of all is, got {path}; "
                "rename it"
            )
    trained = trained_run.trained_model(model).to(trained_run.schedule.device)
    unfinished = trained_run.note_of_unfinished()
    if unfinished:
        warnings.warn(f"{run} is {unfinished}", stacklevel=2)
    make_folder(folder)
    lines: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    ranges = load_ranges(trained_run.path)
    for path, name in zip(paths, names, strict=True):
        shape = load(path)
        answers, difference = _answers(trained_run, trained, shape, str(path), ranges, votes)
        warn_of({str(path): difference})
        las = path.suffix.lower() in (".las", ".laz")
        kind = "ply"
        ending = ".ply"
        if las:
            kind = "las"
            ending = path.suffix
        target = folder / f"{name}{ending}"
        target.parent.mkdir(parents=True, exist_ok=True)
        if las:
            add_fields(path, target, _fields(trained_run, answers, len(shape.pos)))
        else:
            save(coloured(shape, trained_run, answers), target, lossy=True)
        if trained_run.task.readout == "shape":
            answer = answers[0]
            if not trained_run.task.classes:
                cells: list[Any] = [float(answer)]
            else:
                shares = [round(float(share), 6) for share in answer]
                best = int(answer.argmax())
                cells = [trained_run.task.classes[best], shares[best], *shares]
            result = dict(zip(_columns(trained_run.task), cells, strict=True))
        else:
            if not las:
                replace_file(
                    folder / f"{name}.csv", partial(_write_rows, trained_run.task, answers)
                )
            result = {trained_run.inputs.elements or "points": len(answers)}
        lines.append({"file": str(path), kind: str(target), "unlike": difference, **result})
        rows.append([str(path), str(target), difference, *result.values()])
        columns = ["file", "written", "unlike", *result]
        save_page(folder / "predictions.csv", _table(columns, rows))
    return lines


def _names(paths: list[Path]) -> list[str]:
    """Name of the output of each file: its own, with its folders where two files have the same."""
    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        top = os.path.commonpath([path.resolve().parent for path in paths])
        names = [str(path.resolve().parent.relative_to(top) / path.stem) for path in paths]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise OptionError(
            f"files must have different names without their endings, got two of {twice[0]!r}"
        )
    return names


@torch.no_grad()
def _answers(
    run: Run, model: torch.nn.Module, shape: Any, name: str, ranges: Ranges, votes: int
) -> tuple[Tensor, str]:
    """Answers for a shape, (1, ...) or (N, ...), and its differences from those of training."""
    unlabelled = Shape(
        {key: _float(value) for key, value in shape.items() if key != "y"}, depths=shape.depths
    )
    for words in as_of(unlabelled, run.depths):
        warnings.warn(f"{name}: {words}", stacklevel=3)
    one = OneShape(unlabelled, name)
    data = prepared(run.inputs, one, [0], vote=0)
    difference = unlike(ranges, data, int(data.sizes.argmax()))
    return votes_of(model, run, one, [0], votes, first=data)[0], difference


def _float(value: Tensor) -> Tensor:
    if value.dtype == torch.float16:
        return value.float()
    return value


def _values(run: Run, answers: Tensor) -> Tensor:
    """Predictions as labels of the files have them: values of classes, or numbers."""
    prediction = run.task.predictions(answers)
    if run.task.classes:
        return torch.tensor(run.values)[prediction].int()
    return prediction.float()


def _fields(run: Run, answers: Tensor, size: int) -> dict[str, np.ndarray]:
    """Prediction for each point, and its probability."""
    value = _values(run, answers).expand(size).numpy()
    if not run.task.classes:
        return {"prediction": value}
    return {
        "prediction": value.astype(np.min_scalar_type(max(run.values))),
        "probability": answers.amax(-1).float().expand(size).numpy(),
    }


def coloured(shape: Any, run: Run, answers: Tensor) -> Shape:
    """The shape with ``prediction`` of each point, coloured by it if it had no colours."""
    task = run.task
    value = _values(run, answers)
    prediction = task.predictions(answers)
    if task.classes:
        colour = of_classes(torch.arange(len(task.classes)))[prediction]
    else:
        colour = of_numbers(prediction, task.mean, task.deviation)
    colour = (colour * 255).round().to(torch.uint8).float() / 255
    if run.inputs.elements and task.readout == "node":
        return coloured_tokens(shape, run.inputs.elements, colour, value.contiguous())
    if task.readout == "shape":
        value = value.expand(len(shape.pos))
        colour = colour.expand(len(shape.pos), 3)
    rows = rows_of(shape, len(shape.pos))
    rows |= {
        name: x
        for name, x in shape.items()
        if name in ("face", "edge_index") or name.startswith("face_")
    }
    # files of points have three coordinates
    pos = nn.functional.pad(shape.pos, (0, 3 - shape.pos.shape[1]))
    return Shape({"color": colour} | rows | {"pos": pos, "prediction": value.contiguous()})


def _columns(task: Task) -> list[str]:
    """Names of the columns of answers; no class can be called as one of the table's own."""
    if not task.classes:
        return ["prediction"]
    return ["prediction", "probability", *(f"probability of {name}" for name in task.classes)]


def _write_rows(task: Task, answers: Tensor, file: Any) -> None:
    """A line for each of many answers, in pieces: as text they are ten times as large."""
    file.write(_table(_columns(task), []).encode())
    names = [_table([name], []).rstrip("\n") for name in task.classes]
    if names:
        line = "%s" + ",%.6f" * (1 + len(names)) + "\n"
    else:
        line = "%r\n"
    for part in answers.split(_ROWS):
        columns = [part.tolist()]
        if names:
            best, number = part.max(1)
            columns = [
                [names[class_id] for class_id in number.tolist()],
                best.tolist(),
                *part.T.tolist(),
            ]
        file.write("".join(line % row for row in zip(*columns, strict=True)).encode())


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    return comma_separated([columns, *rows])
