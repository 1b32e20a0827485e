"""Blocks of targets with their sources: a sparse mask as a few dense tiles.

Each target is in one block. A block has its own *columns*: the sources that any of its targets
reads, side by side, so that the tile is full if its targets read the same sources. Windows of Swin
and packed documents have full tiles; the blocks of a sliding window share one mask. Blocks of the
same shape form a bucket, which runs as one batched product.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.sort import offsets
from .blocks import TWINS, Blocks, blocks, starts
from .cache import on_devices

SIZES = 16  # most shapes of full tiles; more are padded to fewer


class Bucket(NamedTuple):
    """Blocks of one shape; ``allowed`` is bool (blocks or 1, 1, rows, columns), or None for all."""

    blocks: int
    rows: int
    columns: int
    allowed: Tensor | None


class Slots(NamedTuple):
    """The node of each slot; slots that pad a block repeat a node, and are not in ``slot``."""

    node: Tensor  # (n,) int64
    ptr: Tensor  # (nodes + 1,) start of the slots of each node in ``slot``
    slot: Tensor  # slots by node


class Tiles(NamedTuple):
    """The slots of targets and of sources, laid end to end: bucket by bucket, block by block."""

    row: Slots
    column: Slots
    output: Slots  # the inverse: the row slot of each target
    isolated: Tensor | None  # bool (T,): targets without an edge, which have no slot
    buckets: tuple[Bucket, ...]


@on_devices
def tiles(graph: AttentionGraph) -> Tiles:
    """The tiles of a graph; copies of a repeated edge are one pair."""
    cut = blocks(graph)
    rows = []
    columns = []
    buckets = []
    for members, height, width, shared in _buckets(cut):
        rows.append(_padded(cut.target, cut.first[members], cut.rows[members], height))
        columns.append(_padded(cut.column, cut.first_column[members], cut.columns[members], width))
        allowed = None
        if not bool((cut.edges[members] == height * width).all()):
            masked = members
            if shared:
                masked = members[:1]
            allowed = _allowed(cut, masked, height, width)
        buckets.append(Bucket(members.numel(), height, width, allowed))
    row = slots_of(rows, graph.num_targets)
    isolated = row.ptr[1:] == row.ptr[:-1]
    some_isolated = None
    if bool(isolated.any()):
        some_isolated = isolated
    # the slot of each target; an isolated target has any slot, and no gradient
    node = torch.zeros(isolated.numel(), dtype=torch.int64)
    reads = torch.nonzero(~isolated).flatten()
    node[reads] = row.slot
    ptr = torch.zeros(row.node.numel() + 1, dtype=torch.int64)
    ptr[1:][row.slot] = 1
    turned = Slots(node, torch.cumsum(ptr, 0), reads[torch.argsort(row.slot)])
    of_columns = slots_of(columns, graph.num_sources)
    return Tiles(row, of_columns, turned, some_isolated, tuple(buckets))


def _buckets(blocks: Blocks) -> Iterator[tuple[Tensor, int, int, bool]]:
    """Blocks of the same shape, its rows and columns, and True if all have the same mask."""
    full = blocks.edges == blocks.rows * blocks.columns
    shapes = blocks.rows * (1 << 32) + blocks.columns
    if torch.unique(shapes[full]).numel() > SIZES:
        full = torch.zeros_like(full)
    alike = _runs.first_alike(torch.repeat_interleave(blocks.runs), blocks.run, len(full))
    pattern = torch.where(full, -1, alike)
    _, kind, count = torch.unique(pattern, return_inverse=True, return_counts=True)
    shared = full | (count[kind] >= TWINS)
    height = torch.where(shared, blocks.rows, _rounded(blocks.rows))
    width = torch.where(shared, blocks.columns, _rounded(blocks.columns))
    # One bucket for each shape and each shared mask.
    key = torch.stack((height, width, torch.where(shared, pattern, -2)), 1)
    kinds, which = torch.unique(key, dim=0, return_inverse=True)
    order = torch.argsort(which, stable=True)
    for members in order.split(torch.bincount(which).tolist()):
        h, w, p = kinds[which[members[0]]].tolist()
        yield members, h, w, p >= 0


def _rounded(size: Tensor) -> Tensor:
    """Sizes rounded up to one of eight steps per power of two, so that few shapes remain."""
    step = 2 ** (torch.log2(size.double()).floor() - 3).clamp(min=0).long()
    return -(-size // step) * step


def _padded(node: Tensor, first: Tensor, count: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The nodes of some blocks, each padded to ``size`` with its last, and a mask without these."""
    within = torch.arange(size)
    place = first[:, None] + torch.minimum(within, count[:, None] - 1)
    return node[place].flatten(), (within < count[:, None]).flatten()


def slots_of(parts: list[tuple[Tensor, Tensor]], size: int) -> Slots:
    """Slots of some nodes, and the mask of real ones."""
    none = torch.empty(0, dtype=torch.int64)
    if parts:
        node, real = (torch.cat(x) for x in zip(*parts, strict=True))
    else:
        node = none
        real = none.bool()
    slot = torch.nonzero(real).flatten()
    return Slots(
        node,
        offsets(torch.bincount(node[slot], minlength=size)),
        slot[torch.argsort(node[slot], stable=True)],
    )


def _allowed(blocks: Blocks, members: Tensor, height: int, width: int) -> Tensor:
    """The masks of some blocks, bool (blocks, 1, height, width); padding rows copy the last."""
    owner, within = _runs.spread(blocks.runs[members])
    row, column, length = blocks.run[:, blocks.first_run[members][owner] + within]
    line, step = _runs.spread(length)
    allowed = torch.zeros(members.numel() * height * width, dtype=torch.bool)
    allowed[((owner * height + row) * width + column)[line] + step] = True
    allowed = allowed.view(-1, height, width)
    last = torch.minimum(torch.arange(height), blocks.rows[members][:, None] - 1)
    return allowed[torch.arange(members.numel())[:, None], last][:, None]


@on_devices
def edge_places(graph: AttentionGraph) -> tuple[Tensor]:
    """The index of each edge in the pairs of all buckets, laid end to end; int64 (E,).

    In a tuple: torch.compile accepts a bare tensor from one call only.
    """
    plan = tiles(graph)
    sizes = torch.tensor(
        [(b.blocks, b.rows, b.columns) for b in plan.buckets], dtype=torch.int64
    ).reshape(-1, 3)
    count, rows, columns = sizes.unbind(1)
    block_rows, block_columns = (x.repeat_interleave(count) for x in (rows, columns))
    first_row, first_column, first_pair = (
        starts(x) for x in (block_rows, block_columns, block_rows * block_columns)
    )
    source, target = graph.edge_index.cpu().unbind(0)
    slot = plan.output.node[target]
    block = torch.searchsorted(first_row, slot, right=True) - 1
    # Columns ascend within a block, and blocks follow each other: one sorted line of (block,
    # source).
    line = torch.repeat_interleave(block_columns) * graph.num_sources + plan.column.node
    column = torch.searchsorted(line, block * graph.num_sources + source) - first_column[block]
    row = slot - first_row[block]
    return (first_pair[block] + row * block_columns[block] + column,)
