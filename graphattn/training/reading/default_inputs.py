"""Inputs of a model for a folder: those of its preset, changed by the files and by the options."""

import math
from dataclasses import replace
from statistics import median
from typing import Any

from ...arguments import one_of, positive, whole
from ...errors import OptionError
from ...graph.deferred.filled import leaves_open
from ...shapes import ShapeFolder
from ...shapes.files.curves.lines import is_motion
from ...shapes.folder import plain_name
from ..models.named import CHOOSING, MODELS
from ..options import Options
from ..tasks import Task
from .data import OTHERS, RIGID
from .inputs import OF_ATOMS, ShapeInputs, check_sample, recipes_in
from .placing import radius_of
from .scenes import AXES, CELLS, MANY, grid_of

_SAMPLE = 512  # points drawn of a shape that has one answer
_MOTION = 2048  # of a motion, those of whole frames
_COARSEST = 500  # vertices of the coarsest level of a mesh, which all read each other
_LEVELS = (2.0, 4.0, 8.0)  # sides of cells of a scene's levels, in those that it is thinned to
_NEAR = "knn(..., 12, self_loops=True, clamp=True)"
_UNET_OF_SCENES = {
    "widths": [32, 32, 64, 64],
    "depths": [1, 1, 1, 1],
    "edges": ["offset", "distance", "alignment"],
}
#: Properties of points that are read where files have them.
_READ = ("color", "intensity", "return_number", "number_of_returns")
#: Models that read what a forest reads of scenes.
_NETWORKS = ("unet", "best")
#: Relative signals, and the properties of files that they are made of.
_SIGNALS = {"color": "color", "normals": "normal"}


def inputs_of(
    model: str,
    task: Task,
    shapes: ShapeFolder,
    numbers: list[int],
    options: Options,
    elements: str = "",
) -> ShapeInputs:
    """Inputs of a model.

    Args:
        model: Its name.
        task: Its task.
        shapes: The folder.
        numbers: Shapes of the part to train, which cells of scenes are chosen by.
        options: Options of the training.
        elements: "faces" or "edges" where these are the tokens of a mesh, else "".
    """
    inputs = _of_preset(model, task, shapes, elements)
    inputs = _of_files(inputs, model, task, shapes, options, elements)
    inputs = scene_of(inputs, model, task, shapes, numbers, options)
    if options.features is not None:
        inputs = replace(inputs, features=tuple(options.features))
    if options.graph is not None:
        inputs = replace(inputs, graph=recipes_of(options.graph, model, inputs.graph))
    apart = [*_forest_features(model, inputs), *_linear_features(model, inputs, task)]
    words = [word for word in inputs.features if word not in apart]
    return replace(inputs, features=(*words, *apart))


def _forest_features(model: str, inputs: ShapeInputs) -> tuple[str, ...]:
    """Features of a network and a forest that the forest alone reads; they follow what both read."""
    # the covariances of nearest points cost a network of curves 4 of 100 outlines
    if model == "best-curve" and "local" in inputs.features:
        return ("local",)
    return ()


def _linear_features(model: str, inputs: ShapeInputs, task: Task) -> tuple[str, ...]:
    """Features of a network and a forest that a linear model reads, which are the last."""
    is_number = task.name == "regress" and task.readout == "shape"
    if model in CHOOSING and is_number and "composition" in inputs.features:
        return ("composition",)
    return ()


def _of_preset(model: str, task: Task, shapes: ShapeFolder, elements: str) -> ShapeInputs:
    preset = MODELS[model]
    if task.readout == "shape":
        inputs = preset.of_shape
    else:
        inputs = preset.of_nodes
    if model == "mesh-unet":
        # inputs with as many levels as leave some 500 vertices of a mesh of that size
        steps = max(1, math.ceil(math.log(float(shapes.sizes.double().mean()) / _COARSEST, 8)))
        finest, coarsest = inputs.graph
        inputs = replace(
            inputs, ratio=inputs.ratio * steps, graph=(finest, *[_NEAR] * (steps - 1), coarsest)
        )
    if elements:
        inputs = _of_elements(inputs, elements, model)
    return inputs


