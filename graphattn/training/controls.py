"""Controls of a run: models trained on the same split for at most as many epochs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..arguments import one_of, several
from ..errors import OptionError
from .models.named import MODELS, SIMULATED
from .reading.inputs import OF_ATOMS, ShapeInputs
from .reading.scenes import prepared
from .run import AT_ONCE, CONTROL_WORDS, Run


def controls_named(
    control: bool | Sequence[str], model: str, *, simulates: bool = False
) -> tuple[str, ...]:
    """Names of the controls of a run.

    ``True`` is the perceptron, or the stencil where trajectories are simulated, for every model but
    itself.
    """
    usual, unfit = "perceptron", "stencil"
    if simulates:
        usual, unfit = "stencil", "forest"
    if isinstance(control, bool):
        return (usual,) * (control and model != usual)
    names = several(control, "control", f"must name some of {', '.join(CONTROL_WORDS)}")
    for name in names:
        one_of(name, "control", tuple(CONTROL_WORDS))
        if name == unfit:
            raise OptionError(f"control={name!r} does not fit the task")
        if model in AT_ONCE or (model == "perceptron" and name != "forest"):
            raise OptionError(f"control={name!r} is for a model with edges, got model={model!r}")
    return tuple(dict.fromkeys(names))


def control_of(run: Run, name: str, shapes: Any) -> Run:
    """The run of a control, in a folder of the run's.

    It is a perceptron of each point, the same model on other graphs, or a random forest.

    The perceptron reads what is made of no neighbours: positions, distances, and those features of
    the model that are properties of the files, elements of atoms or radii of shapes. The forest
    reads these features, heights, and covariances of the nearest points; of shapes histograms of
    them. The random graphs have the in-degrees of the run's, on every level and between levels, and
    their features of edges are those of the drawn pairs; the model begins with the same parameters,
    features of points stay as they are, and a convolution of cells reads drawn cells at its
    offsets. Of trajectories the perceptron and the stencil read what the model does, the stencil
    along its finest graph.
    """
    base = replace(run, path=run.path / name, control=())
    if name == "random":
        return replace(base, inputs=replace(run.inputs, redrawn=run.schedule.seed))
    run_inputs = run.inputs
    if run_inputs.simulation is not None:
        options = dict(SIMULATED[name].options)
        if name == "stencil":
            options["axes"] = shapes[0].pos.shape[-1]
        inputs = replace(run_inputs, graph=run_inputs.graph[:1], ratio=())
        return replace(base, model=name, start="", options=options, inputs=inputs)
    preset = MODELS[name]
    derived_features: tuple[str, ...] = (*OF_ATOMS, "log_radius")
    normals = "none"
    if name == "forest":
        derived_features += ("above_ground", "element")
        normals = run_inputs.normals
        if normals == "none":
            normals = "pca"
    properties = tuple(
        word for word in run_inputs.features if word in shapes[0] or word in derived_features
    )
    words = (*preset.of_nodes.features, *properties)
    settings = {
        name: getattr(run_inputs, name)
        for name in ("scale", "sample", "elements", "upward", "grid", "block")
    }
    inputs = ShapeInputs(tuple(dict.fromkeys(words)), normals, **settings)
    return replace(
        base,
        model=name,
        start="",
        options={},
        inputs=inputs,
        augment=preset.augment,
        schedule=replace(run.schedule, shard=False),
        features=prepared(inputs, shapes, [0])[0].x.shape[1],
    )
