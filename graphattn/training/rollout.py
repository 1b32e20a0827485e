"""Rollouts: a simulator steps on from its own states, with all that is given put back."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from ..arguments import whole
from ..errors import OptionError, warn
from ..graphs import Hierarchy, HierarchyRecipe
from ..io.reading import PathLike
from ..models import Simulator
from ..shapes import Trajectory
from .reading.data import OneShape, Prepared
from .reading.ranges import load_ranges, unlike, warn_of
from .reading.simulations import known_ahead
from .run import Run


def rollout(
    model: Simulator | PathLike,
    trajectory: Trajectory,
    steps: int | None = None,
    *,
    levels: HierarchyRecipe | Hierarchy | None = None,
) -> Trajectory:
    """The states that a simulator predicts, after the first ``history`` steps of a trajectory.

    Fixed nodes and forcing are put back at every step; after the last one of the trajectory fixed
    nodes keep their state. Where nodes move, their graph is made at every step, of the positions
    that are predicted if a field is called ``pos``, else of those of the trajectory.

    Args:
        model: A trained simulator, or the folder of a run.
        trajectory: With the fields, forcing, kinds and step of time of training.
        steps: Number of steps; by default all that the trajectory has after the first.
        levels: The hierarchy, or its recipe; by default the model's recipe.

    Returns:
        The first steps and the predicted ones. They end early, with a warning that names the step,
        where a state is NaN or 100 standard deviations of training from its mean.
    Raises:
        OptionError: If forcing, or places that are not predicted, are not known for all steps.
        ShapeError: If the trajectory does not fit the model.
    """
    run = None
    if not isinstance(model, Simulator):
        run = Run.load(model).here()
        if run.inputs.simulation is None:
            raise OptionError(f"model must be a run that simulates, got one to {run.task.name}")
        model = cast(Simulator, run.trained_model().to(run.schedule.device))
    window = model.window
    trajectory = known_ahead(trajectory, window.forcing)
    window.check(trajectory)
    if run is not None:
        name = trajectory.name or "the trajectory"
        data = Prepared(OneShape(trajectory, name), [0], run.inputs)
        difference = unlike(load_ranges(run.path), data, 0)
        warn_of({name: difference})
    known = trajectory.num_steps - window.history
    if steps is None:
        steps = known
    whole(steps, "steps", 1)
    varying = [name for name in window.forcing if name not in trajectory.constant]
    if trajectory.pos.dim() == 3 and "pos" not in window.fields:
        varying.append("pos")
    if varying and steps > known:
        names = ", ".join(varying)
        raise OptionError(
            f"steps must be at most {known}, where what is given ({names}) is known, got {steps}"
        )
    recipe: Any = levels or model.levels
    if recipe is None:
        raise OptionError("levels must be the recipe of the model's graphs, got none")

    def levels_of(one: Trajectory, pos: Tensor) -> Hierarchy:
        if isinstance(recipe, Hierarchy):
            return recipe
        return recipe(pos.float(), faces=one.cells or None)

    predicted, reason = predicted_states(model, trajectory, steps, levels_of)
    if reason:
        warn(f"{trajectory.name or 'the rollout'} {reason}")
    states = torch.cat((window.states(trajectory)[: window.history].float(), predicted))
    time = trajectory.time[: len(states)]
    if len(states) > len(time):
        ahead = torch.arange(1, len(states) - len(time) + 1) * (window.dt or 1.0)
        time = torch.cat((time, time[-1] + ahead))
    fields = window.fields_of(states)
    pos = trajectory.pos
    if pos.dim() == 3:
        pos = fields.get("pos", pos[: len(states)])
    return replace(
        trajectory,
        pos=pos,
        fields=fields,
        fixed={name: trajectory.fixed[name] for name in fields},
        forcing={
            name: x[: len(states)]
            for name, x in trajectory.forcing.items()
            if name in trajectory.constant or len(x) >= len(states)
        },
        dt=None,
        time=time,
    )


@torch.no_grad()
def predicted_states(
    model: Simulator,
    trajectory: Trajectory,
    steps: int,
    levels: Callable[[Trajectory, Tensor], Hierarchy],
    first: Hierarchy | None = None,
) -> tuple[Tensor, str]:
    """Predicted states (K, N, C) on the CPU, and the reason why they are fewer than ``steps``.

    ``first`` is the hierarchy of nodes that stay, if it is there.
    """
    model.eval()
    window = model.window
    device = model.mean.device
    moves = trajectory.pos.dim() == 3
    states = list(window.states(trajectory)[: window.history].float())
    shape = first
    if first is not None:
        shape = first.to(device)
    reason = ""
    for step in range(window.history - 1, window.history - 1 + steps):
        if shape is None or moves:
            at = min(step, trajectory.num_steps - 1)
            pos = trajectory.positions(at)
            if moves and "pos" in window.fields:
                pos = window.fields_of(states[-1])["pos"]
            shape = levels(trajectory, pos).to(device)
        past = torch.stack(states[-window.history :], 1)
        x = window.inputs(trajectory, past, step).to(device)
        state = model(x, shape)[:, 0]
        if not bool(model.is_bounded(state)):
            reason = (
                f"ends after {step + 1 - window.history} of {steps} steps: step {step + 1} is NaN "
                "or 100 standard deviations from the mean of training"
            )
            break
        states.append(state.cpu())
    return torch.stack(states)[window.history :], reason
