"""Statistics of paired seeds: t intervals, exact sign-flip tests, Holm's correction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TESTED = 10
"""Seeds from which on differences are tested: with 5 the least p of a sign-flip test is .0625."""
JUDGED = 8
"""Seeds from which on an interval may keep or refute a prediction; with fewer, differences are only shown."""
SHOWN = 3
"""Seeds from which on an interval is given: with 2 it is 12.7 standard errors wide to each side, and says nothing."""
EXACT = 16
"""Seeds up to which every pattern of signs is tried."""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % t interval: a percentile bootstrap of 5 seeds covers 84 %, this one 95 %.

    Args:
        mean: Of the seeds.
        low: Lower end; NaN of fewer than 3 seeds.
        high: Upper end.
        seeds: How many.
    """

    mean: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.mean:.3f} ({self.seeds} seed{'s' * (self.seeds > 1)})"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % t interval; of fewer than 3 seeds the mean alone.

    Example:
        >>> print(interval([0.1, 0.2, 0.3]))
        0.200 [-0.048, 0.448]
    """
    from ..training.difference import limits

    mean, n = float(np.mean(values)), len(values)
    low, high = limits(values) if n >= SHOWN else (math.nan, math.nan)
    return Interval(mean, low, high, n)


def sign_flip(differences: Sequence[float]) -> float:
    """Two-sided p of paired differences: the share of patterns of signs whose mean is as far from 0.

    Exact up to 16 seeds; with more, 99,999 patterns drawn with a fixed seed.

    Example:
        >>> sign_flip([1.0, 2.0, 3.0])  # the least that 3 seeds can give
        0.25
    """
    from scipy.stats import permutation_test

    resamples = np.inf if len(differences) <= EXACT else 99_999
    found = permutation_test(
        (np.asarray(differences, dtype=float),),
        np.mean,
        permutation_type="samples",
        n_resamples=resamples,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """p adjusted for as many claims as there are: the chance that any is wrong stays below the level.

    Source: Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, most = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        most = max(most, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = most
    return adjusted
