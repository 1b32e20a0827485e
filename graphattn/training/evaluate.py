"""What a trained model is worth on shapes with labels."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import LoaderError
from ..interop.files._guard import PathLike
from ..shapes import ShapeFolder
from .data import Prepared, digests
from .loop import Schedule, answers_of
from .run import Run
from .tasks import Task


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model on a part of a folder.

    Attributes:
        task: What was learned.
        part: "test", "val", "train", or "all" of another folder.
        scores: As JSON holds them.
        control: Those of a perceptron without edges, where one was trained.
        names: The files.
        data: The shapes.
        answers: Of each shape: probabilities or numbers, of its points or its own.
        labels: Of each shape.
    """

    task: Task
    part: str
    scores: dict[str, Any]
    names: list[str] = field(repr=False)
    data: Prepared = field(repr=False)
    answers: list[Tensor] = field(repr=False)
    labels: list[Tensor] = field(repr=False)
    control: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = {"task": self.task.name, "part": self.part, "files": len(self.names), "scores": self.scores}
        return told | {"classes": list(self.task.classes), "control": self.control}

    def __str__(self) -> str:
        where = {"test": "held out", "val": "validation", "train": "the shapes it was trained on", "all": "all shapes"}
        text = f"{where[self.part]}: {self.task.said(self.scores)}"
        if self.control is not None:
            text += f"\na perceptron without edges, on the same split: {self.task.said(self.control)}"
        return text


def evaluated(model: nn.Module, task: Task, data: Prepared, how: Schedule, part: str) -> Evaluation:
    """The scores of a model on shapes."""
    answers = answers_of(model, task, data, how)[0]
    labels = data.labels()
    scores = task.scores(task.predictions(torch.cat(answers)), torch.cat(labels))
    names = [data.name(index) for index in range(len(data))]
    return Evaluation(task, part, scores, names, data, answers, labels)


def evaluate(run: PathLike, folder: PathLike | None = None) -> Evaluation:
    """The scores of a run's model on a folder: on the held-out part of the one that it was trained on, else on all.

    Args:
        run: The folder of the run.
        folder: Of shapes with labels of the same names; by default that of the run.

    Raises:
        LoaderError: If a class of the folder is none of the run's, or a file does not fit.
    """
    made = Run.load(run)
    root = made.folder if folder is None else Path(folder)
    shapes = ShapeFolder(root, task=made.task.name)
    part, numbers = "all", list(range(len(shapes)))
    if digests(shapes) == made.files:
        part = next(name for name in ("test", "val", "train") if made.split[name])
        numbers = [i for i in numbers if shapes.name(i) in set(made.split[part])]
    if made.task.classes:
        _relabel(shapes, made.task.classes)
    data = Prepared(shapes, numbers, made.inputs)
    return evaluated(made.trained_model().to(made.schedule.device), made.task, data, made.schedule, part)


def _relabel(shapes: ShapeFolder, classes: tuple[str, ...]) -> None:
    """Labels as the run numbers them."""
    if shapes.classes == classes[: len(shapes.classes)]:
        return
    for number, label in enumerate(shapes.labels):
        for each in label.unique().tolist():
            if each >= 0 and shapes.classes[each] not in classes:
                got = f"{shapes.classes[each]!r}"
                fix = "the folder that the model was made for"
                raise LoaderError(
                    f"{shapes.name(number)}: expected a class that the model knows, got {got}. Try: {fix}."
                )
    to = torch.tensor([classes.index(name) if name in classes else -1 for name in shapes.classes])
    shapes.labels = [torch.where(label >= 0, to[label.clamp(min=0)], label) for label in shapes.labels]
