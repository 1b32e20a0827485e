"""Plain methods on the data of a study: a linear model and a forest, on the same splits and seeds."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import OptionError, need_extra
from ...statistics.intervals import SHARES, Interval, interval
from ..comparison import Comparison
from ..data import Data
from ..metrics import CLASSES, LABELS, METRICS, VALUES, macro_f1, of_labels, of_values

FOREST = "forest"
LINEAR = {
    CLASSES: "logistic regression",
    LABELS: "logistic regression",
    VALUES: "ridge regression",
}
"""Linear methods by kind of targets."""
_LARGEST = 1_000_000  # numbers of a training set, by default
_WIDEST = 4_096  # columns of tokens by place
_TREES = 200
_ITERATIONS = 1_000
_PENALTIES = np.logspace(-3, 4, 15)  # of ridge regression, of which leaving one out takes the best


def methods(data: Data) -> tuple[str, str]:
    """Names of the methods for a kind of targets."""
    return LINEAR[data.kind], FOREST


def can_have_baseline(readout: str, metric: str) -> bool:
    """True if plain methods can answer: a target of each sample, and a score other than bits.

    A forest is certain of what it has not seen, which bits do not forgive.
    """
    return readout in ("mean", "token") and metric != "bits"


def check_baseline(comparisons: Sequence[Comparison], baseline: bool | None) -> None:
    """Refuse plain methods that are asked for where no comparison can have them.

    Raises:
        OptionError: If there is none with a target of each sample and a score other than bits.
        MissingExtraError: If scikit-learn is not installed.
    """
    if not baseline:
        return
    if not any(can_have_baseline(of.readout, of.metric) for of in comparisons):
        settings = ", ".join(f"{of.readout!r} and {of.metric} in {of.name}" for of in comparisons)
        raise OptionError(
            "baseline needs a comparison with a target of each sample and a metric other than "
            f"bits, got readout {settings}; leave it out, and give scores of your own as "
            "Study(baselines={comparison: {method: score}})"
        )
    if find_spec("sklearn") is None:
        raise need_extra("scikit-learn", "study")


def has_baseline(comparison: Comparison, baseline: bool | None) -> bool:
    """True if plain methods are to run: where they can and are asked for, or on small tables."""
    if baseline is False or not can_have_baseline(comparison.readout, comparison.metric):
        return False
    if baseline:
        return True
    data = comparison.data
    numbers = data.inputs[0].numel() * len(data)
    is_table = data.inputs.is_floating_point() and data.sizes is None
    return is_table and numbers <= _LARGEST and find_spec("sklearn") is not None


def scores(comparison: Comparison, seeds: range) -> dict[str, dict[str, float]]:
    """The study's score by method and seed, trained on the examples of the last budget."""
    data = comparison.data
    features = features_of(data)
    targets = data.targets.numpy()
    by_method: dict[str, dict[str, float]] = {name: {} for name in methods(data)}
    for seed in seeds:
        split = data.split(seed, comparison.budgets[-1].examples)
        train, test = (part.numpy() for part in split)
        for name in by_method:
            guesses = _guesses(name, seed, features[train], targets[train], features[test])
            by_method[name][str(seed)] = _score(comparison.metric, guesses, data.targets[test])
    return by_method


def interval_of(metric: str, by_seed: dict[str, float]) -> Interval | None:
    """The interval of a method's scores; a share's stays within 0 and 1."""
    bounds = None
    if METRICS[metric].is_share:
        bounds = SHARES
    return interval([*by_seed.values()], bounds)


def features_of(data: Data) -> np.ndarray:
    """A row of numbers for each sample: its features, or counts of its tokens and each place's.

    Padding is 0, and no token; of many places and tokens, the counts of tokens alone.
    """
    inputs = data.inputs.numpy()
    nodes = np.arange(inputs.shape[1])
    mask = np.ones(inputs.shape[:2], dtype=bool)
    if data.sizes is not None:
        mask = nodes < data.sizes.numpy()[:, None]
    if data.inputs.is_floating_point():
        return np.where(mask[..., None], inputs, 0).reshape(len(inputs), -1)
    tokens = int(inputs.max()) + 1
    counts = np.zeros((len(inputs), tokens), dtype=np.float32)
    sample, node = mask.nonzero()
    np.add.at(counts, (sample, inputs[mask]), 1)
    if tokens * inputs.shape[1] > _WIDEST:
        return counts
    places = np.zeros((*inputs.shape, tokens), dtype=np.float32)
    places[sample, node, inputs[mask]] = 1
    return np.concatenate((counts, places.reshape(len(inputs), -1)), axis=1)


def _guesses(
    name: str, seed: int, features: np.ndarray, targets: np.ndarray, test: np.ndarray
) -> np.ndarray:
    """Classes (M,) or numbers (M, K) of test samples; of labels probabilities less 1/2, (M, K)."""
    if targets.ndim == 1 and len(np.unique(targets)) == 1:
        return np.full(len(test), targets[0])
    if targets.ndim == 1:
        return _classifier(name, seed, features, targets).predict(test)
    if targets.dtype != bool:
        numbers = targets
        if targets.shape[1] == 1:
            numbers = targets[:, 0]
        guesses: np.ndarray = _regression(name, seed).fit(features, numbers).predict(test)
        return guesses.reshape(len(test), -1)
    columns = []
    for column in targets.T:
        if column.all() or not column.any():
            columns.append(np.full(len(test), column[0] - 0.5))
        else:
            method = _classifier(name, seed, features, column)
            columns.append(method.predict_proba(test)[:, 1] - 0.5)
    return np.stack(columns, axis=1)


def _classifier(name: str, seed: int, features: np.ndarray, classes: np.ndarray) -> Any:
    """A method that has been fitted."""
    if name == FOREST:
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(_TREES, random_state=seed % (1 << 32))
        return forest.fit(features, classes)
    from sklearn.linear_model import LogisticRegression

    return _scaled(LogisticRegression(max_iter=_ITERATIONS)).fit(features, classes)


def _regression(name: str, seed: int) -> Any:
    if name == FOREST:
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(_TREES, random_state=seed % (1 << 32))
    from sklearn.linear_model import RidgeCV

    return _scaled(RidgeCV(alphas=_PENALTIES, alpha_per_target=True))


def _scaled(method: Any) -> Any:
    """A method on features in their deviations."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), method)


def _score(metric: str, guesses: np.ndarray, targets: Tensor) -> float:
    """The score by which the arms are compared."""
    predicted = torch.from_numpy(guesses)
    if targets.is_floating_point():
        return of_values(predicted, targets, torch.ones(targets.shape[1]))[metric]
    if targets.dtype == torch.bool:
        return of_labels(predicted, targets)[metric]
    if metric == "macro_f1":
        return macro_f1(predicted, targets)
    return float((predicted == targets).double().mean())
