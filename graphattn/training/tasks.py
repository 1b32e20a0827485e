"""Tasks: classes of shapes, classes of points, or numbers, each with its loss and its score."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..arguments import one_of, positive, real, shown
from ..errors import OptionError
from ..models import Window

_CLASSES = 1 << 10  # whose confusion matrix is written


@dataclass(frozen=True)
class Task(ABC):
    """A task on labels of points or of shapes, by ``readout``.

    ``classes`` are their names, ``weights`` what each counts for in the loss, all alike if there
    are none; ``mean`` and ``deviation`` are those of the numbers to learn, in training.
    """

    readout: str
    classes: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    weights: tuple[float, ...] = ()

    name = ""
    readouts: ClassVar[tuple[str, ...]] = ("shape", "node")
    metric = ""  # the key of the score by which runs are compared; higher is better
    kept_by_metric = False  # which epoch: the one with the best score, or with the least loss
    loss_words = "loss"
    per_shape = ""  # the meaning of `each`, in words
    bounds: ClassVar[tuple[float, float] | None] = (-1.0, 1.0)  # of the difference of two of them

    def __post_init__(self) -> None:
        one_of(self.readout, "readout", self.readouts)
        if len(self.classes) > _CLASSES:
            fix = "-1 is no label, and classes are numbered from 0"
            raise OptionError(
                f"classes must be at most {_CLASSES:,}, got {len(self.classes):,}; {fix}"
            )
        if bool(self.classes) != (self.name != "regress") or len(set(self.classes)) < len(
            self.classes
        ):
            raise OptionError(
                f"classes must be different names to {self.name}, got {shown(self.classes)}"
            )
        for weight in self.weights:
            positive(weight, "weights")
        if self.weights and len(self.weights) != len(self.classes):
            raise OptionError(
                f"weights must be one for each of {len(self.classes)} classes, got "
                f"{len(self.weights)}"
            )
        real(self.mean, "mean")
        positive(self.deviation, "deviation")

    @property
    def out_dim(self) -> int:
        """Width of a model's answer."""
        return max(1, len(self.classes))

    @abstractmethod
    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The mean loss over labels."""

    def mass(self, y: Tensor, output: Tensor) -> Tensor:
        """Divisor of the mean loss: the number of labels, or the sum of their weights."""
        return output.new_tensor(float(y.numel()))

    @abstractmethod
    def answers(self, output: Tensor) -> Tensor:
        """Probabilities (..., K) of an output on the CPU, or numbers (...,) in float64."""

    def predictions(self, answers: Tensor) -> Tensor:
        """Classes int64 (...,), or numbers."""
        return answers

    @abstractmethod
    def error(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Share of labels predicted wrong, or mean absolute error of numbers."""

    @abstractmethod
    def scores(self, prediction: Tensor, y: Tensor) -> dict[str, Any]:
        """Scores of all shapes together, as JSON holds them."""

    def each(self, predictions: list[Tensor], labels: list[Tensor]) -> Tensor:
        """The score of each shape by itself, (shapes,): what runs are compared by, in pairs."""
        return torch.tensor(
            [self.scores(*pair)[self.metric] for pair in zip(predictions, labels, strict=True)]
        )

    def by_class(self, scores: dict[str, Any], present: Collection[str]) -> list[str]:
        """A line for each class that has a score; for others if they are ``present``."""
        return []

    def unseen(self, train: list[Tensor], val: list[Tensor]) -> list[str]:
        """Classes with labels in one part and none in the other."""
        if not self.classes or not val:
            return []
        counts = [
            torch.bincount(torch.cat(part) + 1, minlength=len(self.classes) + 1)[1:]
            for part in (train, val)
        ]
        is_missing = (counts[0] > 0) & (counts[1] == 0)
        return [self.classes[at] for at in is_missing.nonzero().flatten().tolist()]

    @abstractmethod
    def in_words(self, scores: dict[str, Any]) -> str:
        """The scores in a few words."""


class _Classes(Task):
    def answers(self, output: Tensor) -> Tensor:
        return output.softmax(-1)

    def predictions(self, answers: Tensor) -> Tensor:
        return answers.argmax(-1)

    def error(self, prediction: Tensor, y: Tensor) -> Tensor:
        mask = y >= 0
        return (prediction != y)[mask].sum() / mask.sum().clamp(min=1)

    def weight(self, output: Tensor) -> Tensor | None:
        """Weight of each class in the loss."""
        if self.weights:
            return output.new_tensor(self.weights)
        return None

    def confusion(self, prediction: Tensor, y: Tensor) -> Tensor:
        """(K, K): rows are the labels, columns the predictions."""
        K = len(self.classes)
        mask = y >= 0
        return torch.bincount(y[mask] * K + prediction[mask], minlength=K * K).view(K, K)


class Classify(_Classes):
    """A class for each shape: cross-entropy with 5 % of each label spread over all classes."""

    name, metric, per_shape = "classify", "accuracy", "1 for a shape that is right"
    loss_words = "loss (labels smoothed by 5 %: never 0)"
    readouts = ("shape",)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(output, y, self.weight(output), label_smoothing=0.05)

    def mass(self, y: Tensor, output: Tensor) -> Tensor:
        weight = self.weight(output)
        if weight is None:
            return super().mass(y, output)
        return weight[y].sum()

    def scores(self, prediction: Tensor, y: Tensor) -> dict[str, Any]:
        from scipy.stats import binomtest

        table = self.confusion(prediction, y)
        num_shapes = int(table.sum())
        right = int(table.diagonal().sum())
        interval = binomtest(right, num_shapes).proportion_ci(method="wilson")
        return {
            "accuracy": right / num_shapes,
            "right": right,
            "shapes": num_shapes,
            "confusion": table.tolist(),
            "interval": list(map(float, interval)),
        }

    def each(self, predictions: list[Tensor], labels: list[Tensor]) -> Tensor:
        return (torch.cat(predictions) == torch.cat(labels)).float()

    def in_words(self, scores: dict[str, Any]) -> str:
        low, high = scores["interval"]
        counts = (
            f"{scores['right']:,} of {scores['shapes']:,}; 95 % interval {low:.1%} to {high:.1%}"
        )
        return f"{scores['accuracy']:.1%} of shapes right ({counts})"


