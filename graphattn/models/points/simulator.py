"""A learned simulator: a model of meshes or points that steps the fields of a trajectory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import one_of, whole
from ...errors import OptionError, ShapeError, warn
from ...graph.foreign_names import names_checked
from ...graphs import Hierarchy, HierarchyRecipe
from ..example import example, small_cloud
from .mesh_transformer import MeshTransformer
from .standard import floored, standardized

PREDICTED = ("difference", "state", "acceleration")
BOUND = 100.0  # standard deviations from the mean, at which rollouts end
_APART = 1e-3  # of a step of time that two trajectories of one model may differ by


@dataclass(frozen=True, kw_only=True)
class Window:
    """What a simulator reads of a trajectory and predicts, with the statistics of both.

    Made by :meth:`of`. Its call gives the inputs and the truth of some steps, which
    :class:`Simulator` and its loss take as they are; all of it is plain JSON.

    Args:
        fields: Channels of each field that is predicted.
        forcing: Channels of each forcing that is read, at the step and at the next.
        kinds: Number of kinds of nodes, one-hot; 0 for none.
        history: Steps that are read.
        predict: "difference" from the last step, "state", or "acceleration", the difference of
            differences, for which the states themselves are not read.
        weight: Weights of nodes in the loss: "none", "area" or "latitude", as of
            :meth:`graphattn.shapes.Trajectory.weights`.
        dt: Time between steps; 0 if only one step is known.
        mean, deviation: Of the states of each channel, then of the forcings.
        change: Root mean square of the differences of each channel.
        shift, scale: Mean and standard deviation of what is predicted.
    """

    fields: dict[str, int]
    forcing: dict[str, int]
    kinds: int
    history: int
    predict: str
    weight: str
    dt: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    change: tuple[float, ...]
    shift: tuple[float, ...]
    scale: tuple[float, ...]

    @staticmethod
    def of(
        trajectories: Sequence[Any],
        fields: Sequence[str] | None = None,
        *,
        history: int = 1,
        predict: str = "difference",
        weight: str = "none",
    ) -> "Window":
        """The window of some trajectories, those of the training part alone.

        Statistics are over all of their steps, of differences over nodes that are not fixed. A
        channel that is constant has a deviation of 1.

        Raises:
            OptionError: If a field is none of theirs, or they are shorter than history and a step.
            ShapeError: If their steps of time differ.
        """
        first = trajectories[0]
        if fields is None:
            fields = tuple(first.fields)
        for name in fields:
            one_of(name, "fields", tuple(first.fields))
        one_of(predict, "predict", PREDICTED)
        first.weights(weight)
        if predict == "acceleration":
            whole(history, "history beside an acceleration, which is of two steps,", 2)
        whole(history, "history", 1)
        kinds = [int(one.kinds.max()) + 1 for one in trajectories if one.kinds is not None]
        dt = 0.0
        for one in trajectories:
            if one.num_steps <= history:
                raise OptionError(
                    f"history must be less than the steps of every trajectory, got {history} and "
                    f"{one!r} {one.name}"
                )
            dt = _step_of_time(one, dt)
            _warn_of_jumps(one, fields)
        # of one trajectory at a time: all may not fit into memory
        everything = (
            torch.cat((_states(one, fields), _forcing(one, first.forcing)), 2)
            for one in trajectories
        )
        mean, deviation, _ = _statistics((x, torch.ones_like(x[0])) for x in everything)
        order = {"state": 0, "difference": 1, "acceleration": 2}[predict]
        (_, _, change), (shift, scale, _) = (
            _statistics(
                (_states(one, fields).diff(times, dim=0), ~_fixed(one, fields))
                for one in trajectories
            )
            for times in (1, order)
        )
        return Window(
            fields={name: first.fields[name].shape[2] for name in fields},
            forcing={name: x.shape[2] for name, x in first.forcing.items()},
            kinds=max(kinds, default=0),
            history=history,
            predict=predict,
            weight=weight,
            dt=dt,
            mean=mean,
            deviation=deviation,
            change=change,
            shift=shift,
            scale=scale,
        )

    @property
    def channels(self) -> int:
        """C, of all fields together."""
        return sum(self.fields.values())

    @property
    def names(self) -> list[str]:
        """The name of each channel."""
        names = []
        for name, width in self.fields.items():
            names += [name] if width == 1 else [f"{name}.{i}" for i in range(width)]
        return names

    @property
    def features(self) -> int:
        """Width of what the processor reads of a node."""
        states = self.history + (self.predict != "acceleration") - 1
        return (states + 2) * self.channels + self.kinds + 2 * sum(self.forcing.values())

    def states(self, trajectory: Any, steps: Any = slice(None)) -> Tensor:
        """Fields of some steps side by side (T, N, C)."""
        return _states(trajectory, self.fields, steps)

    def check(self, trajectory: Any) -> None:
        """Refuse a trajectory with other fields, forcing, kinds or steps of time."""
        where = trajectory.name or "the trajectory"
        for argument in ("fields", "forcing"):
            expected = getattr(self, argument)
            own = {name: x.shape[2] for name, x in getattr(trajectory, argument).items()}
            if any(own.get(name) != width for name, width in expected.items()):
                raise ShapeError(
                    f"{where}: {argument} must have the channels {expected} of training, got {own}"
                )
        if self.kinds and (trajectory.kinds is None or int(trajectory.kinds.max()) >= self.kinds):
            raise ShapeError(f"{where}: kinds must be below {self.kinds}, as in training")
        if trajectory.num_steps < self.history:
            raise ShapeError(f"{where}: {self.history} steps are read, got {trajectory.num_steps}")
        _step_of_time(trajectory, self.dt)

    def __call__(self, trajectory: Any, step: int, steps: int = 1) -> tuple[Tensor, Tensor]:
        """Inputs (N, F) and truth (N, 2 + K, C) of K steps after ``step``, the last that is known.

        The truth has the weight of each node and channel in the loss, 0 where it is fixed, then
        the known state, then the next ones.
        """
        states = self.states(trajectory, slice(step + 1 - self.history, step + steps + 1))
        states = states.movedim(0, 1)
        x = self.inputs(trajectory, states[:, : self.history], step, steps)
        weight = trajectory.weights(self.weight)[:, None] * ~_fixed(trajectory, self.fields)
        weight = weight / torch.tensor(self.scale, device=weight.device).square()
        return x, torch.cat((weight[:, None].float(), states[:, self.history - 1 :].float()), 1)

    def inputs(self, trajectory: Any, past: Tensor, step: int, steps: int = 1) -> Tensor:
        """Inputs (N, F) of the states ``past`` (N, history, C); after the last step it is repeated."""
        last = trajectory.num_steps - 1
        at = [min(step + number, last) for number in range(steps + 1)]
        states = self.states(trajectory, at)
        is_fixed = _fixed(trajectory, self.fields)
        parts = [past.flatten(1), is_fixed]
        if self.kinds:
            parts.append(nn.functional.one_hot(trajectory.kinds, self.kinds))
        forcing = _forcing(trajectory, self.forcing, at)
        parts.append(forcing[0])
        for number in range(1, steps + 1):
            parts += [states[number].where(is_fixed, 0.0), forcing[number]]
        return torch.cat([part.float() for part in parts], 1)

    @staticmethod
    def loss(output: Tensor, truth: Tensor) -> Tensor:
        """Weighted mean square of the error of outputs (N, K, C) in standard deviations."""
        return (truth[:, :1] * (output - truth[:, 2:]).square()).mean()

    def fields_of(self, states: Tensor) -> dict[str, Tensor]:
        """Channels (..., C) as fields by name."""
        return dict(zip(self.fields, states.split(list(self.fields.values()), -1), strict=True))


def _states(trajectory: Any, names: Iterable[str], steps: Any = slice(None)) -> Tensor:
    """Fields of some steps side by side (T, N, C)."""
    return torch.cat([trajectory.fields[name][steps] for name in names], 2)


def _forcing(trajectory: Any, names: Iterable[str], steps: Any = slice(None)) -> Tensor:
    """Forcings of some steps side by side (T, N, F), of which there may be none."""
    nothing = trajectory.pos.new_zeros(trajectory.num_steps, trajectory.num_nodes, 0)[steps]
    return torch.cat([nothing, *(trajectory.forcing[name][steps] for name in names)], 2)


def _fixed(trajectory: Any, fields: Any) -> Tensor:
    """bool (N, C)."""
    columns = [
        trajectory.fixed[name][:, None].expand(-1, trajectory.fields[name].shape[2])
        for name in fields
    ]
    return torch.cat(columns, 1)


def _step_of_time(trajectory: Any, expected: float) -> float:
    """The step of time of a trajectory; that which is expected if it has one step alone."""
    steps = trajectory.time.diff()
    if not len(steps):
        return expected
    dt = expected or float(steps.mean())
    if float((steps - dt).abs().max()) > _APART * dt:
        raise ShapeError(
            f"{trajectory.name or 'the trajectory'}: time must go in steps of {dt:g} as in all "
            f"that is trained on, got {float(steps.min()):g} to {float(steps.max()):g}; resample it"
        )
    return dt


def _warn_of_jumps(trajectory: Any, fields: Sequence[str]) -> None:
    """Warn of particles that cross the border of a cell to its other side."""
    if "pos" not in fields:
        return
    pos = trajectory.fields["pos"].flatten(0, 1)
    extent = pos.amax(0) - pos.amin(0)
    moves = trajectory.fields["pos"].diff(dim=0).abs().flatten(0, 1)
    jumps = (moves > 0.5 * extent).any(0) & (moves.median(0).values < 0.05 * extent)
    if bool(jumps.any()):
        axis = int(jumps.nonzero()[0])
        warn(
            f"{trajectory.name or 'the trajectory'}: pos jumps by up to "
            f"{float(moves[:, axis].max()):.3g} in a step along axis {axis}; if a cell repeats "
            "there, pass trajectory.unwrapped(cell)"
        )


def _statistics(parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[tuple[float, ...], ...]:
    """Mean, standard deviation and root mean square of each channel of values (T, N, C).

    Each with a mask (N, C) of the nodes that count.
    """
    rows = []
    for values, mask in parts:
        columns = []
        for column, counted in zip(values.unbind(2), mask.bool().unbind(1), strict=True):
            x = column.double()
            if not bool(counted.all()):
                x = x[:, counted]
            mean = x.sum() / max(1, x.numel())
            columns.append((x.numel(), float(mean), float((x - mean).square().sum())))
        rows.append(columns)
    counts, means, spreads = torch.tensor(rows, dtype=torch.float64).unbind(2)
    total = counts.sum(0).clamp(min=1)  # 0 where all nodes are fixed
    mean = (counts * means).sum(0) / total
    variance = (spreads + counts * (means - mean).square()).sum(0) / total
    size = (variance + mean.square()).sqrt()
    deviation = floored(variance.sqrt(), mean)
    return tuple(mean.tolist()), tuple(deviation.tolist()), tuple(size.tolist())


def _small(new: Any, rate: float) -> nn.Module:
    ones = (1.0, 1.0, 1.0)
    widths: Any = {"fields": {"u": 2}, "forcing": {"sun": 1}, "kinds": 0, "history": 2}
    sizes: Any = {
        "mean": ones,
        "deviation": ones,
        "change": ones[1:],
        "shift": ones[1:],
        "scale": ones[1:],
    }
    window = Window(**widths, **sizes, predict="difference", weight="none", dt=1.0)
    make = partial(MeshTransformer, edges=("distance",), spectrum=0, dropout=rate)
    return new(lambda features, out_dim: make(features, out_dim, 8, 2, 1), window)


@example(_small, lambda batch: (torch.randn(batch, 13, 10),), lambda: (small_cloud(),))
class Simulator(nn.Module):
    """The next states of fields, step by step: a processor and what it reads and adds.

    What it reads of a node: its state and the differences of those before, in standard deviations
    of training; which fields are fixed there, and what they change by; its kind; the forcing now
    and at the next step. Edge features and inputs of the processor's own embedding are standardised
    by :func:`measure`. Fixed nodes get what is given at every step. A field called ``pos`` moves
    the finest points, where edges are measured at every step, along the graphs that are passed; of
    several steps ``levels`` makes those after the first anew, unless they are of cells.

    Args:
        processor: ``processor(features, out_dim)`` makes a model that is called with features and a
            hierarchy: ``partial(MeshTransformer, axes=2, edges=("offset", "distance"))``.
        window: What is read and predicted.
        levels: Recipe of the hierarchy, ``graphs.hierarchy(..., graph=mesh_cells(...))``, by which
            :func:`graphattn.training.rollout` makes those of trajectories.
        noise: Deviation of the noise on states that are read in training, in that of one step's
            difference, on nodes that are not fixed. The truth stays, so that what is learned
            corrects the noise; of accelerations that of the differences, as states are not read.
        pushforward: True lets no gradient through from a step to those before.

    Source: Sanchez-Gonzalez et al. 2020, Pfaff et al. 2021 (MeshGraphNets); Brandstetter et al. 2022
    for ``pushforward``. *What differs:* the processor is any model; statistics are those of all
    training steps, not gathered in the first ones.

    Example:
        >>> from functools import partial
        >>> import graphattn as ga
        >>> rod = ga.shapes.Trajectory(
        ...     torch.arange(5.0)[:, None], {"u": torch.rand(9, 5)}, cells=[("line", [[0, 1], [1, 2], [2, 3], [3, 4]])]
        ... )
        >>> window = Window.of([rod], history=2)
        >>> model = Simulator(partial(MeshTransformer, axes=1, edges=("offset",), spectrum=0), window)
        >>> x, truth = window(rod, step=3, steps=4)
        >>> model(x, ga.graphs.hierarchy(rod.pos, graph=rod.graph())).shape
        torch.Size([5, 4, 1])
    """

    mean: Tensor
    deviation: Tensor
    change: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        processor: Callable[[int, int], nn.Module],
        window: Window,
        *,
        levels: HierarchyRecipe | None = None,
        noise: float = 0.0,
        pushforward: bool = False,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.window = window
        self.levels = levels
        self.noise = noise
        self.pushforward = pushforward
        self.processor = standardized(processor(window.features, window.channels))
        for name in ("mean", "deviation", "change", "shift", "scale"):
            self.register_buffer(name, torch.tensor(getattr(window, name)))

    @names_checked
    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """States (..., N, K, C) of the K steps of which ``x`` (..., N, F) has what is given."""
        window = self.window
        C = window.channels
        F = sum(window.forcing.values())
        widths = [window.history * C, C, window.kinds, F]
        rest = x.shape[-1] - sum(widths)
        if rest < C + F or rest % (C + F):
            raise ShapeError(
                f"x must be inputs of the model's window, {sum(widths)} + K * {C + F} wide, got "
                f"{x.shape[-1]}"
            )
        past, fixed, kinds, now, ahead = x.split([*widths, rest], -1)
        past = past.unflatten(-1, (window.history, C))
        is_free = 1 - fixed
        unread = torch.zeros_like(is_free)
        if self.training and self.noise:
            noise = self._noise(past) * is_free.unsqueeze(-2)
            past = past + noise
            if window.predict == "acceleration":  # no state is read that could show it
                unread = noise[..., -1, :]
        states: list[Tensor] = []
        for part in ahead.split(C + F, -1):
            given, forcing = part.split([C, F], -1)
            read = torch.cat((fixed, kinds, self._forcing(now), self._forcing(forcing)), -1)
            if "pos" in window.fields:
                shape = self._moved(shape, window.fields_of(past[..., -1, :])["pos"], bool(states))
            state = self._step(past, given, is_free, read, shape)
            if not self.training:  # so that errors are finite, however a rollout ends
                spread = 2 * BOUND * self.deviation[:C]
                state = state.clamp(self.mean[:C] - spread, self.mean[:C] + spread)
            states.append(state - unread)
            if self.pushforward:
                state = state.detach()
            past = torch.cat((past[..., 1:, :], state.unsqueeze(-2)), -2)
            now = forcing
        return torch.stack(states, -2)

    def is_bounded(self, state: Tensor) -> Tensor:
        """True if states are within 100 standard deviations of training of its mean."""
        C = self.window.channels
        return ((state - self.mean[:C]).abs() < BOUND * self.deviation[:C]).all()

    def _noise(self, past: Tensor) -> Tensor:
        """Noise (..., N, history, C) on what is read: a walk, as that of a rollout is.

        Of accelerations the differences walk, and the states follow.
        """
        walk = torch.randn_like(past)
        if self.window.predict == "acceleration":
            walk[..., 0, :] = 0
            walk = walk.cumsum(-2) / (self.window.history - 1) ** 0.5
            return walk.cumsum(-2) * (self.noise * self.change)
        # so that differences of states are not noisier than the last state
        return walk.cumsum(-2) * (self.noise / self.window.history**0.5 * self.change)

    def _moved(self, shape: Hierarchy, pos: Tensor, is_later: bool) -> Hierarchy:
        """The hierarchy at ``pos``; of a later step, where it is of positions, made anew."""
        if is_later and self.levels is not None and bool(pos.isfinite().all()):
            return self.levels.moved(shape, pos)
        return shape.at(pos)

    def _step(
        self, past: Tensor, given: Tensor, is_free: Tensor, read: Tensor, shape: Hierarchy
    ) -> Tensor:
        """The state after those of ``past`` (..., N, history, C)."""
        x = self._features(past, given, is_free, read)
        predicted = self.processor(x, shape).to(past.dtype) * self.scale + self.shift
        last = past[..., -1, :]
        if self.window.predict == "difference":
            predicted = last + predicted
        elif self.window.predict == "acceleration":
            predicted = 2 * last - past[..., -2, :] + predicted
        return predicted * is_free + given

    def _features(self, past: Tensor, given: Tensor, is_free: Tensor, read: Tensor) -> Tensor:
        """What the processor reads of a node."""
        C = self.window.channels
        last = past[..., -1, :]
        size = self.change.where(self.change > 0, 1.0)
        parts = [((past.diff(dim=-2)) / size).flatten(-2)]
        if self.window.predict != "acceleration":
            parts.append((last - self.mean[:C]) / self.deviation[:C])
        parts += [(given - last) * (1 - is_free) / size, read]
        return torch.cat(parts, -1)

    def _forcing(self, forcing: Tensor) -> Tensor:
        C = self.window.channels
        return (forcing - self.mean[C:]) / self.deviation[C:]
