"""Evaluation: the scores of a model on some shapes, and those of its controls."""

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from ..printed import Printed
from ..statistics.paired import Difference, difference
from .models.best import choice_in_words
from .reach import Reach
from .reading.data import Prepared
from .run import CONTROL_WORDS
from .tasks import Task


@dataclass(frozen=True, repr=False)
class Evaluation(Printed):
    """Scores of a model on a part of a folder.

    Attributes:
        task: The learned task.
        part: "test", "val", "train", or "all" of another folder.
        scores: As JSON holds them.
        names: The files.
        data: The shapes.
        answers: Probabilities or numbers for each shape, or for its points.
        labels: Labels of each shape.
        controls: Evaluations of the controls, by name.
        choice: For the model "best" the name of the part that answers, the scores on the validation
            part or on folds by which it was chosen, its margin, of whole shapes the scores of all on
            this part, and ``is_asked_for`` where the caller named it; else empty.
        reach: Of simulations, what the model reads beside what moves in a step, in the first file.
        notes: Remarks on the scores: classes that are never predicted, a model that reads too
            little.
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
    reach: Reach | None = field(default=None, repr=False)

    def over(self, control: str) -> Difference:
        """Difference of the model's scores and a control's, shape by shape."""
        model_scores, control_scores = (
            self.task.each(one.predictions, one.labels) for one in (self, self.controls[control])
        )
        return difference(model_scores - control_scores, self.task.bounds)

    @property
    def predictions(self) -> list[Tensor]:
        """Predictions for each shape: classes or numbers."""
        return [self.task.predictions(answer) for answer in self.answers]

    def to_dict(self) -> dict[str, Any]:
        """The contents of ``result.json``."""
        record = {
            "task": self.task.name,
            "part": self.part,
            "files": len(self.names),
            "scores": self.scores,
        }
        controls = {
            name: {"scores": one.scores, "difference": self.over(name)._asdict()}
            for name, one in self.controls.items()
        }
        by_file = dict(
            zip(self.names, self.task.each(self.predictions, self.labels).tolist(), strict=True)
        )
        if self.reach is not None:
            record["reach"] = asdict(self.reach)
        return record | {
            "classes": list(self.task.classes),
            "each": by_file,
            "controls": controls,
            "choice": self.choice,
            "notes": self.notes,
        }

    def in_full(self) -> str:
        return "\n".join(filter(None, (self.in_words, self.controls_in_words)))

    @property
    def in_words(self) -> str:
        """Scores of the model in words."""
        where = {
            "test": "held out",
            "val": "validation",
            "train": "the shapes it was trained on",
            "all": "all shapes",
        }
        present = self.data.folder.classes_here()
        lines = [f"{where[self.part]}: {self.task.in_words(self.scores)}"]
        if self.choice:
            lines.append(f"  {choice_in_words(self.choice)}")
        return "\n".join(
            [*lines, *(f"  {line}" for line in self.task.by_class(self.scores, present))]
        )

    @property
    def controls_in_words(self) -> str:
        """Scores of the controls, differences from them, and notes."""
        lines = []
        same = "split"
        if self.part == "all":
            same = "shapes"
        for name, one in self.controls.items():
            lines.append(
                f"{CONTROL_WORDS[name]}, on the same {same}: {self.task.in_words(one.scores)}"
            )
            over = self.over(name)
            line = f"  the model scores {over.in_words}, {self.task.per_shape}"
            if over.low is None:
                line += f" ({over.unit})"
            lines.append(line)
        return "\n".join(lines + [f"note: {note}" for note in self.notes])
