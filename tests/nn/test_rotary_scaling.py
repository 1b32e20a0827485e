"""Scaled frequencies of a rotary: what is no number above 0 is refused when it is given."""

import math

import pytest
import torch

from graphattn.errors import OptionError
from graphattn.nn import LinearScaling, Llama3Scaling, YarnScaling


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: LinearScaling(0.0), "factor"),
        (lambda: LinearScaling(-2.0), "factor"),
        (lambda: Llama3Scaling(0.0, 64), "factor"),
        (lambda: Llama3Scaling(8.0, 0), "length"),
        (lambda: Llama3Scaling(8.0, 64, low=4.0, high=4.0), "high - low"),
        (lambda: YarnScaling(0.0, 64), "factor"),
        (lambda: YarnScaling(8.0, 0), "length"),
    ],
)
def test_numbers_are_above_0(make, name):
    with pytest.raises(OptionError, match=f"{name} must be"):
        make()


@pytest.mark.parametrize(("high", "length"), [(300.0, 2000), (32.0, 64), (20.0, 200)])
def test_yarn_mixes_by_the_number_of_the_pair(high, length):
    """As its published code: from the pair of ``high`` turns to that of ``low``, within the width of the head."""
    pairs, base = 8, 10.0
    ends = [pairs * math.log(length / (2 * math.pi * turns)) / math.log(base) for turns in (high, 1.0)]
    first, last = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), 2 * pairs - 1)
    frequency = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    share = ((torch.arange(pairs, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    found = YarnScaling(8.0, length, high=high)(frequency, base)
    torch.testing.assert_close(found, share * frequency / 8 + (1 - share) * frequency, rtol=1e-12, atol=0)
    assert bool((share > 0).any())


def test_llama_keeps_fast_frequencies_divides_slow_ones_and_mixes_between():
    turns = torch.tensor([0.25, 1.0, 1.75, 2.5, 4.0, 9.0], dtype=torch.float64)
    frequency = turns * 2 * torch.pi / 64
    found = Llama3Scaling(8.0, 64)(frequency, 10_000.0) / frequency
    kept = torch.tensor([0.0, 0.0, 0.25, 0.5, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found, kept + (1 - kept) / 8, rtol=1e-12, atol=0)
