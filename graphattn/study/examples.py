"""Right answers by test example, and intervals over seeds and test examples both."""

import base64
import math
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..statistics.intervals import Interval
from .data import NOT_ASKED, Data
from .metrics import CLASSES

_AT_ONCE = 128  # samples of an evaluation
_DRAWS = 2_000
TEST_SET = "with the test set"
"""Name of what such an interval is of."""


def examples_right(network: Any, read: Any, data: Data, held: Tensor) -> dict[str, str]:
    """Right answers of each held-out sample, in the order of samples, where all seeds share them.

    Where each seed draws its own, the interval over seeds is of the test set, too, and nothing is
    recorded; nor is it of targets that are no classes.
    """
    if not isinstance(data.test, Tensor) or data.kind != CLASSES:
        return {}
    counts = []
    network.eval()
    with torch.no_grad():
        for chosen in held.sort().values.split(_AT_ONCE):
            targets = data.targets[chosen]
            is_asked = targets != NOT_ASKED
            right = (read(network, chosen).argmax(-1) == targets) & is_asked
            of_samples = (right.reshape(len(chosen), -1), is_asked.reshape(len(chosen), -1))
            counts.append(torch.stack([mark.sum(1) for mark in of_samples]))
    numbers = torch.cat(counts, 1).numpy().astype("<u2")
    return {"examples_right": base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode()}


def read_examples(text: str) -> np.ndarray:
    """int64 (2, examples): right answers and answers of each."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<u2")
    return numbers.reshape(2, -1).astype(np.int64)


def with_test_set(over_seeds: Interval, right: np.ndarray, answers: np.ndarray) -> Interval | None:
    """An interval over seeds, widened by a bootstrap over test examples.

    Half widths add in squares, so that what varies from seed to seed within an example counts
    twice: it covers at least what it says.

    Args:
        over_seeds: A mean with an interval; None comes back without one.
        right: Right answers (examples,), means over seeds; or differences of two arms.
        answers: Number of answers (examples,).
    """
    if math.isnan(over_seeds.low):
        return None
    random = np.random.default_rng(0)
    indices = random.integers(len(right), size=(_DRAWS, len(right)))
    means = right[indices].sum(1) / answers[indices].sum(1)
    low, high = np.quantile(means, (0.025, 0.975)) - right.sum() / answers.sum()
    value = over_seeds.value
    return Interval(
        value,
        value - math.hypot(value - over_seeds.low, low),
        value + math.hypot(over_seeds.high - value, high),
        over_seeds.seeds,
        TEST_SET,
    )
