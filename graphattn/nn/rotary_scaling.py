"""Frequencies of rotary positions for texts longer than those that a model was trained on."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import positive, real


class RotaryScaling:
    """What :class:`~graphattn.nn.Rotary` does to its frequencies: a function of them and of theta."""

    @property
    def amplitude(self) -> float:
        """Factor on every turned channel of queries and keys."""
        return 1.0

    def __call__(self, frequency: Tensor, base: float) -> Tensor:
        """Frequencies (d / 2,), theta to the power ``-2 i / d``, made others."""
        raise NotImplementedError


@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """All frequencies divided by ``factor``: positions lie closer.

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

    With r the turns that a frequency makes in ``length`` tokens: those with :math:`r < low` are divided, those with
    :math:`r > high` kept, and between them the share :math:`(r - low) / (high - low)` is kept.

    Args:
        factor: How many times longer the texts are.
        length: Tokens that the model was trained on.
        low: Turns up to which a frequency is divided.
        high: Turns from which it is kept, above ``low``.

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


@dataclass(frozen=True)
class YarnScaling(RotaryScaling):
    r"""As :class:`Llama3Scaling`, with the share linear in the number of the pair, and larger queries and keys.

    Args:
        factor: How many times longer the texts are.
        length: Tokens that the model was trained on.
        low: Turns in ``length`` tokens up to which a frequency is divided.
        high: Turns from which it is kept, above ``low``.
        whole: Whether the numbers of the first and the last pair that are mixed are rounded outwards.
        attention_factor: On queries and keys; ``0.1 log(factor) + 1`` by default, and 1 where factor is below 1.

    Source: Peng et al. 2024, "YaRN", section 3.2 and equation 22. *What differs:* as in their code, and not in
    equation 18, the share is linear in the pair's number, not in its turns.
    """

    factor: float
    length: int
    low: float = 1.0
    high: float = 32.0
    whole: bool = True
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        positive(self.factor, "factor")
        positive(self.length, "length")
        positive(real(self.high, "high") - real(self.low, "low"), "high - low")
        positive(self.amplitude, "attention_factor")

    @property
    def amplitude(self) -> float:
        """Factor on every turned channel of queries and keys."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0

    def _pair(self, turns: float, num_pairs: int, base: float) -> float:
        """The number of the pair, a real one, that makes so many turns."""
        return num_pairs * math.log(self.length / (2 * math.pi * turns)) / math.log(base)

    def __call__(self, frequency: Tensor, base: float) -> Tensor:
        n = len(frequency)
        first, last = self._pair(self.high, n, base), self._pair(self.low, n, base)
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * n - 1)
        number = torch.arange(n, dtype=frequency.dtype, device=frequency.device)
        divided = ((number - first) / (last - first or 0.001)).clamp(0, 1)
        return divided * frequency / self.factor + (1 - divided) * frequency
