"""Frequencies of rotary positions for texts longer than those of training."""

import math
from dataclasses import dataclass

from torch import Tensor

from ..arguments import positive, real


class RotaryScaling:
    """A change of the frequencies of :class:`~graphattn.nn.Rotary`: a function of them and of theta."""

    def __call__(self, frequency: Tensor, base: float) -> Tensor:
        """Scaled frequencies (d / 2,), from theta to the power ``-2 i / d``."""
        raise NotImplementedError


@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """All frequencies divided by ``factor``: positions are interpolated.

    Source: Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation".
    """

    factor: float

    def __post_init__(self) -> None:
        positive(self.factor, "factor")

    def __call__(self, frequency: Tensor, base: float) -> Tensor:
        return frequency / self.factor


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    r"""Slow frequencies divided by ``factor``, fast ones kept, those in between mixed.

    With r the periods of a frequency in ``length`` tokens: those with :math:`r < low` are divided, those with
    :math:`r > high` kept, and between them the share :math:`(r - low) / (high - low)` is kept.

    Args:
        factor: Ratio of the lengths of the new texts and those of training.
        length: Tokens of a text in training.
        low: Periods up to which a frequency is divided.
        high: Periods from which it is kept, above ``low``.

    Source: Llama 3.1's published code, ``apply_scaling``.

    Example:
        >>> from graphattn.nn import Rotary
        >>> Rotary(head_dim=128, base=500000.0, scaling=Llama3Scaling(factor=8.0, length=8192)).rotary_dim
        128
    """

    factor: float
    length: int
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        positive(self.factor, "factor")
        positive(self.length, "length")
        positive(real(self.high, "high") - real(self.low, "low"), "high - low")

    def __call__(self, frequency: Tensor, base: float) -> Tensor:
        turns = self.length * frequency / (2 * math.pi)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - kept) * frequency / self.factor + kept * frequency
