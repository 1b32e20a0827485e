"""Defaults of a run: its task by the labels, features, levels and epochs by the shapes."""

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ..arguments import one_of, positive, whole
from ..errors import LoaderError, OptionError
from ..shapes import ShapeFolder
from ..shapes.folder import plain_name
from .elements import TOKEN, count_of
from .inputs import Inputs
from .loop import Schedule
from .models import MODELS
from .scenes import AXES, CELLS, MANY, grid_of
from .tasks import TASKS, Task

_LEVELS = (2.0, 4.0, 8.0)  # sides of cells of a scene's levels, in those that it is thinned to
_SCENE = {
    "widths": [32, 32, 64, 64],
    "depths": [1, 1, 1, 1],
    "edges": ["offset", "distance", "alignment"],
}
NEAR = "knn(..., 12, include_self=True, clamp=True)"
_COARSEST = 500  # vertices of the coarsest level of a mesh, which all read each other
_UNEQUAL = 5.0  # the most frequent class over the rarest, from which classes are weighted


def task_of(
    name: str,
    shapes: ShapeFolder,
    numbers: list[int],
    elements: str = "",
    balance: bool | None = None,
) -> Task:
    """The task that the labels of those shapes define; ``balance`` weights classes by their
    frequency.

    Raises:
        LoaderError: If points have labels in another number than there are points, or all labels
            are of one class.
    """
    labels = [shapes.labels[number] for number in numbers]
    shape_wise = name == "classify" or (
        name == "regress" and all(len(label) == 1 for label in shapes.labels)
    )
    if shape_wise:
        readout = "shape"
    else:
        readout = "node"
    check_labels(shapes, readout, elements)
    if name != "regress":
        count = torch.bincount(
            torch.cat([label[label >= 0] for label in labels]), minlength=len(shapes.classes)
        )
        there = [shapes.classes[int(number)] for number in count.nonzero()]
        if len(there) < 2:
            got = f"only {there[0]!r} in the part to train"
            fix = "shapes of another class, or other labels (--label)"
            raise LoaderError(
                f"{shapes.root}: expected labels of two classes or more, got {got}. Try: {fix}."
            )
        unequal = name == "segment" and float(count.max()) > _UNEQUAL * float(
            count[count > 0].min()
        )
        if balance or (balance is None and unequal):
            weights = weights_of(count)
        else:
            weights = ()
        return TASKS[name](readout, shapes.classes, weights=weights)
    if balance:
        raise OptionError("balance is for classes, got a task of numbers")
    values = torch.cat(labels).double()
    deviation = float(values.std(correction=0))
    return TASKS[name](readout, (), float(values.mean()), deviation if deviation > 0 else 1.0)


def weights_of(count: Tensor) -> tuple[float, ...]:
    """1 over the root of the share of each class, with a mean of 1 over all labels; of a class
    without any, 1.

    Example:
        >>> weights_of(torch.tensor([90, 10, 0]))
        (0.83333, 2.5, 1.0)
    """
    share = count.double() / count.sum().clamp(min=1)
    weight = torch.where(count > 0, share.clamp(min=1e-30).rsqrt(), 0.0)
    weight = weight / (weight * share).sum()
    return tuple(round(each, 5) or 1.0 for each in weight.tolist())


def check_labels(shapes: ShapeFolder, readout: str, elements: str = "") -> None:
    """One for each shape, or for each of its points, faces or edges."""
    if elements and "face" not in shapes[0]:
        raise LoaderError(
            f"{shapes.name(0)}: expected a mesh with faces, got points alone. Try: a model of "
            "points."
        )
    if readout == "shape":
        token = "shape"
    else:
        token = TOKEN[elements]
    for number, label in enumerate(shapes.labels):
        if elements:
            own = count_of(shapes[number], elements)
        else:
            own = int(shapes.sizes[number])
        if token == "shape":
            many = 1
        else:
            many = own
        if label.shape != (many,):
            if label.ndim != 1:
                got = f"{tuple(label.shape)} for {many}"
            else:
                got = f"{len(label)} for {many} {token}s"
            raise LoaderError(
                f"{shapes.name(number)}: expected a label for each {token}, got {got}. Try: "
                "repair it."
            )


def labelled(shapes: ShapeFolder, numbers: Iterable[int]) -> list[int]:
    """Those shapes of which anything has a label."""
    return [
        n
        for n in numbers
        if shapes.labels[n].is_floating_point() or bool((shapes.labels[n] >= 0).any())
    ]


