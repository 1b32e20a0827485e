"""A run that learns to simulate: from its options, to rollouts by which it is judged."""

from dataclasses import fields, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ..arguments import one_of
from ..errors import OptionError, ShapeError, warn
from ..graphs.points.sphere import degrees
from ..io.reading import PathLike
from ..models import Simulator, Window
from ..shapes import Trajectory
from .chosen import schedule_of
from .controls import controls_named
from .evaluation import Evaluation
from .models.named import SIMULATED
from .options import MACHINE, RUN, SIMULATION, SPLIT, TRAINING, Options
from .reach import isolated_nodes, reach_of
from .reading.data import Prepared, digests
from .reading.default_inputs import recipes_of
from .reading.inputs import ShapeInputs
from .reading.levels import on_icosphere
from .reading.scenes import prepared
from .reading.simulations import Simulation, TrajectoryFolder
from .rollout import predicted_states
from .run import Run
from .tasks import Simulate

# of a step's difference: the best of 0 to 1 on advection and diffusion; of 0 to 0.3 on grains
_AUTO = {"difference": 0.3, "state": 0.3, "acceleration": 0.03}
_STAYS = 0.01  # of the integral of a field's distance from its mean
_GROUPS = (RUN, TRAINING, SPLIT, SIMULATION, MACHINE)
_OF_SHAPES = ("augment", "sample", "shard")  # of these groups


def resolve_simulation(options: Options, folder: TrajectoryFolder, out: PathLike) -> Run:
    """The run of a training on trajectories; nothing is written.

    Raises:
        OptionError: If an option does not fit, or is for shapes.
    """
    for item in fields(options):
        is_read = item.name not in _OF_SHAPES and item.metadata["group"] in (None, *_GROUPS)
        is_read = is_read or item.name in ("task", "model", "graph", "model_options")
        if not is_read and getattr(options, item.name) != item.default:
            raise OptionError(f"{item.name} is for shapes, got trajectories to simulate")
    parts = folder.split(val=options.val, test=options.test, seed=options.seed)
    split = {name: list(part.indices) for name, part in parts.items()}
    first = folder[0]
    window = Window.of(
        [folder[number] for number in split["train"]],
        options.fields,
        history=options.history,
        predict=options.predict,
        weight=options.weight,
    )
    simulation = Simulation(
        window=window,
        steps=options.steps,
        unroll=options.unroll,
        noise=_noise(options),
        pushforward=options.pushforward,
    )
    model = one_of(options.model or "mesh", "model", tuple(SIMULATED))
    preset = SIMULATED[model]
    graphs = ("mesh_cells(...)", *preset.coarser)
    if options.graph is not None:
        graphs = recipes_of(options.graph, model, graphs)
    elif not first.cells:
        raise OptionError(
            "graph must be a recipe where trajectories have no cells, such as 'radius(..., 0.1)', "
            "got none"
        )
    ratio = (0.25,) * len(preset.coarser)
    is_globe = degrees(first.positions(0)) is not None
    if len(graphs) == 2 and on_icosphere(graphs[1]):
        ratio = ()
        if not is_globe:
            raise OptionError(
                f"graph={options.graph!r} is for nodes on the unit sphere around 0, such as "
                f"graphs.on_sphere(lat, lon), got {first!r}"
            )
    inputs = ShapeInputs(
        tuple(window.fields),
        graph=graphs,
        ratio=ratio,
        down="knn(..., 12, clamp=True)",
        simulation=simulation,
    )
    model_options = dict(preset.options)
    if "edges" in model_options or model == "stencil":
        model_options["axes"] = first.pos.shape[-1]
    if "edges" in model_options and is_globe:
        model_options["edges"] = ["compass"]
    data = prepared(inputs, folder, split["train"])
    if options.points is None:
        options = replace(options, points=4 * int(data.sizes.max()))
    run = Run(
        path=Path(out),
        folder=folder.root,
        task=Simulate("node", tuple(window.names)),
        inputs=inputs,
        augment=(),
        model=model,
        options=model_options | dict(options.model_options or {}),
        features=window.features,
        schedule=schedule_of(options, data.sizes, len(data)),
        control=controls_named(options.control, model, simulates=True),
        split={name: [folder.name(n) for n in numbers] for name, numbers in split.items()},
        said=str(parts),
        files=digests(folder),
        start="" if options.start is None else str(Path(options.start).resolve()),
    )
    run.first_model()  # refuses wrong arguments of the model
    return run


