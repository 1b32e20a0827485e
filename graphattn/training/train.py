"""Train a model on a folder of shapes, and go on where a run was left."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..arguments import device as device_here
from ..arguments import function, one_of, whole
from ..convert.files._guard import PathLike
from ..errors import LoaderError, OptionError
from ..shapes import ShapeFolder
from .checkpoint import safetensors
from .chosen import augment_of, check_labels, inputs_of, labelled, scene_of, schedule_of, task_of
from .controls import controls_named
from .data import OTHERS, RIGID, digests, same_files
from .elements import elements_of
from .evaluation import Evaluation
from .fit import fit
from .loop import Progress, Tell
from .models import MODELS
from .ranges import RANGES
from .run import CHECKPOINT, Run
from .scenes import prepared
from .tasks import TASKS
from .team import team


def train(
    folder: PathLike,
    out: PathLike,
    *,
    task: str | None = None,
    label: str | None = None,
    ignore: Sequence[int] = (),
    names: Sequence[str] | None = None,
    model: str | None = None,
    graph: str | None = None,
    features: tuple[str, ...] | None = None,
    augment: tuple[str, ...] | None = None,
    model_options: dict[str, Any] | None = None,
    epochs: int | None = None,
    seed: int = 0,
    sample: int | None = None,
    up: str | None = None,
    grid: float | None = None,
    block: float | None = None,
    elements: str | None = None,
    val: float = 0.1,
    test: float = 0.2,
    control: bool | Sequence[str] = True,
    balance: bool | None = None,
    start: PathLike | None = None,
    tell: Tell | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    **schedule: Any,
) -> Evaluation:
    """Train on a folder of shapes and measure on those held out; everything is written into
    ``out``.

    Under ``torchrun`` every process computes on its shapes of each batch, or with ``shard`` on its
    points, and the first one writes and tells.

    Args:
        folder: As :class:`graphattn.shapes.ShapeFolder` reads it.
        out: A new folder for the run.
        task: "classify", "segment" or "regress"; by default what the labels are for. "classify"
            reads a folder for each class also where points have labels, which are learned by
            default.
        label: The property of each point or face that is the label; by default ``label``, or else
            the ``classification`` of LAS.
        ignore: Values of it that are no label: (0,) for points that were never classified.
        names: Of the classes of points, in the order of their values without those ignored.
        model: A name of the table; by default "unet", or "mesh-unet" to regress a number for each
            vertex of meshes: along its edges, and between some vertices of all of it.
        graph: An expression of a recipe, such as ``"radius(..., 0.2)"``, for all levels of the
            hierarchy, or one for each with ``;`` between them; by default the model's.
        features: Of the points, words of :class:`Inputs`; by default the model's, and the files'
            colours.
        augment: Changes of a shape in training: "rotation", "mirror", "stretch", "drop", "jitter".
        model_options: Arguments of the model, such as ``{"widths": [64, 64]}``.
        epochs: At most so many; by default as many as make 2.5 million points, from 10 to 60.
        seed: Of everything that is drawn: the split, parameters, orders, changes, dropout.
        sample: Points that are drawn of each shape if it has more, on its faces if it has some; 0
            takes all. By default 512 for an answer for each shape, else all.
        up: The axis that points up, "x", "y" or "z", or "none". Clouds whose points have classes,
            and 4,096 points or more in the mean or a ``classification`` as LAS has it, are scenes
            with "z" up by default: heights above the local ground are read, a scene keeps
            its own scale, and it is turned about that axis alone.
        grid: Side of the cells that scenes are thinned to, a point for each, in the units of the
            files; 0 for none. By default some three times the distance of neighbouring points. All
            points are predicted as their cells.
        block: Side of the overlapping blocks that scenes are cut into, in the units of the files;
            by default those of some 8,192 points where a thinned scan has more than 32,768, or none
            with ``shard``. Answers are averaged where blocks overlap.
        elements: What a token of a mesh is for the model "mesh": "vertices", "faces" or "edges"; by
            default what has labels. Those of faces are the property ``label`` of a .ply's faces; of
            edges (in the order of :func:`graphattn.graphs.mesh_edge_ends`) and of faces also ``y``
            of a .npz.
        val: Share of the shapes that decide which epoch was the best.
        test: Share of the shapes that are held out.
        control: What is trained beside the model on the same split for as many epochs, and compared
            with it shape by shape: "perceptron" (without edges) and "random" (the same model on
            graphs drawn with the same in-degrees); ``True`` is the perceptron.
        balance: Weight each class by 1 over the root of its share of the labels; by default where
            points have classes and one is five times as frequent as another.
        start: A run of the same model, or a state dict (.safetensors, .pt), to start from: tensors
            of the same name and shape are taken, others are new.
        tell: Called with a :class:`Progress` after every batch.
        on_epoch: Called with the line of the log at the end of every epoch of the model and of its
            controls: ``phase``, ``epoch``, ``loss``, ``val_loss``, ``val_miou``, ... The folder has
            them in ``metrics.csv``, too.
        **schedule: More fields of :class:`Schedule`: ``points`` of a batch, ``lr``, ``patience``,
            ``amp``, ``average``, ``device``, ``shard``, ...

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
    both = _told(tell, on_epoch)
    whole(seed, "seed", 0)
    shapes = ShapeFolder(folder, task=task, classes=names, label=label, ignore=ignore)
    if names is not None and shapes.task != "segment":
        raise OptionError(f"names are for classes of points, got a folder to {shapes.task}")
    kind = one_of(task if task is not None else shapes.task, "task", tuple(TASKS))
    parts = shapes.split(val=val, test=test, seed=seed)
    known = {name: labelled(shapes, part.indices) for name, part in parts.items()}
    if not known["train"]:
        raise LoaderError(
            f"{folder}: expected labels in the part to train, got none but -1. Try: another seed."
        )
    without = len(shapes) - sum(map(len, known.values()))
    tokens = elements_of(elements, shapes)
    learned = task_of(kind, shapes, known["train"], tokens, balance)
    numbers = "face" in shapes[0] and kind == "regress" and learned.readout == "node"
    if elements or tokens:
        usual = "mesh"
    elif numbers:
        usual = "mesh-unet"
    else:
        usual = "unet"
    name = one_of(usual if model is None else model, "model", tuple(MODELS))
    inputs = inputs_of(name, learned, shapes, features, graph, sample, tokens)
    inputs, usual_options = scene_of(
        name,
        learned,
        shapes,
        known["train"],
        inputs,
        (up, grid, block),
        features,
        graph,
        bool(schedule.get("shard")),
    )
    augment = tuple(augment_of(MODELS[name].augment, inputs) if augment is None else augment)
    if schedule.get("shard") and name in ("perceptron", "pct", "forest"):
        raise OptionError(f"shard is for models that read neighbours alone, got model={name!r}")
    for word in augment:
        one_of(word, "augment", (*RIGID, *OTHERS))
    if "drop" in augment and tokens:
        raise OptionError(
            f"augment must leave faces and edges where they have labels, got {', '.join(augment)}"
        )
    options = usual_options | ({"signals": 3 * len(inputs.signals)} if inputs.signals else {})
    run = Run(
        path=Path(out),
        folder=Path(folder),
        task=learned,
        inputs=inputs,
        augment=augment,
        model=name,
        options=options | dict(model_options or {}),
        features=1,
        schedule=schedule_of(shapes.sizes, len(known["train"]), epochs, {"seed": seed, **schedule}),
        control=controls_named(control, name),
        split={name: [shapes.name(i) for i in numbers] for name, numbers in known.items()},
        said=f"{parts}; {without:,} without labels left out" if without else str(parts),
        files=digests(shapes),
        label=label or "",
        ignore=shapes.ignore,
        depths=shapes.depths,
        start="" if start is None else str(Path(start).resolve()),
    )
    device_here(run.schedule.device, numbers=True)
    data = prepared(run, shapes, known["train"] if inputs.grid else list(range(len(shapes))))
    if inputs.grid:
        many = len(data)
    else:
        many = len(known["train"])
    how = schedule_of(data.sizes, many, epochs, {"seed": seed, **schedule})
    run = replace(run, features=data[0].x.shape[1], schedule=how)
    run.first_model()  # refuses wrong options before anything is written
    with team(run.schedule.device) as processes, ExitStack() as held:

        def begin() -> None:
            held.enter_context(run.alone())
            run.save()

        processes.first_does(begin)
        try:
            return fit(run, shapes, both, processes)
        except OptionError:  # a batch that will not fit: another try may name this folder
            if processes.first and not (run.path / CHECKPOINT).is_file():
                for name in (RANGES, "run.json"):
                    (run.path / name).unlink(missing_ok=True)
                with suppress(OSError):
                    run.path.rmdir()
            raise


