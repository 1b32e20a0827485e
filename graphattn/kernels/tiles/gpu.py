"""Attention on tiles with compacted columns on a GPU, as :mod:`.tiles.operator` computes it on the CPU."""

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cells.gpu import precision_of
from ..cuda.launches import (
    BATCHES,
    Strided,
    as_sums,
    on_device_of,
    strided,
    sum_type,
    word_of,
)
from ..plain.dropout import dropout_of
from . import triton as triton_compacted
from .operator import TileCall

COLUMNS = {2: 64, 4: 32, 8: 16}  # columns gathered at once, by the bytes of a number
SCORES = 1 << 11  # most pairs of rows and columns at once
# most numbers of rows, or of scores, for a warp; a quarter of numbers over two bytes
NUMBERS_PER_WARP = 1 << 9
MOST_WARPS = 8
NUMBERS = 1 << 12  # most numbers of them, unless 16 columns have more


class TileTables(NamedTuple):
    """Tiles of rows with their columns, and the edges of rows where a call looks them up."""

    ptr: Tensor | None
    column: Tensor | None
    bits: Tensor | None
    start: Tensor | None
    edge: Tensor | None


class TileOperands(NamedTuple):
    """Operands of the kernels, and in the backward the results and their gradients."""

    query: Strided
    key: Strided
    value: Strided
    bias: Strided | None
    seed: Tensor | None
    outer: Strided | None = None
    output: Tensor | None = None
    lse: Tensor | None = None
    outer_lse: Tensor | None = None
    end: None = None


class TileGradients(NamedTuple):
    """Memory for gradients, and for what the pass over targets leaves for that over sources."""

    delta: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None


class TileSizes(NamedTuple):
    """Sizes that a kernel is compiled for; a program has BT rows and one head, BC columns at once."""

    H: int
    GROUP: int
    D: int
    DV: int
    CAPPED: bool
    ALIGN: int
    BT: int
    BC: int
    BD: int
    BDV: int
    WIDE: Any
    PRECISION: str


def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    """``graphattn::compacted_attention``."""
    call = TileCall(*arguments)
    B, T, H = call.sizes
    output = call.query.new_empty(B, T, H, call.value.shape[-1])
    lse = call.query.new_empty(B, T, H, dtype=call.sum_dtype)
    align, (query, key, value) = strided(call.query, call.key, call.value)
    tiles = TileTables(call.ptr, call.column, call.bits, call.start, call.edge)
    operands = (TileOperands(query, key, value, *_of_edges(call)), tiles, output, lse, T)
    _launch(triton_compacted.of_tiles, call, T, operands, _sizes(call, call.rows, H, align))
    return output, lse


def backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``graphattn::compacted_attention_backward``."""
    *operands, output, lse, grad_output, grad_lse = arguments
    call = TileCall(*operands)
    _, T, H = call.sizes
    S, groups = call.key.shape[1:3]
    grad_query, grad_key, grad_value = (
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (call.query, call.key, call.value)
    )
    grad_bias = lse.new_empty(call.shape_of_bias_gradients)
    of_bias = grad_bias
    if call.bias is None:
        of_bias = None
    written = TileGradients(torch.empty_like(lse), grad_query, grad_key, grad_value, of_bias)
    align, (query, key, value, outer) = strided(call.query, call.key, call.value, grad_output)
    of_lse = as_sums(grad_lse, call.query)
    read = TileOperands(query, key, value, *_of_edges(call), outer, output, lse, of_lse)
    tiles = TileTables(call.ptr, call.column, call.bits, call.start, call.edge)
    kernel_operands = (read, tiles, written, T, grad_bias.shape[1])
    sizes = _sizes(call, call.rows, H, align)
    _launch(triton_compacted.of_targets, call, T, kernel_operands, sizes)
    tiles = TileTables(
        call.source_ptr, call.target, call.source_bits, call.source_start, call.source_edge
    )
    sizes = _sizes(call, call.source_rows, groups, align)
    _launch(triton_compacted.of_sources, call, S, (read, tiles, written, T, S), sizes)
    return grad_query, grad_key, grad_value, grad_bias


def _of_edges(call: TileCall) -> tuple[Strided | None, Tensor | None]:
    """Bias and seed."""
    bias = None
    if call.bias is not None:
        B, _, H = call.sizes
        strides = call.bias.expand(B, call.bias.shape[1], H).stride()
        bias = Strided(call.bias.detach(), *strides)
    return bias, word_of(call.query, call.dropout_p, call.seed)


def _launch(
    kernel: Any, call: TileCall, nodes: int, arguments: tuple[Any, ...], sizes: TileSizes
) -> None:
    """A program for each tile and head, for as many batch elements as a grid can have."""
    batch = call.query.shape[0]
    programs = -(-nodes // sizes.BT) * sizes.H
    if programs * batch == 0:
        return
    numbers = (call.scale, call.softcap, *dropout_of(call.dropout_p))
    # more warps for wide rows, and for wide numbers, whose products take registers
    width = max(sizes.BC, sizes.BD, sizes.BDV)
    warps = max(1, sizes.BT * width // NUMBERS_PER_WARP)
    if call.query.element_size() > 2:
        warps *= 4
    warps = min(MOST_WARPS, warps)
    with on_device_of(call.query):
        for first in range(0, batch, BATCHES):
            grid = (programs, min(BATCHES, batch - first))
            kernel[grid](*arguments, first, *numbers, SIZES=sizes, num_warps=warps, num_stages=2)


def _sizes(call: TileCall, rows: int, heads: int, align: int) -> TileSizes:
    """Sizes of blocks, and how products are summed."""
    head_dim = call.query.shape[-1]
    value_dim = call.value.shape[-1]
    key_block = max(16, triton.next_power_of_2(head_dim))
    value_block = max(16, triton.next_power_of_2(value_dim))
    number = call.query.element_size()
    columns = min(
        COLUMNS[number], SCORES // rows, NUMBERS * 2 // number // max(key_block, value_block)
    )
    # a tanh or a hash of each pair takes registers
    if call.edge is not None or call.softcap > 0:
        columns = 16
    return TileSizes(
        H=heads,
        GROUP=call.query.shape[2] // max(1, call.key.shape[2]),
        D=head_dim,
        DV=value_dim,
        CAPPED=call.softcap > 0,
        ALIGN=align,
        BT=rows,
        BC=max(16, columns),
        BD=key_block,
        BDV=value_block,
        WIDE=sum_type(dtype_of_sums(call.query)),
        PRECISION=precision_of(call.query),
    )
