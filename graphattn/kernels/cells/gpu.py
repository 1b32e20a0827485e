"""Convolutions of cells on a GPU, as :mod:`.cells.operator` computes them on the CPU."""

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cuda.launches import on_device_of, sum_type
from . import triton as triton_cells

ROWS = 64  # targets of a program, or edges at once
WIDEST = 64  # channels of a block
SHARES = 16  # most programs that sum the outer products of an offset
EDGES_PER_SHARE = 1 << 11  # least edges of a share, in the mean


class CellSizes(NamedTuple):
    """Sizes that a kernel is compiled for: offsets, channels, and blocks of rows and channels."""

    K: int
    C: int
    O: int
    ROWS: int
    BC: int
    BO: int
    WIDE: Any
    PRECISION: str


def cell_products(
    x: Tensor,
    weight: Tensor,
    table: Tensor,
    back: Tensor,
    source: Tensor,
    target: Tensor,
    ptr: Tensor,
) -> Tensor:
    """``graphattn::cell_products``."""
    out_dim = weight.shape[1]
    batch, num_sources = x.shape[:2]
    num_targets = table.shape[1]
    out = x.new_empty(batch, num_targets, out_dim)
    sizes = _sizes(x, weight.shape)
    grid = (-(-num_targets // ROWS), -(-out_dim // sizes.BO), batch)
    if out.numel():
        operands = (x.contiguous(), weight.contiguous(), table, out, num_targets, num_sources)
        with on_device_of(x):
            triton_cells.products[grid](*operands, SIZES=sizes)
    return out


def cell_outer(
    y: Tensor, x: Tensor, table: Tensor, back: Tensor, source: Tensor, target: Tensor, ptr: Tensor
) -> Tensor:
    """``graphattn::cell_outer``; each program's share, and their sum: the same bits in every run."""
    batch, num_targets, out_dim = y.shape
    _, num_sources, in_dim = x.shape
    offsets = table.shape[0]
    sizes = _sizes(x, (offsets, out_dim, in_dim))
    blocks = -(-out_dim // sizes.BO) * -(-in_dim // sizes.BC)
    shares = max(1, min(SHARES, source.numel() // (offsets * EDGES_PER_SHARE)))
    out = x.new_empty(shares, offsets, out_dim, in_dim, dtype=dtype_of_sums(x))
    if out.numel():
        operands = (y.contiguous(), x.contiguous(), target, source, ptr, out)
        with on_device_of(x):
            triton_cells.outer[(offsets, blocks, shares)](
                *operands, batch, num_targets, num_sources, SIZES=sizes
            )
    return out.sum(0).to(x.dtype)


def _sizes(x: Tensor, weight: tuple[int, ...]) -> CellSizes:
    """Sizes for sources and a weight (K, O, C)."""
    offsets, out_dim, in_dim = weight
    return CellSizes(
        K=offsets,
        C=in_dim,
        O=out_dim,
        ROWS=ROWS,
        BC=min(WIDEST, max(16, triton.next_power_of_2(in_dim))),
        BO=min(WIDEST, max(16, triton.next_power_of_2(out_dim))),
        WIDE=sum_type(x.dtype),
        PRECISION=precision_of(x),
    )


def precision_of(x: Tensor) -> str:
    """The precision of products in Triton: float32 as torch's own matrices are."""
    if torch.backends.cuda.matmul.allow_tf32 and x.dtype == torch.float32:
        return "tf32"
    return "ieee"
