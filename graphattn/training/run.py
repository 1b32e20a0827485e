"""A run: a folder that holds everything that training was made of, and what came of it."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ..arguments import device
from ..errors import LoaderError, OptionError
from ..interop.files._guard import PathLike, read
from ..interop.files._replace import save_page
from ..shapes.seeded import seeded
from ..versions import version_of
from .checkpoint import fill, load_state, part, save_state
from .inputs import Inputs
from .loop import Schedule
from .models import build
from .tasks import TASKS, Task

CHECKPOINT, MODEL, LOG, REPORT, RESULT = (
    "checkpoint.safetensors",
    "model.safetensors",
    "log.jsonl",
    "report.html",
    "result.json",
)


@dataclass(frozen=True)
class Run:
    """What ``run.json`` says.

    Attributes:
        path: The run's own folder.
        folder: Of the shapes.
        task: What is learned.
        inputs: What the model reads of a shape.
        augment: How shapes are changed in training.
        model: Its name.
        options: Its arguments, beside those of the table of models.
        features: Width of its input.
        schedule: How it is trained.
        control: Names of the controls; each is a run in the folder of that name.
        split: Names of the files of each part.
        said: How the parts were made.
        files: What every file held, in 16 letters each.
    """

    path: Path
    folder: Path
    task: Task
    inputs: Inputs
    augment: tuple[str, ...]
    model: str
    options: dict[str, Any]
    features: int
    schedule: Schedule
    control: tuple[str, ...]
    split: dict[str, list[str]]
    said: str
    files: dict[str, str]

    def save(self) -> None:
        """Write ``run.json``; the folder is made."""
        if (self.path / "run.json").exists():
            raise OptionError(f"out: {self.path} holds a run; resume it, or name another folder")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"out must be a folder that can be made, got {self.path}: {error.strerror}") from None
        told = {name: value for name, value in vars(self).items() if name not in ("path", "task", "inputs", "schedule")}
        told |= {
            "folder": str(self.folder.resolve()),
            "task": {"name": self.task.name, **asdict(self.task)},
            "inputs": asdict(self.inputs),
            "schedule": asdict(self.schedule),
            "versions": {name: version_of(name) for name in ("graphattn", "torch", "numpy")},
        }
        save_page(self.path / "run.json", json.dumps(told, indent=1))

    @staticmethod
    def load(path: PathLike) -> "Run":
        """Read ``run.json`` of a run's folder."""
        name = Path(path) / "run.json"
        if not name.is_file():
            raise LoaderError(f"{path}: expected the folder of a run, got none with run.json. Try: graphattn train.")
        try:
            told = json.loads(bytes(read(name).data))
            told.pop("versions")
            task = told.pop("task")
            kind = TASKS[task.pop("name")]
            return Run(
                path=Path(path),
                folder=Path(told.pop("folder")),
                task=kind(**_tuples(task)),
                inputs=Inputs(**_tuples(told.pop("inputs"))),
                augment=tuple(told.pop("augment")),
                schedule=Schedule(**told.pop("schedule")),
                control=tuple(told.pop("control")),
                **told,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            fix = "the version of graphattn that wrote it"
            raise LoaderError(f"{name}: expected what graphattn train writes, got: {error!r}. Try: {fix}.") from None

    def here(self) -> "Run":
        """To be measured: on the CPU, where the device that it was trained on is not here."""
        try:
            device(self.schedule.device)
        except OptionError:
            return replace(self, schedule=replace(self.schedule, device="cpu"))
        return self

    def new_model(self) -> nn.Module:
        """With parameters drawn by the seed."""
        with seeded(self.schedule.seed):
            return build(self.model, self.options, self.features, self.task.out_dim, self.task.readout)

    def trained_model(self) -> nn.Module:
        """With the best parameters so far.

        Raises:
            LoaderError: If the first epoch has not ended.
        """
        model, path = self.new_model(), self.path / MODEL
        if path.is_file():
            tensors = load_state(path)[0]
        else:
            tensors = part(load_state(self.path / CHECKPOINT)[0], "best") if (self.path / CHECKPOINT).is_file() else {}
        if not tensors:
            raise LoaderError(f"{self.path}: expected a trained model, got none yet. Try: wait for its first epoch.")
        fill(model, tensors, path)
        return model.eval()

    def save_model(self, model: nn.Module) -> None:
        """Write the trained parameters."""
        save_state(self.path / MODEL, dict(model.state_dict()), {"model": self.model, "options": self.options})

    def history(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        path = self.path / LOG
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _tuples(told: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
