"""Convolutions of cells on a GPU, as :mod:`.cells.operator` computes them on the CPU."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cuda.launches import on_device_of
from . import triton as triton_cells

ROWS = 64  # targets of a program, or edges at once
WIDEST = 64  # channels of a block
SHARES = 16  # most programs that sum the outer products of an offset
EDGES_PER_SHARE = 1 << 11  # least edges of a share, in the mean


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
    offsets, out_dim, in_dim = weight.shape
    batch, num_sources = x.shape[:2]
    num_targets = table.shape[1]
    out = x.new_empty(batch, num_targets, out_dim)
    constants = _constants(x, in_dim, out_dim)
    grid = (-(-num_targets // ROWS), -(-out_dim // constants["BO"]), batch)
    if out.numel():
        with on_device_of(x):
            triton_cells.products[grid](
                x.contiguous(),
                weight.contiguous(),
                table,
                out,
                num_targets,
                num_sources,
                K=offsets,
                BT=ROWS,
                **constants,
            )
    return out


def cell_outer(
    y: Tensor, x: Tensor, table: Tensor, back: Tensor, source: Tensor, target: Tensor, ptr: Tensor
) -> Tensor:
    """``graphattn::cell_outer``; each program's share, and their sum: the same bits in every run."""
    (batch, num_targets, out_dim), (_, num_sources, in_dim) = y.shape, x.shape
    offsets = table.shape[0]
    constants = _constants(x, in_dim, out_dim)
    blocks = -(-out_dim // constants["BO"]) * -(-in_dim // constants["BC"])
    shares = max(1, min(SHARES, source.numel() // (offsets * EDGES_PER_SHARE)))
    out = x.new_empty(shares, offsets, out_dim, in_dim, dtype=dtype_of_sums(x))
    if not out.numel():
        return out.sum(0).to(x.dtype)
    with on_device_of(x):
        triton_cells.outer[(offsets, blocks, shares)](
            y.contiguous(),
            x.contiguous(),
            target,
            source,
            ptr,
            out,
            batch,
            num_targets,
            num_sources,
            BE=ROWS,
            **constants,
        )
    return out.sum(0).to(x.dtype)


def _constants(x: Tensor, in_dim: int, out_dim: int) -> dict[str, Any]:
    """Sizes of blocks, and how products are summed."""
    sum_type = tl.float32
    if x.dtype == torch.float64:
        sum_type = tl.float64
    return {
        "C": in_dim,
        "O": out_dim,
        "BC": min(WIDEST, max(16, triton.next_power_of_2(in_dim))),
        "BO": min(WIDEST, max(16, triton.next_power_of_2(out_dim))),
        "WIDE": sum_type,
        "PRECISION": precision_of(x),
    }


def precision_of(x: Tensor) -> str:
    """The precision of products in Triton: float32 as torch's own matrices are."""
    if torch.backends.cuda.matmul.allow_tf32 and x.dtype == torch.float32:
        return "tf32"
    return "ieee"
