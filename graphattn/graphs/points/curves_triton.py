# mypy: allow-incomplete-defs
"""Ranks of cells along a curve on a GPU, in one launch; in plain operations they are a thousand."""

import torch
import triton
import triton.language as tl
from torch import Tensor

AXES = 3  # most axes of a cell
_BLOCK = 256  # cells of a program


@triton.jit
def _turned(first, axis, level):
    """A level of Skilling's inverse of the rotations, for the first axis and another."""
    low = (tl.full((), 1, tl.int64) << level) - 1
    is_high = (axis >> level & 1) == 1
    swap = tl.where(is_high, 0, (first ^ axis) & low)
    return first ^ tl.where(is_high, low, swap), axis ^ swap


@triton.jit(do_not_specialize=["N", "bits"])
def _rank(
    CELL, KEY, N, bits, NUMBER: tl.constexpr, HILBERT: tl.constexpr, SWAPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """KEY int64 (N,) of CELL int64 (N, NUMBER) below ``2 ** bits``."""
    cell = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = cell < N
    at = CELL + cell * NUMBER
    x = tl.load(at + SWAPPED, mask=live, other=0)
    y = tl.zeros_like(x)
    z = tl.zeros_like(x)
    if NUMBER > 1:
        y = tl.load(at + 1 - SWAPPED, mask=live, other=0)
    if NUMBER > 2:
        z = tl.load(at + 2, mask=live, other=0)
    if HILBERT:
        for down in range(1, bits):
            level = bits - down
            x ^= tl.where((x >> level & 1) == 1, (tl.full((), 1, tl.int64) << level) - 1, 0)
            if NUMBER > 1:
                x, y = _turned(x, y, level)
            if NUMBER > 2:
                x, z = _turned(x, z, level)
    key = tl.zeros_like(x)
    for level in range(0, bits):
        place = level * NUMBER
        key |= (x >> level & 1) << place + NUMBER - 1
        if NUMBER > 1:
            key |= (y >> level & 1) << place + NUMBER - 2
        if NUMBER > 2:
            key |= (z >> level & 1) << place
    if HILBERT:
        for power in tl.static_range(6):  # a Gray code to its number
            key ^= key >> (1 << power)
    tl.store(KEY + cell, key, mask=live)


def rank(cells: Tensor, is_hilbert: bool, is_swapped: bool, bits: int) -> Tensor:
    """int64 (N,) of cells int64 (N, d), ``d <= AXES``, without waiting for the device."""
    count, number = cells.shape
    key = torch.empty(count, dtype=torch.int64, device=cells.device)
    options = {"HILBERT": is_hilbert, "SWAPPED": int(is_swapped), "BLOCK": _BLOCK}
    if count:
        with torch.cuda.device_of(cells):
            grid = (triton.cdiv(count, _BLOCK),)
            _rank[grid](cells.contiguous(), key, count, bits, NUMBER=number, **options)
    return key