class Segment(_Classes):
    """A class for each point: cross-entropy over labels other than -1, weighted or not."""

    name, metric, per_shape = "segment", "miou", "the mean IoU of a shape"
    readouts, kept_by_metric = ("node",), True

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        total = cross_entropy(output, y, self.weight(output), ignore_index=-1, reduction="sum")
        return total / (y >= 0).sum().clamp(min=1)

    def mass(self, y: Tensor, output: Tensor) -> Tensor:
        return (y >= 0).sum().to(output.dtype)

    def scores(self, prediction: Tensor, y: Tensor) -> dict[str, Any]:
        table = self.confusion(prediction, y)
        right = table.diagonal()
        union = table.sum(0) + table.sum(1) - right
        iou = [float(r) / float(b) if b else None for r, b in zip(right, union, strict=True)]
        present_iou = [value for value in iou if value is not None]
        num_labels = int(table.sum())
        return {
            "miou": sum(present_iou) / max(1, len(present_iou)),
            "accuracy": float(right.sum()) / max(1, num_labels),
            "points": num_labels,
            "iou": dict(zip(self.classes, iou, strict=True)),
            "labels": dict(zip(self.classes, table.sum(1).tolist(), strict=True)),
        }

    def by_class(self, scores: dict[str, Any], present: Collection[str]) -> list[str]:
        share = {name: count / max(1, scores["points"]) for name, count in scores["labels"].items()}
        lines = [
            f"{k}: IoU {iou:.3f}, {share[k]:.1%} of labels"
            for k, iou in scores["iou"].items()
            if iou is not None
        ]
        absent = [name for name, iou in scores["iou"].items() if iou is None and name in present]
        if absent:
            lines.append(f"not there: {', '.join(absent)}")
        return lines

    def in_words(self, scores: dict[str, Any]) -> str:
        return (
            f"mean IoU {scores['miou']:.3f}, {scores['accuracy']:.1%} of {scores['points']:,} "
            "labels right"
        )


class Regress(Task):
    """A number for each point or shape: squared error over the variance in training."""

    name, metric, per_shape = (
        "regress",
        "r2",
        "1 - the mean square of a shape's error / the variance of all labels",
    )
    bounds = None

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        # as large as float32 has them
        if y.device.type != "mps":
            y = y.double()
        target = ((y - self.mean) / self.deviation).to(output.dtype)
        return (output[..., 0] - target).square().mean()

    def answers(self, output: Tensor) -> Tensor:
        return output[..., 0].double() * self.deviation + self.mean

    def error(self, prediction: Tensor, y: Tensor) -> Tensor:
        return (prediction - y).abs().mean()

    def each(self, predictions: list[Tensor], labels: list[Tensor]) -> Tensor:
        spread = float(torch.cat(labels).double().var(correction=0))
        square_errors = [
            (one - y).double().square().mean() for one, y in zip(predictions, labels, strict=True)
        ]
        return 1 - torch.stack(square_errors) / (spread or 1.0)

    def scores(self, prediction: Tensor, y: Tensor) -> dict[str, Any]:
        errors = (prediction - y).double()
        exact = y.double()
        spread = float((exact - exact.mean()).square().sum())
        squares = float(errors.square().sum())
        return {
            "r2": 1 - squares / spread if spread else 0.0,
            "rmse": float(errors.square().mean().sqrt()),
            "mae": float(errors.abs().mean()),
            "values": len(exact),
        }

    def in_words(self, scores: dict[str, Any]) -> str:
        return f"R2 {scores['r2']:.3f}, RMSE {scores['rmse']:.4g}, of {scores['values']:,} values"


class Simulate(Task):
    """The next states of fields: weighted squared error of the steps of a window.

    Outputs are (N, K, C), labels (N, 2 + K, C), as :meth:`graphattn.models.Window.__call__` gives
    them.
    """

    name, metric = "simulate", "skill"
    per_shape = "1 - error / error of 'nothing changes' over a trajectory"
    loss_words = "single steps: loss in deviations of a step"
    readouts, bounds = ("node",), None

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return Window.loss(output, y)

    def answers(self, output: Tensor) -> Tensor:
        return output

    def error(self, prediction: Tensor, y: Tensor) -> Tensor:
        return torch.tensor(1 - self.scores(prediction, y)["skill"])

    def scores(self, prediction: Tensor, y: Tensor) -> dict[str, Any]:
        weight = y[:, :1].double()
        states = (prediction, y[:, 1:2])
        # (K,) of the prediction, and of the known state
        squares, unchanged = (
            (weight * (state - y[:, 2:]).square()).sum((0, 2)).clamp(min=1e-30) for state in states
        )
        return {
            "skill": 1 - float((squares.sum() / unchanged.sum()).sqrt()),
            "error": (squares / unchanged).sqrt().tolist(),
            "steps": len(squares),
        }

    def in_words(self, scores: dict[str, Any]) -> str:
        error = scores["error"]
        return (
            f"error {1 - scores['skill']:.3f} of that of 'nothing changes' over {scores['steps']} "
            f"steps ({error[0]:.3f} after 1, {error[-1]:.3f} after {scores['steps']})"
        )


TASKS: dict[str, type[Task]] = {task.name: task for task in (Classify, Segment, Regress, Simulate)}
