"""Paired differences over shapes."""

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


def difference(values: Tensor) -> Difference:
    """Of differences (n,), one for each shape.

    Example:
        >>> import torch
        >>> print(difference(torch.tensor([0.1, 0.2, 0.3])))
        +0.200 [-0.048, +0.448]
    """
    from scipy.stats import ttest_1samp

    values = values.double()
    mean, many = float(values.mean()), len(values)
    if many < 2 or float(values.std()) == 0:
        return Difference(mean, None, None, many)
    low, high = ttest_1samp(values.numpy(), 0.0).confidence_interval(0.95)
    return Difference(mean, float(low), float(high), many)
