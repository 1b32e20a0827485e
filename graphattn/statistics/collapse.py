"""Runs that fall into two groups: a rule that finds them, and the runs that are typical."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

GAP = 0.1
"""Least distance of two groups of scores, in units of the score."""
WIDTH = 0.01
"""Least width that a group counts with: scores of few answers are often equal by chance."""
_RATIOS = {3: 81.0, 4: 10.3, 5: 4.8, 6: 3.1, 7: 2.3, 8: 1.8, 9: 1.5}
_RATIO = 1.3  # from 10 seeds on
RULE = (
    f"Runs count as collapsed where the widest gap between their sorted scores is {GAP:g} or more, "
    f"and wider than each of the two groups beside it, or than {WIDTH:g}, by a factor that one "
    f"normal sample in 50 exceeds ({_RATIOS[5]:g} of 5 seeds, {_RATIOS[6]:g} of 6, {_RATIO:g} of "
    "10 and more)."
)


@dataclass(frozen=True)
class Groups:
    """Two groups of runs.

    Args:
        low: Scores below the gap, sorted.
        high: Scores above it.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __str__(self) -> str:
        runs = len(self.low) + len(self.high)
        low = float(np.mean(self.low))
        high = float(np.mean(self.high))
        return f"{len(self.low)} of {runs} runs about {low:.3f}, {len(self.high)} about {high:.3f}"


def groups_of(scores: Sequence[float]) -> Groups | None:
    """The groups that scores fall into, by :data:`RULE`; None where they are one.

    Example:
        >>> print(groups_of([0.98, 0.13, 0.99, 0.98, 0.98, 0.99]))
        1 of 6 runs about 0.130, 5 about 0.984
        >>> groups_of([0.98, 0.93, 0.99, 0.98, 0.98, 0.99])
        >>> groups_of([0.5, 0.5, 0.7])
    """
    x = sorted(scores)
    if len(x) < min(_RATIOS) or not all(map(math.isfinite, x)):
        return None
    gaps = np.diff(x)
    cut = int(gaps.argmax()) + 1
    low = x[:cut]
    high = x[cut:]
    widest = max(low[-1] - low[0], high[-1] - high[0], WIDTH)
    gap = float(gaps[cut - 1])
    if gap < GAP or gap <= _RATIOS.get(len(x), _RATIO) * widest:
        return None
    return Groups(tuple(low), tuple(high))


def typical_runs(scores: Sequence[float]) -> np.ndarray | None:
    """bool (runs,): True for runs above the gap, that did not collapse; all without two groups.

    None where fewer than two thirds of the runs are above it: then no run is typical.

    Args:
        scores: Higher is better.

    Example:
        >>> typical_runs([0.98, 0.93, 0.99]).tolist()
        [True, True, True]
        >>> typical_runs([0.98, 0.13, 0.99, 0.98, 0.97, 0.99]).tolist()
        [True, False, True, True, True, True]
        >>> typical_runs([0.13, 0.14, 0.99, 0.98, 0.12, 0.13, 0.99])
    """
    values = np.asarray(scores, dtype=float)
    groups = groups_of(scores)
    if groups is None:
        return np.ones(len(values), dtype=bool)
    if len(groups.high) * 3 < len(values) * 2:
        return None
    return values >= groups.high[0]


def typical_pairs(
    differences: Sequence[float], scores: Sequence[Sequence[float]] = ()
) -> np.ndarray | None:
    """bool (seeds,): True where the runs of both arms are typical, and their difference is.

    None where an arm, or what is left of the differences, has no typical run.

    Args:
        differences: Of two arms, paired by seed.
        scores: Of each of the two arms on these seeds, where they are known; higher is better.
    """
    mask = np.ones(len(differences), dtype=bool)
    for of_arm in scores:
        typical = typical_runs(of_arm)
        if typical is None:
            return None
        mask &= typical
    left = np.asarray(differences, dtype=float)[mask]
    groups = groups_of(left.tolist())
    if groups is not None and len(groups.low) > len(groups.high):
        left = -left  # the larger group may be on either side of the gap
    larger = typical_runs(left.tolist())
    if larger is None:
        return None
    mask[mask] = larger
    return mask


def unseen(seeds: int) -> float:
    """The largest share of runs that may collapse, at 95 %, where none of so many did.

    Example:
        >>> round(unseen(10), 2)
        0.26
    """
    return 1 - float(0.05 ** (1 / seeds))


def share_test(hits: int, runs: int, other_hits: int, other_runs: int) -> float:
    """Two-sided p of Fisher's exact test of two shares of runs.

    Example:
        >>> round(share_test(5, 5, 0, 5), 4)
        0.0079
    """
    from scipy.stats import fisher_exact

    table = [[hits, runs - hits], [other_hits, other_runs - other_hits]]
    return float(fisher_exact(table).pvalue)


def share_difference(
    hits: int, runs: int, other_hits: int, other_runs: int
) -> tuple[float, float, float]:
    """The difference of two shares and its 95 % interval, from those of Wilson.

    Source: Newcombe 1998, "Interval Estimation for the Difference Between Independent Proportions",
    method 10.
    """
    from scipy.stats import binomtest

    interval = binomtest(hits, runs).proportion_ci(method="wilson")
    other_interval = binomtest(other_hits, other_runs).proportion_ci(method="wilson")
    share = hits / runs
    other_share = other_hits / other_runs
    below = math.hypot(share - interval.low, other_interval.high - other_share)
    above = math.hypot(interval.high - share, other_share - other_interval.low)
    difference = share - other_share
    return difference, difference - below, difference + above
