"""Evaluation: the scores of a model on some shapes, and those of its controls."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .best import said
from .data import Prepared
from .difference import Difference, difference
from .run import SAID
from .tasks import Task


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model on a part of a folder.

    Attributes:
        task: What was learned.
        part: "test", "val", "train", or "all" of another folder.
        scores: As JSON holds them.
        names: The files.
        data: The shapes.
        answers: Of each shape: probabilities or numbers, of its points or its own.
        labels: Of each shape.
        controls: Of what was trained beside the model, by name.
        choice: Of the model "best" the name of the part that answers, the scores on the validation
            part by which it was chosen, and its margin; else empty.
        notes: What a reader of the scores should know: classes that are never found, a model that
            reads too little.
    """

    task: Task
    part: str
    scores: dict[str, Any]
    names: list[str] = field(repr=False)
    data: Prepared = field(repr=False)
    answers: list[Tensor] = field(repr=False)
    labels: list[Tensor] = field(repr=False)
    controls: dict[str, "Evaluation"] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def over(self, control: str) -> Difference:
        """Difference of the model's scores and a control's, shape by shape."""
        own, other = (
            self.task.each(one.predictions, one.labels) for one in (self, self.controls[control])
        )
        return difference(own - other, self.task.bounds)

    @property
    def predictions(self) -> list[Tensor]:
        """Of each shape: classes or numbers."""
        return [self.task.predictions(answer) for answer in self.answers]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = {
            "task": self.task.name,
            "part": self.part,
            "files": len(self.names),
            "scores": self.scores,
        }
        beside = {
            name: {"scores": one.scores, "difference": self.over(name)._asdict()}
            for name, one in self.controls.items()
        }
        each = dict(
            zip(self.names, self.task.each(self.predictions, self.labels).tolist(), strict=True)
        )
        return told | {
            "classes": list(self.task.classes),
            "each": each,
            "controls": beside,
            "choice": self.choice,
            "notes": self.notes,
        }

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.own, self.beside)))

    @property
    def own(self) -> str:
        """Scores of the model in words."""
        where = {
            "test": "held out",
            "val": "validation",
            "train": "the shapes it was trained on",
            "all": "all shapes",
        }
        known = self.data.folder.classes_here()
        lines = [f"{where[self.part]}: {self.task.said(self.scores)}"]
        if self.choice:
            lines.append(f"  {said(self.choice)}")
        return "\n".join(
            [*lines, *(f"  {line}" for line in self.task.by_class(self.scores, known))]
        )

    @property
    def beside(self) -> str:
        """Scores of the controls, differences from them, and notes."""
        lines = []
        same = "split"
        if self.part == "all":
            same = "shapes"
        for name, one in self.controls.items():
            lines.append(f"{SAID[name]}, on the same {same}: {self.task.said(one.scores)}")
            over = self.over(name)
            line = f"  the model scores {over.said}, {self.task.per_shape}"
            if over.low is None:
                line += f" ({over.unit})"
            lines.append(line)
        return "\n".join(lines + [f"note: {note}" for note in self.notes])
