"""Groups of consecutive rows with the distinct columns that any of them has, and a mask as bits.

Neighbours along a curve share neighbours: a group of 32 points, each with 16 neighbours, has some
130 distinct ones and not 512. A kernel that reads each of these once does a third of the loads.
Tiles of targets have sources as columns; those of sources have targets, for gradients of sources.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.sort import offsets, rows_of, sorted_keys
from .cache import CPU, planned
from .grouped import EdgeLayout, by_source, by_target

SIZES = (16, 32, 64)  # rows of a tile: the sides of products on tensor cores, and bits of a word
PADDED = 16  # columns of a tile are a multiple, so that indices are read 16 bytes at once
# pairs of a tile that take as long as reading one more row: a model, 6 TB a second from L2 and
# 300 TFLOP a second beside an exponential
PAIRS = 30


class Compacted(NamedTuple):
    """Tile ``i`` is ``rows`` rows from ``i * rows`` on; its columns, from ``ptr[i]``, ascend.

    Bit ``r`` of a column's word is set if row ``i * rows + r`` has that column. Columns that pad a
    tile have the word 0.
    """

    rows: int
    ptr: Tensor  # int64 (tiles + 1,), multiples of PADDED
    column: Tensor  # (n,) int32 if that fits
    bits: Tensor  # (n,) int32, or int64 for 64 rows


class Reuse(NamedTuple):
    """The number of rows of a tile, and its distinct columns: of all tiles, and of the widest."""

    rows: int
    columns: int
    widest: int

    def cost(self, num_rows: int) -> float:
        """The work of all tiles, in columns read: a row counts as one, a pair as less."""
        return num_rows + self.columns * (1 + self.rows / PAIRS)


def reuse(graph: AttentionGraph) -> Reuse:
    """The tiles of targets of the size that costs least."""
    return _reuse(graph, graph.device)


@planned
def _reuse(graph: AttentionGraph, device: torch.device) -> Reuse:
    return _cheapest(by_target(graph, device), graph.num_targets, graph.num_sources)


def reuse_of_sources(graph: AttentionGraph) -> Reuse:
    """The tiles of sources of the size that costs least."""
    return _reuse_of_sources(graph, graph.device)


@planned
def _reuse_of_sources(graph: AttentionGraph, device: torch.device) -> Reuse:
    return _cheapest(by_source(graph, device), graph.num_sources, graph.num_targets)


@planned
def tiles_of_targets(graph: AttentionGraph, device: torch.device = CPU) -> Compacted:
    """Tiles of targets, with their sources, of a graph without repeated edges."""
    return compacted(by_target(graph, device), graph.num_sources, reuse(graph).rows)


@planned
def tiles_of_sources(graph: AttentionGraph, device: torch.device = CPU) -> Compacted:
    """Tiles of sources, with their targets; made only for gradients."""
    return compacted(by_source(graph, device), graph.num_targets, reuse_of_sources(graph).rows)


@planned
def edges_of_rows(
    graph: AttentionGraph, device: torch.device = CPU
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first place of each row and the edges in the caller's order, by target and by source."""
    into = by_target(graph, device)
    back = by_source(graph, device)
    return into.ptr, into.edge, back.ptr, into.edge[back.edge.long()]


def _cheapest(layout: EdgeLayout, rows: int, columns: int) -> Reuse:
    """The size of tiles that costs least; one sort gives the distinct columns of all sizes."""
    most = max(SIZES)
    key = _keys(layout, columns, most)
    candidates = []
    for size in SIZES:
        parts = most // size
        pair = torch.unique_consecutive(key // size)
        tile = pair // parts // max(1, columns) * parts + pair % parts
        widest = 0
        if tile.numel():
            widest = int(torch.bincount(tile).max())
        candidates.append(Reuse(size, tile.numel(), widest))
    return min(candidates, key=lambda reuse: reuse.cost(rows))


def compacted(layout: EdgeLayout, columns: int, rows: int) -> Compacted:
    """The tiles of a layout whose rows are in order, made on its device."""
    key = _keys(layout, columns, rows)
    pair, which = torch.unique_consecutive(key // rows, return_inverse=True)
    bit = torch.bitwise_left_shift(torch.ones_like(key), key % rows)
    word = torch.zeros_like(pair).index_add_(0, which, bit)
    tile = pair // max(1, columns)
    column = pair % max(1, columns)
    tiles = -(-layout.order.numel() // rows)
    count = torch.bincount(tile, minlength=tiles)
    ptr = offsets((count + PADDED - 1) // PADDED * PADDED)
    place = torch.arange(tile.numel(), device=tile.device) + (ptr - offsets(count))[tile]
    size = int(ptr[-1])
    kind = torch.int32
    if rows > 32:
        kind = torch.int64
    padded = layout.node.new_zeros(size)
    bits = torch.zeros(size, dtype=kind, device=tile.device)
    padded[place] = column.to(padded.dtype)
    bits[place] = word.to(kind)
    return Compacted(rows, ptr, padded, bits)


def _keys(layout: EdgeLayout, columns: int, rows: int) -> Tensor:
    """Edges by tile, column and row, as one number each, ascending."""
    row = rows_of(layout.ptr)
    return sorted_keys((row // rows * columns + layout.node) * rows + row % rows)
