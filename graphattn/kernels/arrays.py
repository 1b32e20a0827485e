"""Tensors as operands of the edge kernels, and memory for results, cached: fresh pages cost as much
as the work.
"""

import math
import weakref
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..graph.modes import lru_cache

SMALLEST = 1 << 20  # bytes; smaller pieces come from the heap, which keeps its pages
CACHED = 256 << 20  # bytes cached at most, and so the largest piece that is cached

_free: dict[
    int, np.ndarray
] = {}  # by identity, the longest unused first; its single operations are atomic


def room(dtype: np.dtype, *shape: int) -> Tensor:
    """An empty tensor on the CPU, of a numpy dtype, whose memory returns to the cache after use.

    It is allocated by numpy, which asks the system for huge pages where torch does not. A numpy
    array that outlives the tensor must come from ``tensor.numpy()``, which keeps a reference.
    """
    size = math.prod(shape) * dtype.itemsize
    if not SMALLEST <= size <= CACHED:
        return torch.from_numpy(np.empty(shape, dtype))
    owner = _taken(size)
    if owner is None:
        owner = np.empty(size, np.uint8)
    view = owner[:size].view(dtype).reshape(shape)
    weakref.finalize(view, _give_back, owner).atexit = False
    return torch.from_numpy(view)  # keeps a reference to ``view``


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
    excess = sum(piece.nbytes for _, piece in pieces) - CACHED
    for key, piece in pieces:
        if excess <= 0:
            return
        _free.pop(key, None)
        excess -= piece.nbytes


def dtype_of_sums(x: Tensor) -> torch.dtype:
    """The dtype of the kernels' sums."""
    return torch.promote_types(x.dtype, torch.float32)


class Kinds(NamedTuple):
    """The key of machine code: dtypes of sums, of indices and of nodes, and the width of a row of
    nodes in groups of eight.
    """

    sums: torch.dtype
    indices: torch.dtype
    nodes: torch.dtype
    eights: int

    @classmethod
    def of(cls, x: Tensor, *indices: Tensor) -> "Kinds":
        """The key for rows of nodes and indices of one dtype."""
        first = indices[0].dtype
        for index in indices:
            if index.dtype != first:  # addresses have no types
                raise TypeError(
                    f"indices of nodes and edges must have one dtype, got {first} and {index.dtype}"
                )
        return cls(dtype_of_sums(x), first, x.dtype, eights(x.shape[-1]))

    @property
    def of_kernel(self) -> "Kinds":
        """The key of a kernel, which serves all widths and dtypes of nodes."""
        return Kinds(self.sums, self.indices, self.sums, 0)

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return 8 * self.eights

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.width * self.nodes.itemsize


class NodeRows(NamedTuple):
    """(B, N, H, D) as an operand: its memory, and strides of batch, node and head in bytes."""

    data: Tensor
    batch: int
    node: int
    head: int


def array(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A contiguous tensor of a dtype, if there is one."""
    if x is None:
        return None
    return x.detach().resolve_neg().to(dtype).contiguous()


def empty(dtype: torch.dtype, *shape: int) -> Tensor:
    """An uninitialised array for results, from cached memory."""
    return room(_stored_as(dtype), *shape).view(dtype)


@lru_cache(None)
def _stored_as(dtype: torch.dtype) -> np.dtype:
    """Numpy's dtype of the same size, of integers where it has no such halves."""
    if dtype.itemsize == 2:
        return np.dtype(np.int16)
    return np.dtype(str(dtype).removeprefix("torch."))


def eights(width: int) -> int:
    """The number of groups of eight that the kernels read for a row of ``width``."""
    return max(1, -(-width // 8))


def nodes(x: Tensor) -> NodeRows:
    """(B, N, H, D) for kernels.

    A copy is made if rows are not contiguous, or their width is not a multiple of eight.
    """
    if x.is_neg():  # a view whose numbers in memory have the other sign
        x = x.detach().resolve_neg()
    spare = 8 * eights(x.shape[-1]) - x.shape[-1]
    if spare:
        x = F.pad(x.detach(), (0, spare))
    if x.stride(-1) != 1:
        x = x.detach().contiguous()
    size = x.element_size()
    batch, node, head, _ = x.stride()
    return NodeRows(x, batch * size, node * size, head * size)


def results(like: Tensor, *shape: int) -> Tensor:
    """An array for nodes (B, N, H, D) that kernels write, in a dtype and their padded width."""
    return empty(like.dtype, *shape[:-1], 8 * eights(shape[-1]))


def narrow(x: Tensor, like: Tensor) -> Tensor:
    """The array of :func:`results` cut to the width of ``like``."""
    if x.shape[-1] == like.shape[-1]:
        return x
    return x[..., : like.shape[-1]].contiguous()
