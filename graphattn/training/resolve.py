"""A run from the options and shapes of a training: what is left open is chosen by the shapes."""

from dataclasses import replace
from pathlib import Path

from ..arguments import device, one_of
from ..errors import OptionError
from ..io.reading import PathLike, fault
from ..shapes import ShapeFolder
from .chosen import labelled, schedule_of, task_of
from .controls import controls_named
from .models.named import CHOOSING, MODELS
from .options import Options
from .reading.data import Prepared, digests
from .reading.default_inputs import augment_of, inputs_of, options_of
from .reading.elements import elements_of
from .reading.inputs import ShapeInputs
from .reading.scenes import prepared
from .run import Run
from .tasks import TASKS, Task

#: Models in which a point reads others than its neighbours, or none.
_WITHOUT_NEIGHBOURS = ("perceptron", "pct", "forest", *CHOOSING)


def resolve(options: Options, shapes: ShapeFolder, out: PathLike) -> Run:
    """The run of a training with these options; nothing is written.

    Raises:
        LoaderError: With the file that is wrong.
        OptionError: If an option does not fit the shapes.
    """
    split, how_split = _split(options, shapes)
    train = split["train"]
    elements = elements_of(options.elements, shapes)
    if options.task is None:
        task_name = shapes.task
    else:
        task_name = one_of(options.task, "task", tuple(TASKS))
    task = task_of(task_name, shapes, train, elements, options.balance)
    model = _model(options, task, shapes, elements)
    if options.shard and model in _WITHOUT_NEIGHBOURS:
        raise OptionError(f"shard is for models that read neighbours alone, got model={model!r}")
    if model == "forest":
        if options.balance:
            raise OptionError(
                "balance is for the loss of a network, which model='forest' has not; leave it out"
            )
        task = replace(task, weights=())
    inputs = inputs_of(model, task, shapes, train, options, elements)
    augment = augment_of(model, inputs, options)
    control = controls_named(options.control, model)
    device(options.device, numbers=True)
    data, size = _data(inputs, shapes, train)
    if options.start is None:
        start = ""
    else:
        start = str(Path(options.start).resolve())
    run = Run(
        path=Path(out),
        folder=shapes.root,
        task=task,
        inputs=inputs,
        augment=augment,
        model=model,
        options=options_of(model, inputs, task, data[0].widths) | dict(options.model_options or {}),
        features=data[0].x.shape[1],
        schedule=schedule_of(options, data.sizes, size),
        control=control,
        split={part: [shapes.name(n) for n in numbers] for part, numbers in split.items()},
        said=how_split,
        files=digests(shapes),
        label=options.label or "",
        ignore=shapes.ignore,
        depths=shapes.depths,
        start=start,
    )
    run.first_model()  # refuses wrong arguments of the model
    return run


def _split(options: Options, shapes: ShapeFolder) -> tuple[dict[str, list[int]], str]:
    """Numbers of the labelled shapes of each part, and how the parts were made, in words."""
    parts = shapes.split(val=options.val, test=options.test, seed=options.seed)
    split = {name: labelled(shapes, part.indices) for name, part in parts.items()}
    if not split["train"]:
        raise fault(shapes.root, "labels in the part to train", "none but -1", "another seed")
    without = len(shapes) - sum(map(len, split.values()))
    if without:
        return split, f"{parts}; {without:,} without labels left out"
    return split, str(parts)


def _model(options: Options, task: Task, shapes: ShapeFolder, elements: str) -> str:
    """Name of the model: by default of one for curves, for the tokens of meshes, or for points."""
    is_curve = "edge_index" in shapes[0] and "face" not in shapes[0]
    if options.model == "best" and is_curve:
        return "best-curve"
    if options.model is not None:
        return one_of(options.model, "model", tuple(MODELS))
    if is_curve:
        return "curve"
    if elements or options.elements:
        return "mesh"
    has_numbers_at_points = task.name == "regress" and task.readout == "node"
    if has_numbers_at_points and "face" in shapes[0]:
        return "mesh-unet"
    return "unet"


def _data(inputs: ShapeInputs, shapes: ShapeFolder, train: list[int]) -> tuple[Prepared, int]:
    """Shapes whose sizes a schedule is chosen by, and how many there are to train on.

    Those are all shapes, but of scenes the blocks to train on.
    """
    if inputs.grid:
        blocks = prepared(inputs, shapes, train)
        return blocks, len(blocks)
    return prepared(inputs, shapes, list(range(len(shapes)))), len(train)