def _noise(options: Options) -> float:
    if options.noise == "auto":
        return _AUTO[options.predict]
    try:
        return float(options.noise)
    except ValueError:
        raise OptionError(f"noise must be auto or a number, got {options.noise!r}") from None


def simulated(
    model: nn.Module, run: Run, folder: TrajectoryFolder, numbers: list[int], part: str
) -> Evaluation:
    """The scores of rollouts of some trajectories, from their first steps on."""
    assert isinstance(model, Simulator)
    assert run.inputs.simulation is not None
    window = model.window
    answers: list[Tensor] = []
    labels: list[Tensor] = []
    notes: list[str] = []
    alone: list[str] = []
    reach = None
    for number in numbers:
        trajectory = folder[number]
        window.check(trajectory)
        steps = run.inputs.simulation.lead(trajectory)
        levels = run.inputs.levels_of(trajectory, trajectory.positions(window.history - 1))
        alone.append(isolated_nodes(trajectory, levels))
        if reach is None:
            reach = reach_of(model, trajectory, levels)
        states, reason = predicted_states(model, trajectory, steps, run.inputs.levels_of, levels)
        if reason:
            notes.append(f"{trajectory.name} {reason}")
            warn(notes[-1])
        _, truth = window(trajectory, window.history - 1, steps)
        known = truth[:, 1]
        states = torch.cat((known[None], states))
        # the last state stays
        states = states[torch.arange(1, steps + 1).clamp(max=len(states) - 1)]
        answers.append(states.movedim(0, 1))
        labels.append(truth)
    alone = list(filter(None, alone))
    if alone:
        more = f"; so it is in {len(alone) - 1:,} more files" * (len(alone) > 1)
        notes.append(f"{alone[0]}{more}")
    notes += _drift(window, [folder[number] for number in numbers], answers, labels)
    least = min(answer.shape[1] for answer in answers)
    scores = run.task.scores(
        torch.cat([answer[:, :least] for answer in answers]),
        torch.cat([truth[:, : 2 + least] for truth in labels]),
    )
    names = [folder.name(number) for number in numbers]
    data = Prepared(folder, numbers, run.inputs)
    return Evaluation(
        run.task, part, scores, names, data, answers, labels, notes=notes, reach=reach
    )


def _drift(
    window: Window, trajectories: list[Trajectory], answers: list[Tensor], labels: list[Tensor]
) -> list[str]:
    """Notes on channels whose integral stays in the truth, and what it changes by in rollouts."""
    weight = window.weight
    if weight == "none":
        weight = "area"
    changes = []
    for one, answer, truth in zip(trajectories, answers, labels, strict=True):
        if weight == "area" and not one.cells:
            return []
        try:
            weights = one.weights(weight)
        except ShapeError:  # of cells without areas
            return []
        first = truth[:, 1].double()
        mean = weights @ first / weights.sum()
        size = (weights @ (first - mean).abs()).clamp(min=1e-30)
        last = torch.stack((truth[:, -1], answer[:, -1])).double()
        changes.append((weights @ (last - first)).abs() / size)
    of_truth, of_answers = torch.stack(changes).amax(0)
    return [
        f"the integral of {name} stays in the truth, and changes in the rollouts by up to "
        f"{float(change):.1%} of that of its distance from the mean"
        for name, exact, change in zip(window.names, of_truth, of_answers, strict=True)
        if exact < _STAYS
    ]
