"""Random edges drawn by a hash and never stored."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .edge_set import TestedByRow

_MASK = (1 << 64) - 1


def _signed(number: int) -> int:
    return (number & _MASK) - (1 << 64) * ((number & _MASK) >> 63)


def _mixed(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 on int64, whose products wrap; ``>>`` copies the sign, which is masked away."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


@dataclass(frozen=True, eq=False)
class Bernoulli(TestedByRow):
    """Every pair is an edge with the same probability, drawn by a hash of the pair: the same on every device.

    Source: Steele et al. 2014, "Fast splittable pseudorandom number generators" (SplitMix64), for the hash.
    """

    num_targets: int
    num_sources: int
    probability: float
    seed: int = 0

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        golden = _signed(0x9E3779B97F4A7C15)
        key = _mixed(_mixed(torch.tensor(self.seed, device=target.device) + golden) + target * golden)
        return (_mixed(key + source * golden + golden) >> 11) & ((1 << 53) - 1) < int(self.probability * (1 << 53))
