"""A run: a folder with the settings of a training and its results."""

import hashlib
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..arguments import device, one_of, whole
from ..errors import GraphAttnError, LabelError, LoaderError, OptionError
from ..io.locks import locked
from ..io.reading import PathLike, fault, read
from ..io.schema import parsed, record, written
from ..io.writing import remove_unfinished, save_page
from ..shapes import ShapeFolder
from ..shapes.depths import Depth
from ..shapes.seeded import seeded
from ..versions import version_of
from .models.best import SHARES, Best
from .models.named import CHOOSING, MODELS, SIMULATED, build, simulator
from .reading.data import OTHERS, RIGID
from .reading.inputs import ShapeInputs, check_sample
from .reading.simulations import TrajectoryFolder
from .running.checkpoint import fill, load_state, part, read_tensors, save_state
from .running.loop import Schedule
from .tasks import TASKS, Task

CHECKPOINT, MODEL, LOG, REPORT, RESULT = (
    "checkpoint.safetensors",
    "model.safetensors",
    "log.jsonl",
    "report.html",
    "result.json",
)
#: Files that are there once something of a run is trained.
STARTED = (CHECKPOINT, MODEL, RESULT)
PARTS = ("train", "val", "test")
#: Controls by name, in words.
CONTROL_WORDS = {
    "perceptron": "a perceptron without edges",
    "random": "degree-matched random graphs",
    "forest": "a random forest",
    "stencil": "a fitted linear stencil",
}
#: Folders of the runs on folds of few whole shapes, which choose what answers.
FOLDS = tuple(f"fold{number}" for number in range(1, 5))
#: Models that are fitted at once, without epochs.
AT_ONCE = ("forest", "stencil")


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """The keys of ``run.json`` that a run has as they are."""

    folder: Path
    inputs: ShapeInputs
    augment: tuple[str, ...]
    model: str
    options: dict[str, Any]
    features: int
    schedule: Schedule
    control: tuple[str, ...]
    split: dict[str, list[str]]
    said: str
    files: dict[str, str]
    label: str = ""
    ignore: tuple[int, ...] = ()
    depths: dict[str, Depth] = field(default_factory=dict)
    start: str = ""


