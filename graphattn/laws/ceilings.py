"""Ceilings: the best score of any function of what a model can tell apart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .colours import codes_of


@dataclass(frozen=True, eq=False)
class Answers:
    """Targets of a part of the data, and the colours by which a model can tell them apart.

    Args:
        colour: int64 (A,), 0, 1, ...: answers of one colour are one.
        targets: (A,), or (A, K) of labels and values.
    """

    colour: np.ndarray
    targets: np.ndarray

    def known(self) -> "Answers":
        """Answers of which each is known."""
        return Answers(numbered(codes_of(self.targets)), self.targets)


def ceiling(colours: Any, targets: Any, metric: str = "accuracy") -> float:
    r"""The best score that any function of colours can have: answers of one colour are one.

    Of accuracy the most frequent answer of each colour,
    :math:`\frac1A \sum_c \max_y n_{cy}`; of bits the entropy that is left; of R2 and MAE its mean
    and median; of AP, and of macro F1 of classes, a bound.

    Args:
        colours: (A,), of answers; those of :func:`graphattn.laws.colours`.
        targets: (A,) classes; or (A, K), labels (bool) or numbers.
        metric: "accuracy", "bits", "macro_f1", "ap", "mae" or "r2".
    Example:
        >>> ceiling([0, 0, 1], [3, 4, 4])
        0.6666666666666666
    """
    colour = numbered(np.asarray(colours))
    return best_score(metric, Answers(colour, np.asarray(torch.as_tensor(targets))))


def numbered(values: np.ndarray) -> np.ndarray:
    """Numbers 0, 1, ... of different values, (A,)."""
    return np.unique(values, return_inverse=True)[1]


def best_score(metric: str, answers: Answers) -> float:
    """The best score of any function of colours; of AP, and of macro F1 of classes, a bound of it.

    A score of shares (accuracy, bits, F1) needs the counts of answers by colour alone; MAE has its
    least at medians, R2 its most at means.
    """
    if answers.targets.ndim == 1:
        return _OF_CLASSES[metric](answers.colour, answers.targets)
    of_columns = [_OF_COLUMNS[metric](answers.colour, column) for column in answers.targets.T]
    if metric == "ap":
        of_columns = [value for value in of_columns if not np.isnan(value)]
    if not of_columns:
        return float("nan")
    return float(np.mean(of_columns))


def _counts(colour: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of a colour and a class that occur, (P,) each, and how often."""
    pairs, counts = np.unique(np.stack((colour, classes)), axis=1, return_counts=True)
    return pairs[0], pairs[1], counts


def _accuracy(colour: np.ndarray, classes: np.ndarray) -> float:
    colours, _, counts = _counts(colour, classes)
    most = np.zeros(int(colour.max()) + 1, dtype=np.int64)
    np.maximum.at(most, colours, counts)
    return float(most.sum() / len(colour))


def _bits(colour: np.ndarray, classes: np.ndarray) -> float:
    """The entropy of answers whose colour is known."""
    colours, _, counts = _counts(colour, classes)
    share = counts / np.bincount(colour)[colours]
    return float(-(counts * np.log2(share)).sum() / len(colour)) + 0.0


def _curve(colour: np.ndarray, holds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hits and answers of the first colours, which hold most often; before them 0 of none."""
    answers = np.bincount(colour)
    hits = np.bincount(colour, weights=holds)
    order = np.argsort(-hits / answers, kind="stable")
    zero = np.zeros(1)
    return (
        np.concatenate((zero, np.cumsum(hits[order]))),
        np.concatenate((zero, np.cumsum(answers[order]))),
    )


def _f1(colour: np.ndarray, holds: np.ndarray) -> float:
    """The largest F1 of a set of colours: those above a share, as F1 is a ratio of sums."""
    hits, answers = _curve(colour, holds)
    if hits[-1] == 0:
        return 0.0
    return float(np.max(2 * hits / (hits[-1] + answers)))


def _average_precision(colour: np.ndarray, holds: np.ndarray) -> float:
    """A bound of the average precision of any order of colours; NaN of a label that never holds.

    The i-th hit comes after at least as many answers as in the best order in which colours may be
    taken in part, and precision at a hit of a colour is that at its last.
    """
    hits, answers = _curve(colour, holds)
    if hits[-1] == 0:
        return float("nan")
    occurring = np.concatenate(([True], np.diff(hits) > 0))
    hit = np.arange(1, int(hits[-1]) + 1)
    return float(np.mean(hit / np.interp(hit, hits[occurring], answers[occurring])))


def _of_label(best: Callable[[np.ndarray, np.ndarray], float]) -> Callable[..., float]:
    return lambda colour, column: best(colour, column.astype(np.int64))


def _mae(colour: np.ndarray, values: np.ndarray) -> float:
    """The mean distance to the median of each colour."""
    values = values.astype(np.float64)
    order = np.lexsort((values, colour))
    counts = np.bincount(colour)
    middle = np.cumsum(counts) - counts + counts // 2
    medians = values[order][middle]
    return float(np.abs(values - medians[colour]).mean())


def _r2(colour: np.ndarray, values: np.ndarray) -> float:
    """The share of the variance that is between colours."""
    values = values.astype(np.float64) - values.astype(np.float64).mean()
    total = np.square(values).sum()
    if total == 0:
        return 1.0
    means = np.bincount(colour, weights=values) / np.bincount(colour)
    return float(1 - np.square(values - means[colour]).sum() / total)


_OF_CLASSES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _accuracy,
    "bits": _bits,
    # the mean of the best F1 of each class that occurs: no function has a better mean of all
    "macro_f1": lambda colour, classes: float(
        np.mean([_f1(colour, classes == label) for label in np.unique(classes)])
    ),
}
_OF_COLUMNS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _of_label(_accuracy),
    "bits": _of_label(_bits),
    "macro_f1": _f1,
    "ap": _average_precision,
    "mae": _mae,
    "r2": _r2,
}
