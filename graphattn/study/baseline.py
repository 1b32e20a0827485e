"""Plain methods on the data of a study: a linear model and a forest, on the same splits and seeds."""

from importlib.util import find_spec
from typing import Any

import numpy as np

from ..errors import OptionError, need_extra
from .comparison import Comparison
from .data import Data
from .metrics import CLASSES

METHODS = ("logistic regression", "forest")
_LARGEST = 1_000_000  # numbers of a training set, by default
_WIDEST = 4_096  # columns of tokens by place
_TREES = 200
_ITERATIONS = 1_000


def wanted(comparison: Comparison, asked: bool | None) -> bool:
    """True if plain methods are to run: where they are asked for, or on small vectors and tables.

    Raises:
        OptionError: If they are asked for, and the samples have no answer of their own.
        MissingExtraError: If scikit-learn is not installed.
    """
    data = comparison.data
    of_samples = comparison.readout in ("mean", "token") and data.kind == CLASSES
    if not asked:
        numbers = data.inputs[0].numel() * len(data)
        is_table = data.inputs.is_floating_point() and data.sizes is None and of_samples
        small = numbers <= _LARGEST and find_spec("sklearn") is not None
        return asked is None and is_table and small and comparison.metric == "accuracy"
    if not of_samples or comparison.metric != "accuracy":
        raise OptionError(
            f"baseline of {comparison.name} needs a class of each sample and the metric accuracy, "
            f"got readout {comparison.readout!r} and {comparison.metric}; baseline=False"
        )
    if find_spec("sklearn") is None:
        raise need_extra("scikit-learn", "study")
    return True


def scores(comparison: Comparison, seeds: range) -> dict[str, dict[str, float]]:
    """Accuracy by method and seed, trained on the examples of the last budget."""
    data = comparison.data
    features = features_of(data)
    labels = data.targets.numpy()
    found: dict[str, dict[str, float]] = {name: {} for name in METHODS}
    for seed in seeds:
        split = data.split(seed, comparison.budgets[-1].examples)
        train, test = (part.numpy() for part in split)
        for name in METHODS:
            found[name][str(seed)] = _score(_method(name, seed), features, labels, train, test)
    return found


def features_of(data: Data) -> np.ndarray:
    """A row of numbers for each sample: its features, or counts of its tokens and each place's.

    Padding is 0, and no token; of many places and tokens, the counts of tokens alone.
    """
    inputs = data.inputs.numpy()
    nodes = np.arange(inputs.shape[1])
    there = np.ones(inputs.shape[:2], dtype=bool)
    if data.sizes is not None:
        there = nodes < data.sizes.numpy()[:, None]
    if data.inputs.is_floating_point():
        return np.where(there[..., None], inputs, 0).reshape(len(inputs), -1)
    tokens = int(inputs.max()) + 1
    counts = np.zeros((len(inputs), tokens), dtype=np.float32)
    sample, node = there.nonzero()
    np.add.at(counts, (sample, inputs[there]), 1)
    if tokens * inputs.shape[1] > _WIDEST:
        return counts
    places = np.zeros((*inputs.shape, tokens), dtype=np.float32)
    places[sample, node, inputs[there]] = 1
    return np.concatenate((counts, places.reshape(len(inputs), -1)), axis=1)


def _method(name: str, seed: int) -> Any:
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(_TREES, random_state=seed % (1 << 32))
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=_ITERATIONS))


def _score(
    method: Any, features: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray
) -> float:
    """Accuracy on what was held out; of a training set of one class, the share of that class."""
    classes = np.unique(labels[train])
    if len(classes) == 1:
        return float(np.mean(labels[test] == classes[0]))
    method.fit(features[train], labels[train])
    return float(method.score(features[test], labels[test]))
