"""Paired differences over shapes, and 95 % intervals of means: of any numbers, and of shares."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Difference(NamedTuple):
    """A mean over shapes with its 95 % interval.

    One shape has no interval, nor have shapes that all differ by the same number.
    """

    mean: float
    low: float | None
    high: float | None
    shapes: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f}" + (
            "" if self.low is None else f" [{self.low:+.3f}, {self.high:+.3f}]"
        )

    @property
    def is_negative(self) -> bool:
        """True if the whole interval is below 0."""
        return self.high is not None and self.high < 0

    @property
    def in_words(self) -> str:
        """The difference in words: so much more, so much less, or the same."""
        if self.mean == 0 and self.low is None:
            return "the same"
        if self.mean >= 0:
            return f"{self} more"
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return f"{Difference(-self.mean, low, high, self.shapes)} less"

    def than(self, name: str) -> str:
        """The difference from something in words: more than it, or the same as it."""
        if self.in_words == "the same":
            return f"{self.in_words} as {name}"
        return f"{self.in_words} than {name}"

    @property
    def unit(self) -> str:
        """Number of shapes that the mean is over, and the reason for a missing interval."""
        if self.shapes == 1:
            return "1 shape, so no interval"
        words = f"mean over {self.shapes:,} shapes"
        if self.low is not None:
            return f"{words} and its 95 % interval"
        if self.mean == 0:
            return f"{words}; all answered alike, so no interval"
        return f"{words}; all differ by as much, so no interval"


def difference(values: Tensor, bounds: tuple[float, float] | None = None) -> Difference:
    """Mean and interval of differences (n,), one for each shape; ``bounds`` are their limits.

    Example:
        >>> import torch
        >>> print(difference(torch.tensor([0.1, 0.2, 0.3])))
        +0.200 [-0.048, +0.448]
    """
    values = values.double()
    if len(values) > 1:
        low, high = limits(values.tolist(), bounds)
    else:
        low = 0.0
        high = 0.0
    has_interval = -math.inf < low < high < math.inf
    return Difference(
        float(values.mean()),
        low if has_interval else None,
        high if has_interval else None,
        len(values),
    )


def limits(
    values: Sequence[float], bounds: tuple[float, float] | None = None
) -> tuple[float, float]:
    """The 95 % t interval of a mean of two values or more, kept within ``bounds``.

    That is Wilson's interval of a share, for as many draws as would have the values' standard
    error: that of the t interval to first order, and unsymmetrical near a bound.

    Source: Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference"; the
    number of draws as in Kish 1965, "Survey Sampling".

    Example:
        >>> "{:.3f} {:.3f}".format(*limits([0.9, 0.95, 1.0])), "{:.3f} {:.3f}".format(*limits([0.9, 0.95, 1.0], (0, 1)))
        ('0.826 1.074', '0.685 0.994')
    """
    from scipy.stats import sem, t

    mean = sum(values) / len(values)
    half = float(t.ppf(0.975, len(values) - 1) * sem(values))
    if bounds is None or half == 0:
        return mean - half, mean + half
    low = bounds[0]
    width = bounds[1] - bounds[0]
    share = (mean - low) / width
    half = half / width
    draws = half**2 / (share * (1 - share))  # the square of the quantile over their number
    centre = (share + draws / 2) / (1 + draws)
    half = math.hypot(half, draws / 2) / (1 + draws)
    return low + width * max(0.0, centre - half), low + width * min(1.0, centre + half)
