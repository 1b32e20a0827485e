"""Scores of a study: what each kind of target can be judged by."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import need_extra

CLASSES, LABELS, VALUES = "classes", "labels", "values"
"""Kinds of targets: one class of several, any of several labels, numbers."""


@dataclass(frozen=True)
class Metric:
    """A score.

    Args:
        words: On an axis.
        kinds: Targets that have it.
        sign: 1 if more is better, else -1.
        is_share: True if it is from 0 to 1.
    """

    words: str
    kinds: tuple[str, ...]
    sign: float = 1.0
    is_share: bool = False


METRICS = {
    "accuracy": Metric("accuracy", (CLASSES, LABELS), is_share=True),
    "bits": Metric("bits per answer (lower is better)", (CLASSES, LABELS), -1.0),
    "macro_f1": Metric("macro F1", (CLASSES, LABELS), is_share=True),
    "ap": Metric("average precision, the mean of labels", (LABELS,), is_share=True),
    "mae": Metric("mean absolute error (lower is better)", (VALUES,), -1.0),
    "r2": Metric("R2", (VALUES,)),
}
CONTROL = {CLASSES: "accuracy", LABELS: "accuracy", VALUES: "r2"}
"""Scores of shuffled labels, of which chance is known."""
FITS = ("r2", "ap", "accuracy")
"""Scores that say whether a run fitted or solved; the first that a record has."""


def macro_f1(guesses: Tensor, targets: Tensor) -> float:
    """F1 of classes (M,), or of labels, bool (M, K): the mean over classes that occur."""
    metrics = _sklearn()
    return float(
        metrics.f1_score(targets.numpy(), guesses.numpy(), average="macro", zero_division=0)
    )


def of_labels(logits: Tensor, targets: Tensor) -> dict[str, float]:
    """Accuracy, AP and macro F1 of labels; AP is of labels that occur, NaN if a logit is."""
    metrics = _sklearn()
    right = float(((logits > 0) == targets).double().mean())
    occurring = targets.any(0)
    precision = float("nan")
    if bool(logits.isfinite().all()) and bool(occurring.any()):
        precision = float(
            metrics.average_precision_score(
                targets[:, occurring].numpy(), logits[:, occurring].numpy(), average="macro"
            )
        )
    return {"accuracy": right, "ap": precision, "macro_f1": macro_f1(logits > 0, targets)}


def of_values(values: Tensor, targets: Tensor, unit: Tensor) -> dict[str, float]:
    """MAE in the units of the targets, and R2, of standardised values (M, K): means over K.

    Args:
        values: Predictions.
        targets: Targets.
        unit: (K,), what a deviation is.
    """
    if not bool(values.isfinite().all()):
        return {"mae": float("nan"), "r2": float("nan")}
    metrics = _sklearn()
    given = (targets.double().numpy(), values.double().numpy())
    errors = metrics.mean_absolute_error(*given, multioutput="raw_values")
    mae = float((torch.as_tensor(errors) * unit.double()).mean())
    return {"mae": mae, "r2": float(metrics.r2_score(*given))}


def _sklearn() -> Any:
    try:
        from sklearn import metrics
    except ImportError as error:
        raise need_extra("scikit-learn", "study") from error
    return metrics