@dataclass(frozen=True, kw_only=True)
class _Record(_Stored):
    """All keys of ``run.json``."""

    task: dict[str, Any]
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Run(_Stored):
    """The contents of ``run.json``.

    Attributes:
        path: The run's own folder.
        folder: Folder of the shapes.
        task: The learned task.
        inputs: Inputs of the model.
        augment: Changes of shapes in training.
        model: Name of the model.
        options: Its arguments, beside those of the table of models.
        features: Width of its input.
        schedule: Settings of the training loop.
        control: Names of the controls; each is a run in the folder of that name.
        split: Names of the files of each part.
        said: The split in words.
        files: Digest of each file, in 16 letters.
        label: The property that is the label, "" for the usual one.
        ignore: Values of it that are no label.
        depths: Bits of properties of LAS, to which other files are scaled.
        start: The run or the file whose parameters it starts from; "" for none.
    """

    path: Path
    task: Task

    def __post_init__(self) -> None:
        for value in self.ignore:
            whole(value, "ignore", 0)
        for word in self.augment:
            one_of(word, "augment", (*RIGID, *OTHERS))
        one_of(self.model, "model", (*MODELS, *SIMULATED))
        whole(self.features, "features", 1, below=1 << 20)
        check_sample(self.inputs.sample, self.task.readout)
        for name in self.control:
            one_of(name, "control", tuple(CONTROL_WORDS))
        names = [name for part in self.split.values() for name in part]
        has_parts = set(self.split) == set(PARTS) and self.split["train"]
        if not has_parts or len(set(names)) < len(names):
            raise OptionError(f"split must be different files to {', '.join(PARTS)}, some to train")
        unknown = [name for name in names if name not in self.files]
        if unknown:
            raise OptionError(f"split must name files of the run, got {unknown[0][:80]!r}")

    def read_folder(self, folder: PathLike) -> Any:
        """A folder whose labels are read as those of the run.

        Raises:
            LabelError: If a file has none.
        """
        if self.inputs.simulation is not None:
            return TrajectoryFolder(folder, self.inputs.simulation.window.forcing)
        try:
            return ShapeFolder(
                folder,
                task=self.task.name,
                classes=self.task.classes or None,
                label=self.label or None,
                ignore=self.ignore,
                depths=self.depths,
            )
        except LabelError as error:
            has = "a property label, labels.csv, or a folder for each class"
            if self.label:
                has = f"the property {self.label} in each file"
            fix = f"{has}, as in training; graphattn predict needs no labels"
            raise LabelError(f"{error.found}. Try: {fix}.", error.found) from None

    @property
    def measured_part(self) -> str:
        """The part that scores are measured on: "test", or else the last that has shapes."""
        return next(name for name in reversed(PARTS) if self.split[name])

    @property
    def values(self) -> list[int]:
        """The label of each class in the files."""
        numbers = range(len(self.task.classes) + len(self.ignore))
        return [value for value in numbers if value not in self.ignore][: len(self.task.classes)]

    @property
    def key(self) -> str:
        """A digest of all that the tensors of this run's states depend on."""
        schedule = self.schedule
        settings = (
            asdict(self.task),
            self._inputs_record(),
            self.augment,
            self.model,
            self.options,
            schedule.seed,
            schedule.points,
        )
        return hashlib.blake2b(
            written((settings, self.split, self.files), sort=True).encode(), digest_size=8
        ).hexdigest()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the run's folder, which is made, against other processes."""
        make_folder(self.path)
        with locked(
            self.path, f"{self.path} is trained by another process; wait for its end"
        ) as has_locks:
            if has_locks:
                names = (*CONTROL_WORDS, *FOLDS)
                for folder in (self.path, *(self.path / name for name in names)):
                    remove_unfinished(folder)
            yield

    def save(self) -> None:
        """Write ``run.json``; the folder is made."""
        make_folder(self.path)
        self.write()

    def write(self) -> None:
        """Write ``run.json``."""
        save_page(self.path / "run.json", written(self.record(), indent=1))

    def record(self) -> dict[str, Any]:
        """The contents of ``run.json``, as JSON has them."""
        fields = {
            name: value
            for name, value in vars(self).items()
            if name not in ("path", "task", "inputs", "schedule")
        }
        return fields | {
            "folder": str(self.folder.resolve()),
            "task": {"name": self.task.name, **asdict(self.task)},
            "inputs": self._inputs_record(),
            "schedule": asdict(self.schedule),
            "depths": {name: asdict(depth) for name, depth in self.depths.items()},
            "versions": {name: version_of(name) for name in ("graphattn", "torch", "numpy")},
        }

    def _inputs_record(self) -> dict[str, Any]:
        """The inputs as JSON has them, without ``simulation`` where shapes are no trajectories."""
        inputs = asdict(self.inputs)
        if inputs["simulation"] is None:
            del inputs["simulation"]
        return inputs

    def history(self) -> list[dict[str, Any]]:
        """The lines of the log, an epoch each; none before the first has ended."""
        if not (self.path / LOG).is_file():
            return []
        return [parsed(line) for line in (self.path / LOG).read_bytes().splitlines()]

    @property
    def unfinished(self) -> str:
        """Epochs of a run that has not ended, such as "3 of 10 epochs"; "" of one that has.

        A network beside a forest has not ended before one of them is chosen.
        """
        if self.model in AT_ONCE:
            return ""
        history = self.history()
        is_chosen = self.model not in CHOOSING or (self.path / MODEL).is_file()
        if self.schedule.ended(history) and is_chosen:
            return ""
        return f"{len(history)} of {self.schedule.epochs} epochs"

    def unfinished_control(self, name: str) -> str:
        """Epochs of a control that has not ended, such as "3 of 10 epochs"; "" of one that has."""
        control = replace(self, path=self.path / name, control=())
        if name not in AT_ONCE and control.unfinished:
            return control.unfinished
        if (control.path / MODEL).is_file():
            return ""
        return "no model"

    def note_of_unfinished(self) -> str:
        """A note for readers of the results of a run that has not ended; "" of one that has."""
        words = self.unfinished
        if not words:
            return ""
        return (
            f"unfinished: {words} are trained; go on with: "
            f"graphattn train --resume {shlex.quote(str(self.path))}"
        )

    def remove_results(self) -> None:
        """Remove what an earlier end has written, before training goes on."""
        for name in (MODEL, RESULT, REPORT):
            (self.path / name).unlink(missing_ok=True)

    @staticmethod
    def load(path: PathLike) -> "Run":
        """Read ``run.json`` of a run's folder."""
        name = Path(path) / "run.json"
        if not name.is_file():
            raise fault(path, "the folder of a run", "none with run.json", "graphattn train")
        try:
            values = parsed(bytes(read(name).data))
            if isinstance(values, dict) and isinstance(values.get("inputs"), dict):
                values["inputs"].setdefault("simulation", None)  # where shapes are no trajectories
            contents = record(values, _Record)
            task = contents.task
            kind = TASKS[one_of(task.pop("name", None), "task.name", tuple(TASKS))]
            fields = {
                key: value
                for key, value in vars(contents).items()
                if key not in ("task", "versions")
            }
            return Run(path=Path(path), task=record(task, kind, "task"), **fields)
        except GraphAttnError as error:
            fix = "the version of graphattn that wrote it"
            raise LoaderError(
                f"{name}: expected what graphattn train writes: {error}. Try: {fix}."
            ) from None

    def here(self) -> "Run":
        """The run for one process: on the CPU if the device of training is not available."""
        schedule = replace(self.schedule, shard=False)
        try:
            device(schedule.device)
        except OptionError:
            schedule = replace(schedule, device="cpu")
        return replace(self, schedule=schedule)

    def new_model(self) -> nn.Module:
        """A model with parameters drawn by the seed."""
        simulation = self.inputs.simulation
        with seeded(self.schedule.seed):
            if simulation is not None:
                levels = None  # random graphs stay from step to step
                if self.inputs.redrawn is None:
                    levels = self.inputs.recipe
                return simulator(self.model, self.options, simulation, levels)
            return build(
                self.model, self.options, self.features, self.task.out_dim, self.task.readout
            )

    def first_model(self) -> tuple[nn.Module, str]:
        """The initial model, with those parameters of ``start`` that fit, and a report."""
        model = self.new_model()
        if not self.start:
            return model, ""
        path = Path(self.start)
        tensors = read_tensors(path / MODEL if path.is_dir() else path)
        state = model.state_dict()
        sizes = {name: tuple(x.shape) for name, x in state.items()}
        fit = {name: x for name, x in tensors.items() if sizes.get(name) == tuple(x.shape)}
        new = [name for name in state if name not in fit]
        other = [
            f"{name} {sizes[name]}, there {tuple(tensors[name].shape)}"
            for name in new
            if name in tensors
        ]
        if not fit:
            raise fault(
                path,
                f"parameters of {self.model}",
                [*other, f"{len(tensors):,} others"][0],
                "the model and the options that it was trained with",
            )
        model.load_state_dict(state | fit)
        rest = [f"{name} {sizes[name]}" for name in new if name not in tensors]
        lines = [f"starts from {path}: {len(fit)} of {len(state)} tensors"]
        if other:
            lines.append(f"of another size: {'; '.join(other)[:300]}")
        if rest:
            lines.append(f"new: {', '.join(rest)[:300]}")
        return model, "\n  ".join(lines + self.unlike_start())

    def num_seen_by_start(self, names: list[str]) -> int:
        """Number of these shapes that the run which this one starts from was trained on."""
        if not self.start or not Path(self.start, "run.json").is_file():
            return 0
        first = Run.load(self.start)
        digests = {first.files[name] for name in first.split["train"]}
        return sum(self.files[name] in digests for name in names)

    def unlike_start(self) -> list[str]:
        """Settings and shapes that differ from those of the run that this one starts from."""
        if not self.start or not Path(self.start, "run.json").is_file():
            return []
        first = Run.load(self.start)
        words = []
        ours, theirs = (
            {
                **asdict(one.inputs),
                **one.options,
                "classes": one.task.classes,
                "seed": one.schedule.seed,
            }
            for one in (self, first)
        )
        different = [
            f"{key}={ours.get(key)} ({theirs.get(key)})"
            for key in ours | theirs
            if ours.get(key) != theirs.get(key)
        ]
        if different:
            words.append(f"otherwise than there: {', '.join(different)}")
        held_out = [name for part in ("val", "test") for name in self.split[part]]
        num_shared = self.num_seen_by_start(held_out)
        if num_shared:
            same = "the same seed and shares hold out the same"
            words.append(
                f"{first.path} was trained on {num_shared:,} of the {len(held_out):,} shapes held "
                f"out here: {same}"
            )
        return words

    def trained_model(self, part_of_best: str | None = None) -> nn.Module:
        """A model with the best parameters so far.

        Args:
            part_of_best: Of a network with a forest beside it, what answers in the place of the
                chosen one: "network", "forest" or "mean".

        Raises:
            LoaderError: If the first epoch has not ended.
            OptionError: If the model has no such part.
        """
        model = self.new_model()
        path = self.path / MODEL
        tensors = {}
        if path.is_file():
            tensors = self.state(path)[0]
        elif (self.path / CHECKPOINT).is_file():
            tensors = part(self.state(self.path / CHECKPOINT)[0], "best")
        if not tensors:
            raise fault(self.path, "a trained model", "none yet", "wait for its first epoch")
        fill(model, tensors, path)
        if part_of_best is not None:
            if not isinstance(model, Best):
                raise OptionError(
                    f"model={part_of_best!r} is for a run of --model best, got one of {self.model}"
                )
            one_of(part_of_best, "model", tuple(SHARES))
            if part_of_best not in model.candidates:
                raise OptionError(
                    f"model={part_of_best!r} is for a run whose trees are grown, as they are after "
                    f"its epochs; got {self.path} with {self.unfinished} trained; --resume it"
                )
            model.answer_as(part_of_best)
        return model.eval()

    def has_begun(self) -> bool:
        """True once something of it is trained, so that its settings stay."""
        return any((self.path / name).is_file() for name in STARTED)

    def has_ended(self) -> bool:
        """True if its last epoch is trained and its model written, so that no state is needed."""
        return (self.path / MODEL).is_file() and not self.unfinished

    def has_model(self) -> bool:
        """True once there is a trained model: of an epoch that has ended, or a forest."""
        return (self.path / MODEL).is_file() or bool(self.history())

    def check(self, data: Any, name: str) -> None:
        """Refuse a shape of which the run's inputs make other features than its model reads."""
        if self.inputs.simulation is None and data.x.shape[1] != self.features:
            got = f"{data.x.shape[1]}. Try: its colours"
            raise LoaderError(f"{name}: expected {self.features} features of points, got {got}.")

    def state(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON of a state of this run.

        Raises:
            LoaderError: If the file is damaged, or of another run.
        """
        tensors, metadata = load_state(path)
        if metadata.get("run") != self.key:
            raise fault(
                path,
                "a state of this run",
                "that of another",
                "the run's own file, and run.json as it was written",
            )
        return tensors, metadata

    def save_model(self, model: nn.Module) -> None:
        """Write the trained parameters."""
        save_state(
            self.path / MODEL, dict(model.state_dict()), {"run": self.key, "model": self.model}
        )


def make_folder(path: Path) -> None:
    """Make a folder with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"out must be a folder that can be made, got {path}: {error.strerror}"
        ) from None
