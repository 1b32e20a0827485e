"""Colours of classes and of numbers, without matplotlib."""

import colorsys

import numpy as np
import torch
from torch import Tensor

from ..viz.colours import ramp, rgb_of

# Okabe and Ito 2008, and brown
_FIRST = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#8C564B",
)
_RAMP = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")  # of viridis
_ERROR = ("#d9dee4", "#f2a65a", "#b3121d")


def of_classes(count: int) -> Tensor:
    """(K, 3) from 0 to 1: as different as they can be."""
    rest = [colorsys.hsv_to_rgb(n * 0.618 % 1, 0.55 + 0.4 * (n % 2), 0.85 - 0.3 * (n % 3) / 2) for n in range(count)]
    return torch.cat((_rgb(_FIRST), torch.tensor(rest).reshape(-1, 3)))[:count]


def of_numbers(values: Tensor, low: float, high: float) -> Tensor:
    """(N, 3) of numbers (N,), dark to bright."""
    return _along(_RAMP, (values.float() - low) / max(high - low, 1e-30))


def of_errors(values: Tensor, most: float) -> Tensor:
    """(N, 3) of errors (N,): grey where there is none, red at ``most``."""
    return _along(_ERROR, values.float() / max(most, 1e-30))


def _rgb(codes: tuple[str, ...]) -> Tensor:
    return torch.from_numpy(np.stack([rgb_of(code) for code in codes])).float()


def _along(colours: tuple[str, ...], share: Tensor) -> Tensor:
    return torch.from_numpy(ramp(share.clamp(0, 1).double().numpy(), colours)).float()
