"""Paired differences over shapes, and the t interval of a mean."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Difference(NamedTuple):
    """A mean over shapes with its 95 % t interval; no interval of one shape, nor where all differ alike."""

    mean: float
    low: float | None
    high: float | None
    shapes: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f}" + ("" if self.low is None else f" [{self.low:+.3f}, {self.high:+.3f}]")

    @property
    def said(self) -> str:
        """So much more, or so much less."""
        if self.mean >= 0:
            return f"{self} more"
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return f"{Difference(-self.mean, low, high, self.shapes)} less"


def difference(values: Tensor) -> Difference:
    """Of differences (n,), one for each shape.

    Example:
        >>> import torch
        >>> print(difference(torch.tensor([0.1, 0.2, 0.3])))
        +0.200 [-0.048, +0.448]
    """
    values = values.double()
    mean, half = float(values.mean()), half_width(values.tolist()) if len(values) > 1 else 0.0
    if half == 0:
        return Difference(mean, None, None, len(values))
    return Difference(mean, mean - half, mean + half, len(values))


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % t interval of a mean, of two values or more."""
    from scipy.stats import sem, t

    return float(t.ppf(0.975, len(values) - 1) * sem(values))