def _of_elements(inputs: ShapeInputs, elements: str, model: str) -> ShapeInputs:
    """Inputs of faces or edges in the place of vertices."""
    if model == "perceptron":
        return replace(inputs, elements=elements)
    if model != "mesh":
        raise OptionError(f"elements={elements!r} is for model='mesh', got model={model!r}")
    return replace(
        inputs,
        elements=elements,
        features=("element",),
        graph=(f"mesh_{elements}(..., self_loops=True)",),
    )


def _of_files(
    inputs: ShapeInputs,
    model: str,
    task: Task,
    shapes: ShapeFolder,
    options: Options,
    elements: str,
) -> ShapeInputs:
    """ShapeInputs with what the files have: colours, intensity, normals, faces, a size."""
    shape = shapes[0]
    signals: tuple[str, ...] = ()
    if MODELS[model].signals:
        signals = tuple(word for word, name in _SIGNALS.items() if name in shape)
    features = inputs.features
    if not elements:
        # in the order of the file; PyG's keys() has none
        names = [name for name, _ in shape.items()]
        features += tuple(n for n in names if plain_name(n) in _READ)
        if "z" in names and not shape.z.is_floating_point():
            features += OF_ATOMS
    normals = inputs.normals
    if "normals" in signals:
        normals = "normal"
    if normals == "faces" and "face" not in shape:
        raise OptionError(
            f"model={model!r} needs meshes with faces, got {shapes.name(0)} without; take another "
            "model"
        )
    reads_all = normals == "faces" or elements or "edge_index" in shape
    if MODELS[model].lines and "edge_index" not in shape:
        raise OptionError(
            f"model={model!r} needs curves or trees, got {shapes.name(0)} without lines; take another "
            "model"
        )
    sample = _sample(options, task, bool(reads_all), elements)
    if options.sample is None and task.readout == "shape" and is_motion(shape):
        sample = _MOTION
    if sample and normals == "pca" and "face" in shape:
        normals = "faces"
    scale = 0.0
    if task.name == "regress":  # numbers may depend on the size of a shape
        # median radius of some 100 shapes; 1 if it is 0
        some = range(0, len(shapes), max(1, len(shapes) // 100))
        radii = [float(radius_of(shapes[number].pos)) for number in some]
        scale = float(median(radii)) or 1.0
    return replace(
        inputs, features=features, signals=signals, normals=normals, sample=sample, scale=scale
    )


def _sample(options: Options, task: Task, reads_all: bool, elements: str) -> int:
    """Points drawn of each shape; 0 for all, as where faces or lines join them."""
    if options.sample is not None:
        sample = whole(options.sample, "sample", 0)
        if not elements:
            check_sample(sample, task.readout)
        return sample
    if reads_all or task.readout == "node":
        return 0
    return _SAMPLE


def recipes_of(text: str, model: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Recipes of the levels: one for all of them, or one for each with ``;`` between them.

    One that reads faces or lines is that of the finest level, which alone has them; the coarser
    ones keep the ``usual`` recipes of the model.
    """
    levels = len(usual)
    if not levels:
        raise OptionError(
            f"graph is for a model that reads the edges of recipes, got model={model!r}"
        )
    recipes = tuple(part.strip() for part in text.split(";"))
    if len(recipes) not in (1, levels):
        raise OptionError(
            f"graph must name one recipe, or one for each of {levels} levels, got {len(recipes)}"
        )
    if len(recipes) > 1:
        return recipes
    if any(leaves_open(recipe.expression, ("faces", "cells")) for recipe in recipes_in(text)):
        return (*recipes, *usual[1:])
    return recipes * levels


def scene_of(
    inputs: ShapeInputs,
    model: str,
    task: Task,
    shapes: ShapeFolder,
    numbers: list[int],
    options: Options,
) -> ShapeInputs:
    """Inputs of scenes, with an axis up, cells and blocks; of other shapes with the axis alone."""
    is_cloud = task.name == "segment" and "face" not in shapes[0]
    is_large = shapes.surveyed or float(shapes.sizes.double().mean()) >= MANY
    has_lines = "edge_index" in shapes[0]  # which a scan that is thinned loses
    upward = _upward(options, is_cloud and is_large and not has_lines)
    side = 0.0
    if options.grid and MODELS[model].lines:
        raise OptionError(
            f"grid must be 0 for model={model!r}, as points that are thinned lose their lines, got "
            f"{options.grid}"
        )
    if not is_cloud and (options.grid or options.block):
        raise OptionError(
            "grid and block are for clouds, without faces, whose points have classes, got a task to "
            f"{task.name} {shapes.name(0)}"
        )
    if is_cloud and (options.grid or not has_lines):
        side = _side_of_cells(options, upward, shapes, numbers)
    inputs = replace(inputs, upward=upward)
    if not side:
        if options.block:
            raise OptionError(
                f"block requires clouds that are thinned to a grid, got block={options.block} and "
                "grid=0; give grid, the side of a cell"
            )
        return inputs
    # side of the blocks that scenes are cut into; 0 if each scan decides
    if options.block is not None:
        block = float(options.block)
    elif options.shard:
        block = CELLS * side  # a block is a whole scan
    else:
        block = 0.0
    inputs = replace(inputs, grid=side, block=block)
    if model == "perceptron":
        return inputs
    return _of_cells(inputs, model)


def _upward(options: Options, are_scenes: bool) -> str:
    """Axis that points up; "" for none."""
    up = options.up
    if up is None:
        up = "none"
        if are_scenes or options.grid:
            up = "z"
    if one_of(up, "up", (*AXES, "none")) == "none":
        return ""
    return up


def _side_of_cells(options: Options, upward: str, shapes: ShapeFolder, numbers: list[int]) -> float:
    """Side of the cells that clouds are thinned to; 0 if they are not."""
    if options.grid == 0:
        return 0.0
    if options.grid is not None:
        return positive(options.grid, "grid")
    if upward:
        return grid_of(shapes, numbers)
    return 0.0


def _of_cells(inputs: ShapeInputs, model: str) -> ShapeInputs:
    """Inputs in units of the cells that a scene is thinned to."""
    features = inputs.features
    if model in _NETWORKS:
        usual = MODELS["best"].of_nodes.features
        features = ("local", *(word for word in features if word not in usual))
        graph = (_NEAR,) * (len(_LEVELS) + 1)
        inputs = replace(inputs, scale=inputs.grid, ratio=(), cell=_LEVELS, graph=graph)
    elif inputs.cell:
        cell = tuple(10 * side for side in inputs.cell)
        inputs = replace(inputs, scale=inputs.grid, cell=cell)
    if inputs.upward and features[0] == "local":  # in the order of a control, whose trees are equal
        features = ("local", "above_ground", *features[1:])
    elif inputs.upward:
        features = ("above_ground", *features)
    return replace(inputs, features=features)


def options_of(
    model: str, inputs: ShapeInputs, task: Task, widths: tuple[int, ...]
) -> dict[str, Any]:
    """Arguments of a model that its inputs and their ``widths``, one of each feature, determine."""
    options: dict[str, Any] = {}
    if model == "mesh-unet":
        levels = len(inputs.graph)
        options = {"widths": [32] * levels, "depths": [1] * (levels - 1) + [2]}
    elif model in _NETWORKS and inputs.grid:
        options = dict(_UNET_OF_SCENES)
    of_linear = _linear_features(model, inputs, task)
    apart = (*_forest_features(model, inputs), *of_linear)
    width_of = dict(zip(inputs.features, widths, strict=True))
    read = [word for word in inputs.features if word not in apart]
    if apart and read:
        options["network_features"] = sum(width_of[word] for word in read)
    if of_linear and read:
        options["linear_features"] = sum(width_of[word] for word in of_linear)
    if inputs.signals:
        options["signals"] = 3 * len(inputs.signals)
    return options


def augment_of(model: str, inputs: ShapeInputs, options: Options) -> tuple[str, ...]:
    """Changes of a shape in training; scenes are also turned about the axis up and mirrored."""
    if options.augment is None:
        words = MODELS[model].augment
        if inputs.grid:
            words += tuple(word for word in RIGID if word not in words)
        return words
    words = tuple(options.augment)
    for word in words:
        one_of(word, "augment", (*RIGID, *OTHERS))
    if "drop" in words and inputs.elements:
        raise OptionError(
            f"augment must leave faces and edges where they have labels, got {', '.join(words)}"
        )
    if "drop" in words and "composition" in inputs.features:
        raise OptionError(
            f"augment must leave atoms that composition counts, got {', '.join(words)}; leave it "
            "out of features, or drop out of augment"
        )
    return words
