"""The block kernel in plain operations, for derivatives and transforms that it does not have."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...graph.modes import without_autocast
from ...graph.runs import spread
from ...plans.pieces import VECTORS
from ..arrays import dtype_of_sums
from ..plain.rows import dependent_zero
from .exponents import unit_of_levels


class BlockCall(NamedTuple):
    """The operands that the operator and its backward share, in the order of ``_OPERANDS`` there."""

    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor | None
    lanes: int
    targets: Tensor
    sources: Tensor
    ptr: Tensor
    pieces: Tensor
    masks: Tensor
    first: Tensor
    span_ptr: Tensor
    spans: Tensor
    place: Tensor
    hull: int
    work: int
    target_places: Any  # None without a table
    source_places: Any
    thresholds: Tensor | None
    scale: float
    softcap: float

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype of sums."""
        return dtype_of_sums(self.query)

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """The shape of levels and totals."""
        B, _, H, _ = self.query.shape
        return B, H, (self.ptr.shape[0] - 1) * VECTORS * self.lanes

    @property
    def tasks(self) -> int:
        """Cuts of all batch elements and heads of keys."""
        return self.key.shape[0] * self.key.shape[2] * (self.first.shape[0] - 1)


class _Blocks(NamedTuple):
    """Some blocks, padded to one number of sources: nodes, and True where a target reads one."""

    block: Tensor  # (n,)
    target: Tensor  # (n, rows)
    source: Tensor  # (n, columns)
    allowed: Tensor  # bool (n, 1, rows, columns)


def _blocks(call: BlockCall) -> Iterator[_Blocks]:
    """The blocks of a plan, those of about as many sources together."""
    lanes = call.lanes
    masks = call.masks
    size = VECTORS * lanes
    owner, offset = spread(call.pieces[:, 1].long())
    block = torch.repeat_interleave(call.ptr.diff())[owner]
    first, _, vectors, mask = call.pieces.long()[owner].unbind(1)
    all_lanes = ((1 << (vectors & 3) * lanes) - 1) << (vectors >> 2) * lanes
    listed_lanes = torch.nn.functional.pad(masks, (0, 1))[
        (mask + offset).clamp(min=0, max=masks.numel())
    ]
    bits = torch.where(mask < 0, all_lanes, listed_lanes)
    count = torch.bincount(block, minlength=call.ptr.numel() - 1)
    start = torch.cumsum(count, 0) - count
    kind = torch.ceil(torch.log2(count.clamp(min=1).double()))
    lane = torch.arange(size)
    for members in (torch.nonzero(kind == k).flatten() for k in torch.unique(kind)):
        within = torch.arange(int(count[members].max()))
        is_there = within < count[members][:, None]
        place = torch.where(is_there, start[members][:, None] + within, 0)
        target = members[:, None] * size + lane
        if block.numel() == 0:
            place = place[:, :0]
        reads = (bits[place].unsqueeze(1) >> lane[:, None]) & 1 != 0
        yield _Blocks(
            members,
            call.targets[target.clamp(max=call.targets.numel() - 1)].long(),
            call.sources[(first + offset)[place]].long(),
            (reads & is_there[:, None, : place.shape[1]]).unsqueeze(1),
        )


class _FiniteRows(NamedTuple):
    """Rows of nodes: 0 in place of those that are not finite, and 1 where these are."""

    numbers: Tensor  # (B, N, H, D)
    lost: Tensor  # (B, N, H, 1)
    sum: Tensor  # (B, N, H, 1), of the rows as they are

    @classmethod
    def of(cls, x: Tensor) -> "_FiniteRows":
        """The rows of operands."""
        lost = ~torch.isfinite(x).all(-1, keepdim=True)
        return cls(torch.where(lost, 0.0, x), lost.to(x.dtype), x.sum(-1, keepdim=True))

    def at(self, index: Tensor) -> "_FiniteRows":
        """Rows of blocks, (B, blocks, H, n, D), at an index (blocks, n)."""
        return _FiniteRows(
            *(
                x.index_select(1, index.flatten()).unflatten(1, index.shape).transpose(2, 3)
                for x in self
            )
        )


def _spoiled(x: Tensor, count: Tensor, query: Tensor) -> Tensor:
    """NaN in rows that read so many that are not finite; the gradients of their queries, too."""
    factor = torch.where(count > 0, torch.nan, 0.0)
    return torch.where(count > 0, query * factor, x)


def plain(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs of ``block_attention``: differentiable any number of times."""
    call = BlockCall(*arguments)
    with without_autocast(call.query.device.type):
        return _plain(call)


def _plain(call: BlockCall) -> tuple[Tensor, Tensor, Tensor]:
    query = call.query
    key = call.key
    value = call.value
    table = call.table
    dtype = call.sum_dtype
    B, T, H, _ = query.shape
    unit = unit_of_levels(call.scale, call.softcap)
    group = H // max(1, key.shape[2])
    keys, values = (x.to(dtype).repeat_interleave(group, 2) for x in (key, value))
    # a product passes a NaN on to every pair of a block, so that it gets finite numbers alone
    operands = [_FiniteRows.of(x) for x in (query.to(dtype), keys, values)]
    size = VECTORS * call.lanes
    places = []
    outputs = []
    states = []
    for part in _blocks(call):
        queries, keys_read, values_read = (
            x.at(index)
            for x, index in zip(operands, (part.target, part.source, part.source), strict=True)
        )
        score = queries.numbers @ keys_read.numbers.transpose(-2, -1) * call.scale
        if call.softcap > 0:
            score = call.softcap * torch.tanh(score / call.softcap)
        if table is not None:
            of_targets = call.target_places[part.target]
            of_sources = call.source_places[part.source]
            index = of_targets[:, :, None] - of_sources[:, None, :]
            bias = table.index_select(0, index.flatten()).unflatten(0, index.shape)
            score = score + bias.movedim(-1, 1)
        score = score.masked_fill(~part.allowed, -torch.inf)
        peak = score.new_zeros(*score.shape[:-1], 1)
        if call.thresholds is not None:
            peak = peak + call.thresholds[part.target][:, None, :, None]
            weight = torch.sigmoid(score - peak)
            total = torch.ones_like(peak)
        else:
            if score.shape[-1]:
                peak = score.detach().amax(-1, keepdim=True)
                peak = peak.masked_fill(peak == -torch.inf, 0.0)
            power = torch.exp(score - peak)
            total = power.sum(-1, keepdim=True)
            weight = power / torch.where(total == 0, 1.0, total)
        output = weight @ values_read.numbers
        allowed = part.allowed.to(dtype)
        lost = allowed @ keys_read.lost + allowed.sum(-1, keepdim=True) * queries.lost
        total = _spoiled(total, lost, queries.sum)
        output = _spoiled(output, lost + allowed @ values_read.lost, queries.sum)
        places.append((part.block[:, None] * size + torch.arange(size)).flatten())
        outputs.append(output.transpose(2, 3).flatten(1, 2))
        states.append(torch.cat((peak / unit, total), -1).transpose(2, 3).flatten(1, 2))
    if not outputs:
        output = query.new_zeros(B, T, H, value.shape[3]) + dependent_zero(query, key, value, table)
        return output, *query.new_zeros(2, B, H, 0, dtype=dtype)
    order = torch.cat(places).argsort()
    state = torch.cat(states, 1).index_select(1, order).transpose(1, 2)
    output = torch.cat(outputs, 1).index_select(1, order[:T])
    output = output.index_select(1, call.targets.long().argsort())
    levels, totals = state.unbind(-1)
    return output.to(query.dtype), levels, totals
