"""Scaled frequencies of a rotary: what is no number above 0 is refused when it is given."""

import pytest
import torch

from graphattn.errors import OptionError
from graphattn.nn import LinearScaling, Llama3Scaling


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: LinearScaling(0.0), "factor"),
        (lambda: LinearScaling(-2.0), "factor"),
        (lambda: Llama3Scaling(0.0, 64), "factor"),
        (lambda: Llama3Scaling(8.0, 0), "length"),
        (lambda: Llama3Scaling(8.0, 64, low=4.0, high=4.0), "high - low"),
    ],
)
def test_numbers_are_above_0(make, name):
    with pytest.raises(OptionError, match=f"{name} must be"):
        make()


def test_llama_keeps_fast_frequencies_divides_slow_ones_and_mixes_between():
    turns = torch.tensor([0.25, 1.0, 1.75, 2.5, 4.0, 9.0], dtype=torch.float64)
    frequency = turns * 2 * torch.pi / 64
    found = Llama3Scaling(8.0, 64)(frequency, 10_000.0) / frequency
    kept = torch.tensor([0.0, 0.0, 0.25, 0.5, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found, kept + (1 - kept) / 8, rtol=1e-12, atol=0)
