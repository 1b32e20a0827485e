"""Tensors as arrays of the edge kernels, and memory for results, cached: fresh pages cost as much
as the work.
"""

import math
import weakref
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST = 1 << 20  # bytes; smaller pieces come from the heap, which keeps its pages
KEPT = 256 << 20  # bytes kept at most, and so the largest piece that is kept

_free: dict[
    int, np.ndarray
] = {}  # by identity, the longest unused first; its single operations are atomic


def room(dtype: np.dtype, *shape: int) -> Tensor:
    """An empty tensor on the CPU, of a numpy dtype, whose memory returns to the cache when nothing
    refers to it.

    It is allocated by numpy, which asks the system for huge pages where torch does not. A numpy
    array that outlives the tensor must come from ``tensor.numpy()``, which keeps a reference.
    """
    size = math.prod(shape) * dtype.itemsize
    if not SMALLEST <= size <= KEPT:
        return torch.from_numpy(np.empty(shape, dtype))
    owner = _taken(size)
    if owner is None:
        owner = np.empty(size, np.uint8)
    held = owner[:size].view(dtype).reshape(shape)
    weakref.finalize(held, _give_back, owner).atexit = False
    return torch.from_numpy(held)  # keeps a reference to ``held``


def _taken(size: int) -> np.ndarray | None:
    """A free piece that is at most a quarter too large."""
    for key, piece in list(_free.items()):
        # else another thread was first
        if size <= piece.nbytes <= size * 1.25 and _free.pop(key, None) is not None:
            return piece
    return None


def _give_back(owner: np.ndarray) -> None:
    """Cache a piece, and free the oldest if the cache is full."""
    _free[id(owner)] = owner
    pieces = list(_free.items())
    excess = sum(piece.nbytes for _, piece in pieces) - KEPT
    for key, piece in pieces:
        if excess <= 0:
            return
        _free.pop(key, None)
        excess -= piece.nbytes


#: Halves in the code of a width.
_HALVES = {torch.bfloat16: np.dtype(np.int16), torch.float16: np.dtype(np.uint16)}


def dtype_of_sums(x: Tensor) -> torch.dtype:
    """The dtype of the kernels' sums."""
    return torch.promote_types(x.dtype, torch.float32)


def array(x: Tensor | None, dtype: torch.dtype, dims: int = 3) -> np.ndarray:
    """A contiguous array; an absent tensor has no entries."""
    if x is None:
        return _absent(dtype, dims)
    return x.detach().to(dtype).contiguous().numpy()


@cache
def _absent(dtype: torch.dtype, dims: int) -> np.ndarray:
    return torch.empty((0,) * dims, dtype=dtype).numpy()


def empty(dtype: torch.dtype, *shape: int) -> Tensor:
    """An uninitialised array for results, from cached memory."""
    held = room(_absent(torch.int16 if dtype in _HALVES else dtype, 1).dtype, *shape)
    if dtype in _HALVES:
        return held.view(dtype)
    return held


def eights(width: int) -> int:
    """The number of groups of eight that the kernels read for a row of ``width``."""
    return max(1, -(-width // 8))


def nodes(x: Tensor) -> tuple[np.ndarray, int, int, int]:
    """(B, N, H, D) for kernels that read rows by the code of a width: its bytes, and strides of
    batch, node and head.

    Strides count numbers. A copy is made if rows are not contiguous, or their width is not a
    multiple of eight.
    """
    flat, batch, node, head = _flat(x)
    return flat.view(torch.uint8).numpy(), batch, node, head


def numbers(x: Tensor) -> tuple[np.ndarray, int, int, int]:
    """:func:`nodes` for kernels of one dtype, float32 or float64: the numbers in place of bytes."""
    flat, batch, node, head = _flat(x)
    return flat.numpy(), batch, node, head


def _flat(x: Tensor) -> tuple[Tensor, int, int, int]:
    x, spare = x.detach(), 8 * eights(x.shape[-1]) - x.shape[-1]
    if spare:
        x = F.pad(x, (0, spare))
    if x.stride(-1) != 1:
        x = x.contiguous()
    batch, node, head, _ = x.stride()
    if x.is_contiguous():
        return x.view(-1), batch, node, head
    if x.numel() == 0:
        span = 0
    else:
        span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return torch.as_strided(x, (span,), (1,)), batch, node, head


def width(x: Tensor, index: np.ndarray, edge: np.ndarray) -> Any:
    """The :class:`graphattn.kernels.widths.Width` of rows of nodes, for indices of nodes and edges
    of one dtype.
    """
    if index.dtype != edge.dtype:  # addresses have no types
        raise TypeError(
            f"indices of nodes and edges must have one dtype, got {index.dtype} and {edge.dtype}"
        )
    from .widths import code_of_width

    sums = _absent(dtype_of_sums(x), 1).dtype
    return code_of_width(eights(x.shape[-1]), _HALVES.get(x.dtype, sums), sums, index.dtype)


def results(like: Tensor, *shape: int) -> Tensor:
    """An array for nodes (B, N, H, D) that the kernels write, in the dtype of ``like`` and their
    padded width.
    """
    return empty(like.dtype, *shape[:-1], 8 * eights(shape[-1]))


def narrow(x: Tensor, like: Tensor) -> Tensor:
    """The array of :func:`results` cut to the width of ``like``."""
    if x.shape[-1] == like.shape[-1]:
        return x
    return x[..., : like.shape[-1]].contiguous()


def widest(ptr: np.ndarray) -> int:
    """The most edges of a row."""
    return int(np.diff(ptr).max(initial=0))
