"""Memory for results, cached between calls: fresh pages from the system cost as much as the work on them."""

import math
import weakref

import numpy as np
import torch
from torch import Tensor

SMALLEST = 1 << 20  # bytes; smaller pieces come from the heap, which keeps its pages
KEPT = 256 << 20  # bytes kept at most, and so the largest piece that is kept

_free: dict[int, np.ndarray] = {}  # by identity, the longest unused first; its single operations are atomic


def room(dtype: np.dtype, *shape: int) -> Tensor:
    """An empty tensor on the CPU, of a numpy dtype, whose memory returns to the cache when nothing refers to it.

    It is allocated by numpy, which asks the system for huge pages where torch does not. A numpy array that outlives
    the tensor must come from ``tensor.numpy()``, which keeps a reference.
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
        if size <= piece.nbytes <= size * 1.25 and _free.pop(key, None) is not None:  # else another thread was first
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