def inputs_of(
    name: str,
    task: Task,
    shapes: ShapeFolder,
    features: Any,
    graph: str | None,
    sample: int | None,
    elements: str = "",
) -> Inputs:
    """The inputs of the model of that name."""
    preset = MODELS[name]
    first = shapes[0]
    if task.readout == "shape":
        base = preset.of_shape
    else:
        base = preset.of_nodes
    if name == "mesh-unet":
        steps = max(1, math.ceil(math.log(float(shapes.sizes.double().mean()) / _COARSEST, 8)))
        base = replace(
            base,
            ratio=base.ratio * steps,
            graph=(base.graph[0], *[NEAR] * (steps - 1), base.graph[1]),
        )
    if elements:
        base = _of_elements(base, elements, name)
    own: list[str] = []
    if not elements:
        own = [name for name in dict(first) if plain_name(name) in ("color", "intensity")]
    if features is None:
        words = (*base.features, *own)
    else:
        words = tuple(features)
    normals = base.normals
    signals = tuple(
        word
        for word, own in (("color", "color"), ("normals", "normal"))
        if preset.signals and own in first
    )
    if "normals" in signals:
        normals = "normal"
    if normals == "faces" and "face" not in first:
        raise OptionError(
            f"model={name!r} needs meshes with faces, got {shapes.name(0)} without; take another "
            "model"
        )
    scale = 0.0
    if task.name == "regress":  # numbers may depend on the size of a shape
        few = range(0, len(shapes), max(1, len(shapes) // 100))
        radii = [
            (shape.pos - shape.pos.mean(0)).norm(dim=1).max()
            for shape in map(shapes.__getitem__, few)
        ]
        scale = float(median(map(float, radii))) or 1.0
    graphs = base.graph
    if graph is not None and not graphs:
        raise OptionError(
            f"graph is for a model that reads the edges of recipes, got model={name!r}"
        )
    if graph is not None:
        given = tuple(part.strip() for part in graph.split(";"))
        if len(given) > 1:
            graphs = given
        else:
            graphs = given * len(base.graph)
        if len(graphs) != len(base.graph):
            raise OptionError(
                f"graph must name one recipe, or one for each of {len(base.graph)} levels, got "
                f"{len(given)}"
            )
    if sample is None:
        if task.readout == "shape" and normals != "faces":
            draw = 512
        else:
            draw = 0
    else:
        draw = whole(sample, "sample", 0)
    if elements and sample is None:
        draw = 0
    if draw and normals == "pca" and "face" in first:
        normals = "faces"
    return replace(
        base,
        features=words,
        normals=normals,
        scale=scale,
        graph=graphs,
        sample=draw,
        signals=signals,
    )


def scene_of(
    name: str,
    task: Task,
    shapes: ShapeFolder,
    numbers: list[int],
    inputs: Inputs,
    given: tuple[str | None, float | None, float | None],
    features: Any,
    graph: str | None,
    whole: bool,
) -> tuple[Inputs, dict[str, Any]]:
    """The inputs of scenes, whose axis up, cells and blocks are ``given`` or chosen, and options of
    their model.

    ``whole`` ones are not cut into blocks unless these are given.
    """
    up, grid, block = given
    clouds = task.name == "segment" and "face" not in shapes[0]
    scenes = clouds and (shapes.surveyed or float(shapes.sizes.double().mean()) >= MANY)
    if up is None:
        if scenes or grid:
            up = "z"
        else:
            up = "none"
    one_of(up, "up", (*AXES, "none"))
    if (grid or block) and not clouds:
        raise OptionError(
            f"grid and block are for clouds whose points have classes, got a task to {task.name}"
        )
    if not clouds or grid == 0 or (up == "none" and not grid):
        levels = len(inputs.graph)
        deep: dict[str, Any] = {"widths": [32] * levels, "depths": [1] * (levels - 1) + [2]}
        return (
            inputs if up == "none" else replace(inputs, upward=up)
        ), deep if name == "mesh-unet" else {}
    if up == "none":
        axis = ""
    else:
        axis = up
    if grid:
        side = positive(grid, "grid")
    else:
        side = grid_of(shapes, numbers)
    if whole and block is None:
        block = CELLS * side
    scene = replace(inputs, upward=axis, grid=side, block=float(block or 0))
    if name == "perceptron":
        return scene, {}
    words = scene.features
    options = {}
    own = tuple(word for word in words if word not in MODELS[name].of_nodes.features)
    if name == "unet":
        if axis:
            words = ("upright", "spread", *own)
        else:
            words = ("spread", *own)
        levels = len(_LEVELS) + 1
        scene = replace(
            scene,
            scale=side,
            ratio=(),
            cell=_LEVELS,
            graph=scene.graph if graph else (NEAR,) * levels,
        )
        options = dict(_SCENE)
    elif scene.cell:
        scene = replace(scene, scale=side, cell=tuple(10 * each for each in scene.cell))
    if axis:
        words = ("above_ground", *words)
    return replace(scene, features=words if features is None else tuple(features)), options


def augment_of(usual: tuple[str, ...], inputs: Inputs) -> tuple[str, ...]:
    """Scenes are turned about the axis up and mirrored."""
    if inputs.grid:
        return (*usual, *(word for word in ("rotation", "mirror") if word not in usual))
    return usual


def _of_elements(base: Inputs, elements: str, name: str) -> Inputs:
    if name not in ("mesh", "perceptron"):
        raise OptionError(f"elements={elements!r} is for model='mesh', got model={name!r}")
    if name == "perceptron":
        return replace(base, elements=elements)
    return replace(
        base,
        elements=elements,
        features=("element",),
        graph=(f"mesh_{elements}(..., self_loops=True)",),
    )


def schedule_of(
    sizes: Tensor, in_train: int, epochs: int | None, given: dict[str, Any]
) -> Schedule:
    """Batches of up to 16 shapes; as many epochs as make 2.5 million points, from 10 to 60."""
    mean = float(sizes.double().mean())
    if epochs is None:
        many = max(10, min(60, round(2.5e6 / (mean * in_train))))
    else:
        many = epochs
    together = min(16, max(4, in_train // 20))
    usual: dict[str, Any] = {
        "points": min(max(int(together * mean), 1), 1 << 15),
        "patience": max(8, many // 2),
    }
    try:
        return Schedule(epochs=many, **{**usual, **given})
    except TypeError as error:
        raise OptionError(f"train takes no such option: {error}") from None
