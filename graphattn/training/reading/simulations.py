"""Trajectories of a folder as a model reads them: windows of steps to train on, whole ones to judge."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import torch
from torch import Tensor

from ...arguments import number, whole
from ...errors import OptionError
from ...graphs import Hierarchy
from ...io.reading import PathLike, fault
from ...models import Window
from ...pyg import Data
from ...shapes import Trajectory
from ...shapes.layouts import Item
from ...shapes.series import each_trajectory
from ...shapes.splits import Splits, drawn
from ..running.checkpoint import safetensors

MOST_BYTES = 1 << 36  # of a file, as a user names it
_ROOM = 1 << 30  # bytes of trajectories that stay in memory


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Settings of a run that simulates.

    Args:
        window: What is read and predicted.
        steps: Steps of a rollout by which it is judged; 0 for all that a file has.
        unroll: Steps of a window in training.
        noise: As of :class:`graphattn.models.Simulator`.
        pushforward: Likewise.
    """

    window: Window
    steps: int = 0
    unroll: int = 1
    noise: float = 0.0
    pushforward: bool = False

    def __post_init__(self) -> None:
        whole(self.steps, "steps", 0)
        whole(self.unroll, "unroll", 1)
        number(self.noise, "noise", "a number >= 0", lambda x: 0 <= x < float("inf"))

    def lead(self, trajectory: Trajectory) -> int:
        """Steps of a rollout of a trajectory."""
        known = trajectory.num_steps - self.window.history
        return min(self.steps or known, known)


class TrajectoryFolder:
    """The trajectories of a folder, in the place of a folder of shapes.

    Each file is read once. What is more than 1 GiB lies in a file of the temporary folder, which
    the system maps into memory as it is used.

    Args:
        root: The folder.
        forcing: Fields of the files that are known ahead.
    """

    task = "simulate"
    classes = ()
    labels: Sequence[Tensor] = ()
    notes: Sequence[str] = ()
    left: Sequence[str] = ()

    def __init__(self, root: PathLike, forcing: Iterable[str] = ()) -> None:
        self.root = Path(root)
        self.trajectories: list[Trajectory] = []
        room = _ROOM
        on_disk = 0
        for one in each_trajectory(root, MOST_BYTES):
            trajectory = known_ahead(one, forcing)
            size = sum(x.untyped_storage().nbytes() for x in trajectory.tensors().values())
            if size > room:
                trajectory = _on_disk(trajectory, size)
                on_disk += size
            else:
                room -= size
            self.trajectories.append(trajectory)
        if on_disk:
            self.notes = [f"{on_disk >> 20:,} MB lie in {gettempdir()} (TMPDIR), not in memory"]
        self.sizes = torch.tensor([one.num_nodes for one in self.trajectories])
        self.items = [Item(self.root / one.name) for one in self.trajectories]

    def __len__(self) -> int:
        return len(self.trajectories)

    def __getitem__(self, index: int) -> Trajectory:
        return self.trajectories[index]

    def name(self, index: int) -> str:
        """The file."""
        return self.trajectories[index].name

    def split(self, *, val: float, test: float, seed: int) -> Splits:
        """Whole trajectories of each part."""
        return drawn(self, val, test, seed)

    def classes_here(self) -> tuple[str, ...]:
        """None."""
        return ()

    def __repr__(self) -> str:
        return f"{len(self)} trajectories, the first: {self[0]!r}"


def _on_disk(trajectory: Trajectory, size: int) -> Trajectory:
    """A trajectory whose numbers are maps of a file, which the system reads as they are used.

    The file has no name any more where the system allows it, and goes with the tensors.
    """
    library = safetensors()
    tensors = {f"fields.{name}": x.contiguous() for name, x in trajectory.fields.items()}
    for name, x in trajectory.forcing.items():
        if name not in trajectory.constant:
            tensors[f"forcing.{name}"] = x.contiguous()
    if trajectory.pos.dim() == 3:
        tensors["pos"] = trajectory.pos.contiguous()
    try:
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "trajectory.safetensors"
            library.save_file(tensors, path)
            maps = library.load_file(path)
    except Exception as error:  # of safetensors, whose own has no class in its public names
        fix = "TMPDIR=FOLDER of another disk"
        raise fault(gettempdir(), f"room for {size:,} bytes", error, fix) from None
    return replace(
        trajectory,
        pos=maps.get("pos", trajectory.pos),
        fields={name: maps[f"fields.{name}"] for name in trajectory.fields},
        forcing={name: maps.get(f"forcing.{name}", x) for name, x in trajectory.forcing.items()},
        dt=None,
    )


def known_ahead(trajectory: Trajectory, names: Iterable[str]) -> Trajectory:
    """A trajectory whose fields of these names are forcing, if they are not so already."""
    return trajectory.with_forcing([name for name in names if name not in trajectory.forcing])


class Windows:
    """Windows of some trajectories, each a shape that is ready, in the place of their folder.

    Args:
        folder: Trajectories by number, each with a ``name``.
        numbers: Which of them.
        simulation: Settings.
        levels: A function of a trajectory and the positions of its nodes to their hierarchy.
        is_whole: True for one window of each, from its first step as far as the shortest goes; else
            all windows of ``unroll`` steps.
    """

    def __init__(
        self,
        folder: Any,
        numbers: list[int],
        simulation: Simulation,
        levels: Callable[[Trajectory, Tensor], Hierarchy],
        is_whole: bool,
    ) -> None:
        self.folder = folder
        self.window = simulation.window
        self.levels = levels
        self.steps = simulation.unroll
        trajectories = [folder[number] for number in numbers]
        for one in trajectories:
            self.window.check(one)
        moves = any(one.pos.dim() == 3 for one in trajectories)  # and so does the graph
        if moves and self.steps > 1 and "pos" not in self.window.fields:
            raise OptionError(
                f"unroll must be 1 where nodes move and pos is not predicted, got {self.steps}"
            )
        if is_whole and not moves:
            self.steps = min(map(simulation.lead, trajectories), default=1)
        self.rows: list[tuple[int, int]] = []
        for place, one in zip(numbers, trajectories, strict=True):
            first = self.window.history - 1
            last = one.num_steps - self.steps
            if is_whole and not moves:
                last = min(last, first + 1)
            self.rows += [(place, step) for step in range(first, last)]
        self.sizes = torch.tensor([folder[place].num_nodes for place, _ in self.rows])
        self._levels: dict[int, Hierarchy] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Data:
        number, step = self.rows[index]
        trajectory = self.folder[number]
        x, y = self.window(trajectory, step, self.steps)
        if trajectory.pos.dim() == 3:
            levels = self.levels(trajectory, trajectory.pos[step])
        else:
            if number not in self._levels:
                self._levels[number] = self.levels(trajectory, trajectory.pos)
            levels = self._levels[number]
        return Data(x=x, y=y, levels=levels, num_nodes=len(x), widths=(x.shape[1],))

    @property
    def labels(self) -> list[Tensor]:
        """The truth of each window."""
        return [self.window(self.folder[number], step, self.steps)[1] for number, step in self.rows]

    def name(self, index: int) -> str:
        """The file and the step."""
        number, step = self.rows[index]
        return f"{self.folder.name(number)}, step {step}"
