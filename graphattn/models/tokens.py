"""Tokens as they come in."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import outside
from ..errors import PositionIndexError, ShapeError
from ..kernels.modes import can_read_values


def check_lengths(lengths: Any, source: Tensor) -> None:
    """Refuse what does not say of each sequence (..., S) how many of its tokens are there."""
    longest, wanted = source.shape[-1], tuple(source.shape[:-1])
    kinds = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    if not isinstance(lengths, Tensor) or lengths.dtype not in kinds or tuple(lengths.shape) != wanted:
        got = f"{lengths.dtype} {tuple(lengths.shape)}" if isinstance(lengths, Tensor) else repr(lengths)
        raise ShapeError(f"lengths must be a tensor of {wanted} integers in [1, {longest}], got {got}")
    if can_read_values(lengths) and bool(((lengths < 1) | (lengths > longest)).any()):
        least, most = int(lengths.min()), int(lengths.max())
        raise ShapeError(f"lengths must be a tensor of {wanted} integers in [1, {longest}], got {least} to {most}")


def check_tokens(name: str, tokens: Any, size: int) -> None:
    """Refuse what is no integer (..., N), or outside a table of ``size`` rows."""
    if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int32, torch.int64) or tokens.dim() < 1:
        kind = f"{tokens.dtype} {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ShapeError(f"{name} must be an int64 or int32 tensor (..., nodes), got {kind}")
    if tokens.is_meta and can_read_values(tokens):
        raise ShapeError(f"{name} is on meta, whose tensors hold no numbers; move it to a device that does")
    bad = outside(tokens, size) if can_read_values(tokens) else ""
    if bad:
        raise PositionIndexError(f"{name} must be in [0, {size}), the rows of the table; got {bad}")
