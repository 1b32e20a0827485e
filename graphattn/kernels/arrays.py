"""Tensors as the edge kernels read and write them."""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .memory import room

_HALVES = {torch.bfloat16: torch.int16, torch.float16: torch.uint16}  # as the kernels take them


def dtype_of_sums(x: Tensor) -> torch.dtype:
    """The dtype that the kernels add in."""
    return torch.promote_types(x.dtype, torch.float32)


def array(x: Tensor | None, dtype: torch.dtype, dims: int = 3) -> np.ndarray:
    """A contiguous array; an absent tensor has no entries."""
    return _absent(dtype, dims) if x is None else x.detach().to(dtype).contiguous().numpy()


@cache
def _absent(dtype: torch.dtype, dims: int) -> np.ndarray:
    return torch.empty((0,) * dims, dtype=dtype).numpy()


def empty(dtype: torch.dtype, *shape: int) -> Tensor:
    """Room for results, from memory that is kept."""
    held = room(_absent(_HALVES.get(dtype, dtype), 1).dtype, *shape)
    return held.view(dtype) if dtype in _HALVES else held


def eights(width: int) -> int:
    """How many times eight numbers the kernels read for a row of ``width``."""
    return max(1, -(-width // 8))


def nodes(x: Tensor) -> tuple[np.ndarray, int, int, int]:
    """(B, N, H, D) as the kernels read it: all its numbers, and the strides of batch, node and head.

    A copy is made where a row is not contiguous, or its width no multiple of eight.
    """
    x, spare = x.detach(), 8 * eights(x.shape[-1]) - x.shape[-1]
    if spare:
        x = F.pad(x, (0, spare))
    if x.stride(-1) != 1:
        x = x.contiguous()
    batch, node, head, _ = x.stride()
    if x.is_contiguous():
        flat = x.view(-1)
    else:
        span = 0 if x.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
        flat = torch.as_strided(x, (span,), (1,))
    return (flat.view(_HALVES[x.dtype]) if x.dtype in _HALVES else flat).numpy(), batch, node, head


def width(x: Tensor) -> tuple[int, ...]:
    """The width of rows of nodes, as the kernels have it."""
    return (0,) * eights(x.shape[-1])


def results(like: Tensor, *shape: int) -> Tensor:
    """Where the kernels write nodes (B, N, H, D), in the dtype of ``like``, with room for their width."""
    return empty(like.dtype, *shape[:-1], 8 * eights(shape[-1]))


def narrow(x: Tensor, like: Tensor) -> Tensor:
    """What :func:`results` holds, in the width of ``like``."""
    return x if x.shape[-1] == like.shape[-1] else x[..., : like.shape[-1]].contiguous()


def widest(ptr: np.ndarray) -> int:
    """The most edges of a row."""
    return int(np.diff(ptr).max(initial=0))