def _told(tell: Tell | None, on_epoch: Callable[[dict[str, Any]], None] | None) -> Tell:
    if tell is not None:
        function(tell, "tell", "progress")
    if on_epoch is not None:
        function(on_epoch, "on_epoch", "line")

    def both(progress: Progress) -> None:
        if tell is not None:
            tell(progress)
        if on_epoch is not None and progress.epoch is not None:
            on_epoch({"phase": progress.phase, **progress.epoch})

    return both


def resume(
    out: PathLike,
    folder: PathLike | None = None,
    *,
    device: str | None = None,
    tell: Tell | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> Evaluation:
    """Go on with a run that was ended in any way; on one thread its result has the bits of one that
    was not.

    Under ``torchrun`` a run may go on in another number of processes; the same number gives the
    same bits.

    Args:
        out: The folder of the run.
        folder: Where the shapes are now, if they have moved.
        device: Where the model is from now on; as before by default.
        tell, on_epoch: As in :func:`train`.

    Raises:
        LoaderError: If a file has changed since training began, or ``out`` holds no run.
    """
    safetensors()
    both = _told(tell, on_epoch)
    run = Run.load(out)
    if device is not None:
        run = replace(run, schedule=replace(run.schedule, device=device))
    device_here(run.schedule.device, numbers=True)
    root = run.folder if folder is None else folder
    shapes = run.shapes(root)
    same_files(shapes, run.files)
    check_labels(shapes, run.task.readout, run.inputs.elements)
    with team(run.schedule.device) as processes, ExitStack() as held:
        processes.first_does(lambda: held.enter_context(run.alone()))
        return fit(run, shapes, both, processes)
