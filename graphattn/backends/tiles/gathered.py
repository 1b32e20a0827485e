"""Tiles with gathered sources: batched dense products, by SDPA or written out."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...kernels.plain.rows import dependent_zero, take
from ...operands import Inputs, Outputs
from ...plans.tiles import Bucket, Tiles, edge_places, tiles
from ..request import flat_batch, flat_batch_of_edges
from ..rows import of_rows
from ..sdpa import Mask, fused, unfused_attention
from ..sdpa_lse import fused_lse


def gathered_run(graph: AttentionGraph, inputs: Inputs, lse: bool) -> Outputs:
    """Attention on a graph by SDPA on tiles with gathered sources."""
    plan = tiles(graph, inputs.query.device)
    if not plan.buckets:
        return _empty_outputs(inputs)
    query, key, value = (flat_batch(x) for x in (inputs.query, inputs.key, inputs.value))
    rows, columns = (
        [getattr(b, side) * b.blocks for b in plan.buckets] for side in ("rows", "columns")
    )
    parts = zip(
        plan.buckets,
        take(query, rows, plan.row),
        take(key, columns, plan.column),
        take(value, columns, plan.column),
        _biases(graph, plan, inputs),
        strict=True,
    )
    attended = (_attended(_blocks(*part), inputs, lse) for part in parts)
    output, log_sum = zip(*attended, strict=True)
    rows_of_query = inputs.query.shape[:-1]
    result = _placed(plan, output, 0.0).reshape(*rows_of_query, value.shape[-1]).to(query.dtype)
    if not lse:
        return Outputs(result)
    return Outputs(result, None, _placed(plan, log_sum, -torch.inf).reshape(rows_of_query))


def _empty_outputs(inputs: Inputs) -> Outputs:
    """The outputs of a graph without edges: zeros, also for NaN, which depend on the inputs."""
    zero = dependent_zero(inputs.query, inputs.key, inputs.value, inputs.score_bias)
    shape = inputs.query.shape[:-1]
    output = inputs.query.new_zeros(*shape, inputs.value.shape[-1]) + zero
    lse = inputs.query.new_full(shape, -torch.inf, dtype=inputs.statistics)
    return Outputs(output.to(inputs.query.dtype), None, lse)


def _biases(graph: AttentionGraph, plan: Tiles, inputs: Inputs) -> Sequence[Tensor | None]:
    """The bias of each bucket, (B or 1, blocks, heads or 1, rows, columns), -inf without an edge."""
    bias = flat_batch_of_edges(inputs.score_bias, inputs.query.shape[:-3], inputs.statistics)
    if bias is None:
        return [None] * len(plan.buckets)
    shapes = [(b.blocks, b.rows, b.columns) for b in plan.buckets]
    pairs = [math.prod(shape) for shape in shapes]
    no_edges = bias.new_full((bias.shape[0], sum(pairs), bias.shape[2]), -torch.inf)
    (places,) = edge_places(graph, bias.device)
    parts = no_edges.index_copy(1, places, bias).split(pairs, 1)
    return [x.unflatten(1, shape).movedim(-1, 2) for x, shape in zip(parts, shapes, strict=True)]


class _Blocks(NamedTuple):
    """The operands of a bucket's blocks, (blocks, H, rows or columns, width), of each example."""

    bucket: Bucket
    batch: int
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    blank: Tensor | None  # bool (blocks, H, rows, 1): rows without an edge

    def slots(self, x: Tensor) -> Tensor:
        """(B, slots, H, width) of (blocks, H, rows, width)."""
        slots = self.bucket.blocks * self.bucket.rows
        return x.transpose(1, 2).reshape(self.batch, slots, x.shape[1], x.shape[-1])


def _blocks(
    bucket: Bucket, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
) -> _Blocks:
    batch = query.shape[0]
    group = query.shape[2] // key.shape[2]
    blocks = batch * bucket.blocks
    allowed = bucket.allowed
    query, key, value = (
        x.reshape(blocks, size, *x.shape[2:]).transpose(1, 2)
        for x, size in ((query, bucket.rows), (key, bucket.columns), (value, bucket.columns))
    )
    if group != 1:
        key = key.repeat_interleave(group, 1)
        value = value.repeat_interleave(group, 1)
    if allowed is not None and allowed.shape[0] != 1:
        allowed = allowed.repeat(batch, 1, 1, 1)
    blank = None
    if bias is not None:
        bias = bias.expand(batch, *bias.shape[1:]).flatten(0, 1)
        blank = (bias == -torch.inf).all(-1, keepdim=True)
        bias = bias.masked_fill(blank, 0.0)
        query = query.masked_fill(blank, 0.0)
    return _Blocks(bucket, batch, query, key, value, Mask(allowed, bias), blank)


def _attended(part: _Blocks, inputs: Inputs, lse: bool) -> tuple[Tensor, Tensor | None]:
    """Output (B, slots, H, D_v) and, optionally, lse (B, slots, H, 1) of a bucket's blocks."""
    operands = (part.query, part.key, part.value, part.mask, inputs.scale)
    weigh = of_rows(inputs.normalize)
    log_sum = None
    if inputs.softcap is not None or weigh is not None or (lse and inputs.dropout_p > 0.0):
        output, _, log_sum = unfused_attention(*operands, inputs.softcap, inputs.dropout_p, weigh)
    elif lse:
        output, log_sum = fused_lse(*operands)
    else:
        output = fused(*operands, inputs.dropout_p)
    if part.blank is not None:
        output = output.masked_fill(part.blank, 0.0)
    if log_sum is None:
        return part.slots(output), None
    if part.blank is not None:
        log_sum = log_sum.masked_fill(part.blank, -torch.inf)
    return part.slots(output), part.slots(log_sum)


def _placed(plan: Tiles, parts: Sequence[Tensor | None], nothing: float) -> Tensor:
    """Rows of all buckets as rows of targets (B, T, ...), ``nothing`` for an isolated target."""
    sizes = [plan.output.node.numel()]
    (result,) = take(torch.cat([x for x in parts if x is not None], 1), sizes, plan.output)
    if plan.isolated is None:
        return result
    return result.masked_fill(plan.isolated[:, None, None], nothing)
