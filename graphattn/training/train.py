"""Train a model on a folder of shapes, and go on where a run was left."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ..arguments import one_of, whole
from ..errors import LoaderError, OptionError
from ..interop.files._guard import PathLike
from ..interop.files._replace import save_page
from ..shapes import ShapeFolder
from ..shapes.seeded import seeded
from .checkpoint import safetensors
from .data import OTHERS, RIGID, Prepared, digests, same_files
from .evaluate import Evaluation, evaluated
from .inputs import Inputs
from .loop import Progress, Schedule, Tell, Training
from .models import MODELS, build
from .page import save_report
from .run import CHECKPOINT, REPORT, RESULT, Run
from .tasks import TASKS, Task


def train(
    folder: PathLike,
    out: PathLike,
    *,
    task: str | None = None,
    model: str | None = None,
    graph: str | None = None,
    features: tuple[str, ...] | None = None,
    augment: tuple[str, ...] | None = None,
    model_options: dict[str, Any] | None = None,
    epochs: int | None = None,
    seed: int = 0,
    sample: int | None = None,
    val: float = 0.1,
    test: float = 0.2,
    control: bool = True,
    tell: Tell | None = None,
    **schedule: Any,
) -> Evaluation:
    """Train on a folder of shapes and measure on those held out; everything is written into ``out``.

    Args:
        folder: As :class:`graphattn.shapes.ShapeFolder` reads it.
        out: A new folder for the run.
        task: "classify", "segment" or "regress"; by default what the labels are for.
        model: A name of the table; by default "unet", or "mesh" to regress a number for each vertex of meshes.
        graph: An expression of a recipe, such as ``"radius(..., 0.2)"``, for all levels of the hierarchy, or one for
            each with ``;`` between them; by default the model's.
        features: Of the points, words of :class:`Inputs`; by default the model's, and the files' colours.
        augment: Changes of a shape in training: "rotation", "mirror", "stretch", "drop", "jitter".
        model_options: Arguments of the model, such as ``{"widths": [64, 64]}``.
        epochs: At most so many; by default as many as make 5 million points, or 3 million if points have labels, from
            10 to 60.
        seed: Of everything that is drawn: the split, parameters, orders, changes, dropout.
        sample: Points that are drawn of each shape if it has more, on its faces if it has some; 0 takes all. By
            default 512 for an answer for each shape, else all.
        val: Share of the shapes that decide which epoch was the best.
        test: Share of the shapes that are held out.
        control: Train a perceptron without edges, too.
        tell: Called with a :class:`Progress` after every batch.
        **schedule: More fields of :class:`Schedule`: ``points`` of a batch, ``lr``, ``patience``, ``device``, ...

    Returns:
        The scores on the held-out part; on the validation part, or all shapes, where there is none.

    Raises:
        LoaderError: With the file that is wrong, or that cannot be written.
        OptionError: If ``out`` holds a run already, or an option cannot be.

    Example:
        >>> import tempfile, torch, graphattn as ga
        >>> root = Path(tempfile.mkdtemp())
        >>> for name, height in (("flat", 0.1), ("tall", 1.0)):
        ...     (root / name).mkdir()
        ...     for number in range(10):
        ...         pos = torch.rand(40, 3) * torch.tensor([1.0, 1.0, height])
        ...         ga.save(ga.shapes.Shape(pos=pos), root / name / f"{number}.ply")
        >>> scores = ga.training.train(root, root.with_suffix(".run"), epochs=2, control=False)
        >>> scores.scores["shapes"]
        4
    """
    safetensors()
    whole(seed, "seed", 0)
    shapes = ShapeFolder(folder, task=task)
    kind = one_of(task if task is not None else shapes.task, "task", tuple(TASKS))
    parts = shapes.split(val=val, test=test, seed=seed)
    split = {name: [shapes.name(i) for i in part.indices] for name, part in parts.items()}
    learned = _task(kind, shapes, list(parts["train"].indices))
    meshes = "face" in shapes[0]
    usual = "mesh" if meshes and kind == "regress" and learned.readout == "node" else "unet"
    name = one_of(usual if model is None else model, "model", tuple(MODELS))
    inputs = _inputs(name, learned, shapes, features, graph, sample)
    augment = tuple(MODELS[name].augment if augment is None else augment)
    for word in augment:
        one_of(word, "augment", (*RIGID, *OTHERS))
    first = Prepared(shapes, [0], inputs)[0]
    many = [min(int(size), inputs.sample) if inputs.sample else int(size) for size in shapes.sizes]
    budget = 5e6 if learned.readout == "shape" else 3e6
    if epochs is None:
        epochs = max(10, min(60, round(budget * len(many) / (sum(many) * len(parts["train"])))))
    how = _schedule(many, len(parts["train"]), epochs, seed, schedule)
    run = Run(
        path=Path(out),
        folder=Path(folder),
        task=learned,
        inputs=inputs,
        augment=augment,
        model=name,
        options=dict(model_options or {}),
        features=first.x.shape[1],
        schedule=how,
        control=control,
        split=split,
        said=str(parts),
        files=digests(shapes),
    )
    run.new_model()  # refuses wrong options before anything is written
    run.save()
    return _trained(run, shapes, tell or (lambda progress: None))


def resume(
    out: PathLike, folder: PathLike | None = None, *, device: str | None = None, tell: Tell | None = None
) -> Evaluation:
    """Go on with a run that was ended in any way; on one thread its result has the bits of one that was not.

    Args:
        out: The folder of the run.
        folder: Where the shapes are now, if they have moved.
        device: Where the model is from now on; as before by default.
        tell: As in :func:`train`.

    Raises:
        LoaderError: If a file has changed since training began, or ``out`` holds no run.
    """
    safetensors()
    run = Run.load(out)
    if device is not None:
        run = replace(run, schedule=replace(run.schedule, device=device))
    shapes = ShapeFolder(run.folder if folder is None else folder, task=run.task.name)
    same_files(shapes, run.files)
    return _trained(run, shapes, tell or (lambda progress: None))


def _trained(run: Run, shapes: ShapeFolder, tell: Tell) -> Evaluation:
    tell(Progress("begin", 0.0, f"{shapes!r}\n{run.said}"))
    number = {shapes.name(i): i for i in range(len(shapes))}
    parts = {name: [number[file] for file in files] for name, files in run.split.items()}
    train = Prepared(shapes, parts["train"], run.inputs, run.augment)
    held = {name: Prepared(shapes, parts[name], run.inputs, like=train) for name in ("val", "test")}
    where = "test" if parts["test"] else "val" if parts["val"] else "train"
    _prepare([train, *held.values()], tell)
    training = Training(run.new_model(), run.task, run.schedule, train, held["val"])
    size = sum(p.numel() for p in training.model.parameters())
    tell(Progress("begin", 0.0, f"{run.model}: {size:,} parameters, at most {run.schedule.epochs} epochs"))
    if (run.path / CHECKPOINT).is_file():
        training.load(run.path / CHECKPOINT)
    training.run(run.path, tell)
    run.save_model(training.model)
    measured = held[where] if where != "train" else Prepared(shapes, parts["train"], run.inputs, like=train)
    result = evaluated(training.model, run.task, measured, run.schedule, where)
    if run.control and run.model != "perceptron":
        result = replace(result, control=_control(run, shapes, parts, where, tell).scores)
    save_page(run.path / RESULT, json.dumps(result.to_dict(), indent=1))
    save_report(run.path / REPORT, run, training.history, result)
    tell(Progress("end", 1.0, f"{result}\n{run.path / REPORT}"))
    return result


def _control(run: Run, shapes: ShapeFolder, parts: dict[str, list[int]], where: str, tell: Tell) -> Evaluation:
    """A perceptron of each point by itself, on the same split for as many epochs."""
    read = run.inputs
    own = tuple(word for word in read.features if word in shapes[0])  # of the files, and so of no neighbours
    inputs = Inputs((*MODELS["perceptron"].of_nodes.features, *own), scale=read.scale, sample=read.sample)
    data = {name: Prepared(shapes, part, inputs) for name, part in parts.items()}
    data["learn"] = Prepared(shapes, parts["train"], inputs, MODELS["perceptron"].augment, like=data["train"])
    width = data["train"][0].x.shape[1]
    with seeded(run.schedule.seed):
        model = build("perceptron", {}, width, run.task.out_dim, run.task.readout)
    training = Training(model, run.task, run.schedule, data["learn"], data["val"], "control")
    training.run(None, tell)
    return evaluated(model, run.task, data[where], run.schedule, where)


def _prepare(parts: list[Prepared], tell: Tell) -> None:
    """Every shape once, so that a wrong one is named before anything is learned."""
    many, done = sum(map(len, parts)), 0
    for part in parts:
        for index in range(len(part)):
            part.static(index)
            done += 1
            tell(Progress("reading", done / many))


def _task(name: str, shapes: ShapeFolder, numbers: list[int]) -> Task:
    labels = [shapes.labels[number] for number in numbers]
    if any(label.ndim != 1 for label in labels):
        raise LoaderError(
            f"{shapes.name(0)}: expected one label for each point or shape, got {tuple(labels[0].shape)}."
        )
    shape_wise = name == "classify" or (name == "regress" and all(len(label) == 1 for label in shapes.labels))
    readout = "shape" if shape_wise else "node"
    if not shape_wise:
        for number, label in enumerate(shapes.labels):
            if len(label) != int(shapes.sizes[number]):
                got = f"{len(label)} for {int(shapes.sizes[number])} points"
                raise LoaderError(f"{shapes.name(number)}: expected a label for each point, got {got}. Try: repair it.")
    if name != "regress":
        return TASKS[name](readout, shapes.classes)
    values = torch.cat(labels).double()
    deviation = float(values.std(correction=0))
    return TASKS[name](readout, (), float(values.mean()), deviation if deviation > 0 else 1.0)


def _inputs(name: str, task: Task, shapes: ShapeFolder, features: Any, graph: str | None, sample: int | None) -> Inputs:
    preset, first = MODELS[name], shapes[0]
    base = preset.of_shape if task.readout == "shape" else preset.of_nodes
    words = base.features + ("color",) * ("color" in first) if features is None else tuple(features)
    normals = base.normals
    if normals == "faces" and "face" not in first:
        raise OptionError(f"model={name!r} needs meshes with faces, got {shapes.name(0)} without; take another model")
    scale = 0.0
    if task.name == "regress":  # numbers may depend on the size of a shape
        few = range(0, len(shapes), max(1, len(shapes) // 100))
        radii = [(shape.pos - shape.pos.mean(0)).norm(dim=1).max() for shape in map(shapes.__getitem__, few)]
        scale = float(median(map(float, radii))) or 1.0
    graphs = base.graph
    if graph is not None and graphs:
        given = tuple(part.strip() for part in graph.split(";"))
        graphs = given if len(given) > 1 else given * len(base.graph)
        if len(graphs) != len(base.graph):
            raise OptionError(
                f"graph must name one recipe, or one for each of {len(base.graph)} levels, got {len(given)}"
            )
    if sample is None:
        draw = 512 if task.readout == "shape" and normals != "faces" else 0
    else:
        draw = whole(sample, "sample", 0)
    if draw and task.readout == "node":
        raise OptionError(f"sample must be 0 where each point has a label, got {draw}")
    return replace(base, features=words, normals=normals, scale=scale, graph=graphs, sample=draw)


def _schedule(sizes: list[int], in_train: int, epochs: int, seed: int, given: dict[str, Any]) -> Schedule:
    mean = sum(sizes) / len(sizes)
    together = min(16, max(4, in_train // 20))
    points = max(int(together * mean), 1) if together * mean < 1 << 15 else 1 << 15
    many = whole(epochs, "epochs", 1)
    usual: dict[str, Any] = {"points": points, "patience": max(8, many // 2)}
    try:
        return Schedule(epochs=many, seed=seed, **{**usual, **given})
    except TypeError as error:
        raise OptionError(f"train takes no such option: {error}") from None
