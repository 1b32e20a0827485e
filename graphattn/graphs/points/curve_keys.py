"""Ranks of cells along the curves of Morton and Hilbert, in any number of dimensions."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Curve = Literal["z", "z-trans", "hilbert", "hilbert-trans"]
CURVES = ("z", "z-trans", "hilbert", "hilbert-trans")
KEY_BITS = 63  # of an int64


def curve_key(cells: Tensor, curve: Curve, bits: int) -> Tensor:
    """The rank on the curve of each cell: int64 (N,) for cells int64 (N, d) below ``2 ** bits``.

    The first axis has the highest bit of each level: ``... x_k y_k z_k ... x_0 y_0 z_0`` for
    ``"z"``.

    Example:
        >>> curve_key(torch.tensor([[1, 0], [0, 1], [2, 1]]), "z", 2).tolist()
        [2, 1, 9]
    """
    is_hilbert = curve.startswith("hilbert")
    is_swapped = curve.endswith("-trans") and cells.shape[1] > 1
    rank = _on_device(cells)
    if rank is not None:
        return rank(cells, is_hilbert, is_swapped, bits)
    axes = list(cells.unbind(1))
    if is_swapped:
        axes[:2] = reversed(axes[:2])
    if not is_hilbert:
        return _interleave(axes, bits)
    key = _interleave(_untwisted(axes, bits), bits)
    shift = 1
    while shift < KEY_BITS:  # a Gray code to its number
        key = key ^ (key >> shift)
        shift *= 2
    return key


def _on_device(cells: Tensor) -> Callable[..., Tensor] | None:
    """The function that ranks cells in one launch, where Triton runs."""
    if not cells.is_cuda or torch.cuda.get_device_capability(cells.device) < (8, 0):
        return None
    try:
        from .curves_triton import AXES, rank  # triton takes a second
    except ModuleNotFoundError:
        return None
    if not 0 < cells.shape[1] <= AXES:
        return None
    return rank


def _untwisted(axes: list[Tensor], bits: int) -> list[Tensor]:
    """Skilling's inverse of the rotations of each level: the Gray code of a cell's rank."""
    for level in range(bits - 1, 0, -1):
        low = (1 << level) - 1
        for i, _ in enumerate(axes):
            high = (axes[i] >> level & 1).bool()
            swap = torch.where(high, 0, (axes[0] ^ axes[i]) & low)  # 0 on the first axis
            axes[i] = axes[i] ^ swap
            axes[0] = axes[0] ^ torch.where(high, low, swap)
    return axes


def _interleave(axes: list[Tensor], bits: int) -> Tensor:
    key = torch.zeros_like(axes[0])
    for level in range(bits):
        for i, axis in enumerate(axes):
            key |= (axis >> level & 1) << (level * len(axes) + len(axes) - 1 - i)
    return key
