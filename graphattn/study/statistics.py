"""Statistics of paired seeds: intervals, exact sign-flip tests, Holm's correction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SHOWN = 3
"""Seeds from which on an interval is given: with 2 it is 12.7 standard errors wide to each side, and says nothing."""
EXACT, _DRAWN = 16, 99_999
"""Seeds up to which every pattern of signs is tried; patterns drawn with more."""
SHARES, DIFFERENCES = (0.0, 1.0), (-1.0, 1.0)
"""Bounds of accuracies, and of their differences."""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval: a percentile bootstrap of 5 seeds covers 84 %, this one 95 %. Near a bound that
    shares cannot pass, as of accuracies of mean .95 and deviation .05, it covers 93 %, and a plain t interval 89 %.

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


def interval(values: Sequence[float], bounds: tuple[float, float] | None = None) -> Interval:
    """Mean and 95 % interval, :func:`graphattn.training.difference.limits`; of fewer than 3 seeds the mean alone.

    Example:
        >>> print(interval([0.1, 0.2, 0.3]))
        0.200 [-0.048, 0.448]
    """
    from ..training.difference import limits

    mean, n = float(np.mean(values)), len(values)
    low, high = limits(values, bounds) if n >= SHOWN else (math.nan, math.nan)
    return Interval(mean, low, high, n)


def sign_flip(differences: Any) -> Any:
    """Two-sided p of paired differences (..., seeds): the share of patterns of signs whose sum is as far from 0.

    Exact up to 16 seeds; with more, 99,999 patterns drawn with a fixed seed. By hand, as ``permutation_test`` of scipy
    takes over a second for 16.

    Example:
        >>> float(sign_flip([1.0, 2.0, 3.0]))  # the least that 3 seeds can give
        0.25
    """
    x = np.asarray(differences, dtype=float)
    n = x.shape[-1]
    if n <= EXACT:  # all signs turned gives a sum as far away, so that the last one may stay
        signs = 1.0 - 2.0 * (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1)
    else:
        drawn = np.random.default_rng(0).choice((-1.0, 1.0), (_DRAWN, n))
        signs = np.concatenate((np.ones((1, n)), drawn))
    rounding = 1e-12 * np.abs(x).sum(-1, keepdims=True)
    return (np.abs(x @ signs.T) >= np.abs(x.sum(-1, keepdims=True)) - rounding).mean(-1)


def least_p(seeds: int) -> float:
    """What :func:`sign_flip` gives at least."""
    return 2.0 ** (1 - seeds) if seeds <= EXACT else 1 / (_DRAWN + 1)


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
