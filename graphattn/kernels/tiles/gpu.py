"""Attention on tiles with compacted columns on a GPU, as :mod:`.tiles.operator` computes it on the CPU."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cells.gpu import precision_of
from ..cuda.launches import (
    BATCHES,
    as_sums,
    contiguous_rows,
    dropout_of,
    on_device_of,
    strides_of,
    word_of,
)
from . import triton as triton_compacted
from .operator import TileCall

COLUMNS = {2: 64, 4: 32, 8: 16}  # columns gathered at once, by the bytes of a number
SCORES = 1 << 11  # most pairs of rows and columns at once
# most numbers of rows, or of scores, for a warp; a quarter of numbers over two bytes
NUMBERS_PER_WARP = 1 << 9
MOST_WARPS = 8
NUMBERS = 1 << 12  # most numbers of them, unless 16 columns have more


class _Tiles(NamedTuple):
    """Tiles for a launch, and the number of the nodes that are their rows."""

    nodes: int
    rows: int
    operands: tuple[Tensor | None, ...]


def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    """``graphattn::compacted_attention``."""
    call = TileCall(*arguments)
    B, T, H = call.sizes
    output = call.query.new_empty(B, T, H, call.value.shape[-1])
    lse = call.query.new_empty(B, T, H, dtype=call.sum_dtype)
    q, k, v = (contiguous_rows(x) for x in (call.query, call.key, call.value))
    tiles = _targets(call)
    kernel_operands = (q, k, v, *tiles.operands, output, lse, T)
    _launch(triton_compacted.of_tiles, call, tiles, H, kernel_operands, (q, k, v))
    return output, lse


def backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``graphattn::compacted_attention_backward``."""
    *operands, output, lse, grad_output, grad_lse = arguments
    call = TileCall(*operands)
    _, T, H = call.sizes
    S, groups = call.key.shape[1:3]
    grads = [
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (call.query, call.key, call.value)
    ]
    grad_bias = lse.new_empty(call.shape_of_bias_gradients)
    delta = torch.empty_like(lse)
    q, k, v, go = (contiguous_rows(x) for x in (call.query, call.key, call.value, grad_output))
    nodes = (q, k, v, go)
    targets = _targets(call)
    of_lse = as_sums(grad_lse, call.query)
    of_bias = grad_bias
    if call.bias is None:
        of_bias = None
    results = (output, lse, go, of_lse, grads[0], of_bias, delta)
    kernel_operands = (q, k, v, *targets.operands, *results, T, grad_bias.shape[1])
    _launch(triton_compacted.of_targets, call, targets, H, kernel_operands, nodes)
    tables = (call.source_ptr, call.target, call.source_bits)
    sources = _Tiles(
        S, call.source_rows, (*tables, *_of_edges(call, call.source_start, call.source_edge))
    )
    kernel_operands = (q, k, v, *sources.operands, lse, go, delta, *grads[1:], T, S)
    _launch(triton_compacted.of_sources, call, sources, groups, kernel_operands, nodes)
    return grads[0], grads[1], grads[2], grad_bias


def _targets(call: TileCall) -> _Tiles:
    """The tiles of targets."""
    tables = (call.ptr, call.column, call.bits)
    of_edges = _of_edges(call, call.start, call.edge)
    return _Tiles(call.query.shape[1], call.rows, (*tables, *of_edges))


def _of_edges(
    call: TileCall, start: Tensor | None, edge: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Bias, seed, and the edges of the rows of tiles; absent where the call has no use for them."""
    bias = None
    if call.bias is not None:
        bias = call.bias.detach()
    return bias, word_of(call.query, call.dropout_p, call.seed), start, edge


def _launch(
    kernel: Any,
    call: TileCall,
    tiles: _Tiles,
    heads: int,
    arguments: tuple[Any, ...],
    nodes: tuple[Tensor, ...],
) -> None:
    """A program for each tile and head, for as many batch elements as a grid can have."""
    batch = call.query.shape[0]
    programs = -(-tiles.nodes // tiles.rows) * heads
    if programs * batch == 0:
        return
    align, strides = strides_of(*nodes)
    of_bias: tuple[int, ...] = (0, 0, 0)
    if call.bias is not None:
        B, _, H = call.sizes
        of_bias = call.bias.expand(B, call.bias.shape[1], H).stride()
    numbers = (call.scale, call.softcap, *dropout_of(call.dropout_p))
    constants = _constants(call, tiles.rows) | {"H": heads, "ALIGN": align}
    with on_device_of(call.query):
        for first in range(0, batch, BATCHES):
            grid = (programs, min(BATCHES, batch - first))
            kernel[grid](*arguments, first, *strides, *of_bias, *numbers, **constants)


def _constants(call: TileCall, rows: int) -> dict[str, Any]:
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
    columns = max(16, columns)
    sum_type = tl.float32
    if dtype_of_sums(call.query) == torch.float64:
        sum_type = tl.float64
    return {
        "GROUP": call.query.shape[2] // max(1, call.key.shape[2]),
        "D": head_dim,
        "DV": value_dim,
        "CAPPED": call.softcap > 0,
        "BT": rows,
        "BC": columns,
        "BD": key_block,
        "BDV": value_block,
        "WIDE": sum_type,
        "PRECISION": precision_of(call.query),
        "num_warps": _warps(call, rows, max(columns, key_block, value_block)),
        "num_stages": 2,
    }


def _warps(call: TileCall, rows: int, width: int) -> int:
    """Warps of a program: more for wide rows, and for wide numbers, whose products take registers."""
    warps = max(1, rows * width // NUMBERS_PER_WARP)
    if call.query.element_size() > 2:
        warps *= 4
    return min(MOST_WARPS, warps)
