"""Square blocks of targets and sources for FlexAttention: empty, full, or partial with a bitmap.

T x S is never built: blocks are classed by exact counts, pairs are tested in partial blocks only,
and equal partial blocks share a bitmap. One program of a GPU walks a row of blocks, in the backward
a column; a row that reads most others (global tokens) would keep the device waiting, so it is cut
into pieces, merged by log-sum-exp.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import FULL, PARTIAL, AttentionGraph
from ..graph.pair_test import bitmaps
from ..graph.runs import mixed
from .blocks import starts
from .cache import on_devices
from .tiles import Slots, slots_of

SIDE = 128  # block size of FlexAttention's kernels
WORD = 32
MOST_BLOCKS = 1 << 24  # limit of a table of blocks, of five numbers each
LONG = 2  # rows of blocks over this many times the mean are cut
SHORT = 16  # but not rows up to this length


class RowPieces(NamedTuple):
    """Rows of blocks (n,) that are cut, and the indices of their pieces (n, most).

    The pieces are counted among all rows; -1 pads them.
    """

    row: Tensor
    piece: Tensor


class BlockLists(NamedTuple):
    """The blocks of a graph, in order; in that of ``target`` and ``source`` if rows are cut."""

    kinds: Tensor  # int8 (rows, columns): EMPTY, PARTIAL or FULL
    which: Tensor  # int32 (rows, columns): the bitmap of each; 0 has no pair and 1 has all
    bits: Tensor  # int32 (bitmaps, SIDE, SIDE // WORD)
    target: Slots | None
    source: Slots | None
    pieces: RowPieces | None
    isolated: Tensor | None  # bool (T,): targets without an edge
    unused: Tensor | None  # bool (S,): sources that no target reads


def num_blocks(graph: AttentionGraph) -> int:
    """The number of blocks, empty ones included, which is known without a walk over the edges."""
    return -(-graph.num_targets // SIDE) * -(-graph.num_sources // SIDE)


def block_work(graph: AttentionGraph) -> float:
    """The cost of the blocks, in pairs of a full one; a partial one also reads its bitmap."""
    kinds = _kinds(graph)
    return SIDE**2 * (float((kinds == FULL).sum()) + 1.3 * float((kinds == PARTIAL).sum()))


def ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The number of ``blocks`` (rows, columns) in each row, and its columns, first of all columns.

    Both are int32, with two axes of 1.
    """
    columns = torch.argsort(blocks.to(torch.int8), dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(torch.int32)[None, None], columns.to(torch.int32)[None, None]


@on_devices
def _kinds(graph: AttentionGraph) -> Tensor:
    """The class of each block, int8 (rows, columns); blocks across the border are never full."""
    kinds = graph._block_classes((SIDE, SIDE))
    over = torch.zeros_like(kinds, dtype=torch.bool)
    over[graph.num_targets // SIDE :] = True
    over[:, graph.num_sources // SIDE :] = True
    return torch.where(over & (kinds == FULL), PARTIAL, kinds).to(torch.int8)


@on_devices
def block_lists(graph: AttentionGraph) -> BlockLists:
    """The blocks of a graph without repeated edges."""
    kinds = _kinds(graph)
    which, bits = _bitmaps(graph, kinds)
    kinds, of_row, pieces = _split(kinds)
    turned, of_column, _ = _split(kinds.T)
    kinds = turned.T.contiguous()
    which = torch.where(kinds > 0, which[of_row][:, of_column], 0)
    return BlockLists(
        kinds,
        which.contiguous(),
        bits,
        _gathered(of_row, graph.num_targets),
        _gathered(of_column, graph.num_sources),
        pieces,
        _without_edges(graph.in_degree),
        _without_edges(graph.out_degree),
    )


def _without_edges(degree: Tensor) -> Tensor | None:
    """The nodes of degree 0, bool (N,) on the CPU; None if there are none."""
    isolated = degree.cpu() == 0
    if bool(isolated.any()):
        return isolated
    return None


def _bitmaps(graph: AttentionGraph, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """The number of each block's bitmap, and the bitmaps, padded so that few shapes remain."""
    partial = torch.nonzero(kinds == PARTIAL)
    table, octets = bitmaps(graph.edges, kinds, SIDE)
    bits = octets.view(torch.int32)
    rows = _within(graph.num_targets, kinds.shape[0])[partial[:, 0]].to(torch.int32)
    # bool (blocks, SIDE) as int32 words (blocks, SIDE // WORD), lowest bit first
    powers = torch.bitwise_left_shift(torch.ones((), dtype=torch.int64), torch.arange(WORD))
    places = _within(graph.num_sources, kinds.shape[1]).view(kinds.shape[1], -1, WORD)
    columns = (places.long() * powers).sum(-1).to(torch.int32)[partial[:, 1]]
    bits[2:] &= columns.unsqueeze(1) & -rows.unsqueeze(-1)
    distinct, which = _distinct(bits)
    room = 1 << max(3, (len(distinct) - 1).bit_length())
    padded = torch.nn.functional.pad(distinct, (0, 0, 0, 0, 0, room - len(distinct)))
    return which[table.long()].to(torch.int32), padded


def _within(size: int, blocks: int) -> Tensor:
    """The places of each block that are nodes, bool (blocks, SIDE)."""
    return (torch.arange(blocks * SIDE) < size).view(blocks, SIDE)


def _distinct(bits: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct bitmaps, and the index of each among them; the first two stay."""
    words = bits.flatten(1).long()
    key = mixed(words * (1 << 32) + torch.arange(words.shape[1]) + 1).sum(1)
    key[:2] = torch.tensor([torch.iinfo(key.dtype).min, torch.iinfo(key.dtype).min + 1])
    _, which = torch.unique(key, return_inverse=True)
    first = torch.full((int(which.max()) + 1,), len(bits)).scatter_reduce(
        0, which, torch.arange(len(bits)), "amin"
    )
    if not torch.equal(bits[first[which]], bits):  # hashes may collide
        return bits, torch.arange(len(bits))
    return bits[first], which


def _split(kinds: Tensor) -> tuple[Tensor, Tensor, RowPieces | None]:
    """Rows of blocks, those far longer than the mean cut; the row of each; and the pieces.

    The first piece stays in its place and the others come at the end.
    """
    rows = kinds.shape[0]
    there = kinds > 0
    count = there.sum(1)
    busy = count[count > 0].double()
    if busy.numel():
        most = max(SHORT, LONG * int(busy.mean().ceil()))
    else:
        most = SHORT
    number = (-(-count // most)).clamp(min=1)
    extra = number - 1
    row, column = torch.nonzero(there, as_tuple=True)
    piece = (torch.cumsum(there, 1) - 1)[row, column] // most
    first = rows + starts(extra)
    of_row = torch.cat((torch.arange(rows), torch.repeat_interleave(extra)))
    cut = torch.zeros(len(of_row), kinds.shape[1], dtype=kinds.dtype)
    cut[torch.where(piece == 0, row, first[row] + piece - 1), column] = kinds[row, column]
    long = torch.nonzero(extra).flatten()
    if long.numel() == 0:
        return cut, of_row, None
    step = torch.arange(int(number.max()))
    places = torch.where(step == 0, long[:, None], first[long][:, None] + step - 1)
    return cut, of_row, RowPieces(long, torch.where(step < number[long][:, None], places, -1))


def _gathered(of_row: Tensor, size: int) -> Slots | None:
    """The nodes of the blocks of the given rows; None if they are in order."""
    node = (of_row[:, None] * SIDE + torch.arange(SIDE)).flatten()
    if len(of_row) == -(-size // SIDE):
        return None
    return slots_of([(node.clamp(max=size - 1), node < size)], size)
