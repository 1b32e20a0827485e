"""Colours of answers: those of pictures of shapes."""

import torch
from torch import Tensor

from ...viz.colours import LABELS, RISING, ramp, rgb_of


def of_classes(numbers: Tensor) -> Tensor:
    """(N, 3) of classes (N,), from 0 to 1; colours repeat after twelve classes."""
    return torch.tensor(
        [rgb_of(LABELS[number % len(LABELS)]).tolist() for number in numbers.tolist()]
    )


def of_numbers(values: Tensor, mean: float, deviation: float) -> Tensor:
    """(N, 3) of numbers (N,): dark to bright over two deviations to either side."""
    share = (values.double() - mean) / (4 * max(deviation, 1e-30)) + 0.5
    return torch.from_numpy(ramp(share.numpy(), RISING)).float()
