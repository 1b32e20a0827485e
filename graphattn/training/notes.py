"""Notes for the reader of a run: unread properties, classes never predicted, a short reach."""

from typing import Any

from torch import Tensor, bincount, cat

from ..shapes import ShapeFolder
from .evaluation import Evaluation
from .run import SAID, Run

_FEW = 20  # labels of a class
_LOW = 0.5  # R2 below which a model of short reach may be the reason
_OWN = ("pos", "y", "face", "face_y")


def left_out(run: Run, shapes: ShapeFolder) -> list[str]:
    """Properties with a row for each token of a shape that the model does not read."""
    shape = shapes[0]
    inputs = run.inputs
    signals = [{"normals": "normal"}.get(word, word) for word in inputs.signals]
    known = {*_OWN, *inputs.features, *signals}
    if inputs.normals in ("normal", "faces"):
        known.add("normal")
    sizes = [len(shape.pos), shape.face.shape[1] if "face" in shape else -1]
    rows = [
        name
        for name, value in shape.items()
        if isinstance(value, Tensor) and value.ndim and len(value) in sizes
    ]
    return [name for name in rows if name not in known]


def scene_of(run: Run) -> str:
    """How scans are read, in words."""
    if run.inputs.upward:
        up = f"{run.inputs.upward} is up (--up), "
    else:
        up = ""
    if run.inputs.block:
        block = f", cut into blocks of {run.inputs.block:g}"
    else:
        block = ""
    return f"{up}thinned to cells of {run.inputs.grid:g} (--grid){block}"


def unseen_classes(run: Run, shapes: ShapeFolder) -> str:
    """A note on classes missing in the validation part, which cannot choose epochs; "" for none."""
    train, val = (
        [
            label
            for number, label in enumerate(shapes.labels)
            if shapes.name(number) in set(run.split[part])
        ]
        for part in ("train", "val")
    )
    if not run.task.kept_by_metric:
        return ""
    names = run.task.unseen(train, val)
    if not names:
        return ""
    many = ", ".join(names[:12]) + ", ..." * (len(names) > 12)
    return (
        f"the validation part has no label of {many}: the epoch is chosen by its loss, not by "
        "its mean IoU"
    )


def reads(run: Run, shapes: ShapeFolder) -> str:
    """The inputs of a run in words, and the properties of the files that are none."""
    words = "".join(f"{note}\n" for note in shapes.notes)
    if shapes.left:
        words += f"left out, as not all files have them: {', '.join(shapes.left[:12])}\n"
    words += f"reads {', '.join(dict.fromkeys((*run.inputs.features, *run.inputs.signals)))}"
    if run.inputs.grid:
        words += f"; scenes: {scene_of(run)}"
    left = left_out(run, shapes)
    if left:
        names = ", ".join(map(repr, left[:12])) + (", ..." if len(left) > 12 else "")
        words += (
            f"; not read: {names} (--features {','.join((*run.inputs.features, 'NAME'))} reads one)"
        )
    absent: set[str] = set()
    if run.task.name == "segment":
        parts = [
            label
            for number, label in enumerate(shapes.labels)
            if shapes.name(number) in set(run.split["train"])
        ]
        many, every = (
            bincount(cat(labels).clamp(min=-1) + 1, minlength=len(run.task.classes) + 1).tolist()[
                1:
            ]
            for labels in (parts, shapes.labels)
        )
        rows = [*zip(run.task.classes, many, every, strict=True)]
        # names of LAS stand for values that no file has
        absent = {name for name, _, there in rows if not there}
        few = [f"{name} ({count:,})" for name, count, there in rows if there and count < _FEW]
        words += f"\nclasses of few labels to train on: {', '.join(few[:12])}" if few else ""
    if run.task.weights:
        both = zip(run.task.weights, run.task.classes, strict=True)
        pairs = sorted((weight, name) for weight, name in both if name not in absent)
        weights = ", ".join(
            f"{name} {weight:.2g}" for weight, name in (pairs if len(pairs) < 9 else pairs[-8:])
        )
        words += f"\nclasses are weighted, rare ones more (--no-balance for none): {weights}"
    unseen = unseen_classes(run, shapes)
    if unseen:
        words += f"\nnote: {unseen}"
    return words


def notes(run: Run, result: Evaluation) -> list[str]:
    """Lines for the terminal and the page."""
    task = result.task
    scores = result.scores
    lines = [words for words in run.unlike_start() if "held out" in words]
    iou: dict[str, Any] = scores.get("iou", {})
    for name, value in iou.items():
        if value == 0 and scores["labels"][name]:
            share = scores["labels"][name] / scores["points"]
            lines.append(f"no point of {name!r} is found: IoU 0.000, {share:.2%} of the labels")
    for name in result.controls:
        over = result.over(name)
        if over.high is not None and over.high < 0:
            lines.append(
                f"{SAID[name]} scores more than {run.model}, by {over.said.removesuffix(' less')}"
            )
    if (
        run.model == "mesh"
        and task.name == "regress"
        and task.readout == "node"
        and scores["r2"] < _LOW
    ):
        layers = run.options.get("num_layers", 2)
        lines.append(
            f"the model reads {layers} rings of a mesh; where the numbers depend on what is "
            "farther, "
            "--model mesh-unet reads the whole shape"
        )
    return lines
