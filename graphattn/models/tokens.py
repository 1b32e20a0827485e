"""Checks of tokens and lengths."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import outside, shown
from ..errors import PositionIndexError, ShapeError
from ..kernels.modes import can_read_values


def check_lengths(lengths: Any, source: Tensor) -> None:
    """Refuse anything but a number of valid tokens for each sequence (..., S)."""
    longest, wanted = source.shape[-1], tuple(source.shape[:-1])
    wrong = not isinstance(lengths, Tensor) or lengths.is_floating_point() or lengths.dtype == torch.bool
    if wrong or tuple(lengths.shape) != wanted:
        raise ShapeError(f"lengths must be a tensor of {wanted} integers in [1, {longest}], got {shown(lengths)}")
    if can_read_values(lengths) and bool(((lengths < 1) | (lengths > longest)).any()):
        least, most = int(lengths.min()), int(lengths.max())
        raise ShapeError(f"lengths must be a tensor of {wanted} integers in [1, {longest}], got {least} to {most}")


def check_tokens(name: str, tokens: Any, size: int) -> None:
    """Refuse anything but integers (..., N) within a table of ``size`` rows."""
    if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int32, torch.int64) or tokens.dim() < 1:
        raise ShapeError(f"{name} must be an int64 or int32 tensor (..., nodes), got {shown(tokens)}")
    bad = outside(tokens, size) if can_read_values(tokens) else ""
    if bad:
        raise PositionIndexError(f"{name} must be in [0, {size}), the rows of the table; got {bad}")
