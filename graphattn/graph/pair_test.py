"""Any set of edges as a test of pairs, made of element-wise operations and look-ups only.

FlexAttention can run such a test under ``vmap``, trace and compile it; ``contains`` of a rule may
use other operations.
"""

import math
from functools import reduce
from operator import or_

import torch
from torch import Tensor

from .edges import Edges, PairTest
from .graph import FULL, PARTIAL, AttentionGraph
from .limits import MAX_BYTES, refuse_over
from .listed import Listed

# of a row, for which they are looked up: measured, 17 take 1.2 times as long as a closed form
_MOST_INTERVALS = 16
_SIDES = (32, 128, 512)
_ASKED_AT_ONCE = 1 << 22


def pair_test(edges: Edges, device: torch.device) -> PairTest:
    """The closed form of the edges; else look-ups of intervals where rows have few, or of tiles."""
    if edges.test is not None:
        return edges.test
    test = _of_intervals(edges, device)
    if test is not None:
        return test
    return _tiled(edges, device)


def _of_intervals(edges: Edges, device: torch.device) -> PairTest | None:
    """Look-ups of both ends of each interval of a target; None where a row has many."""
    stored = edges.stored()
    if stored is None or edges.num_targets == 0:
        return None
    number = stored.ptr.diff()
    most = max(1, int(number.max()))
    if most > _MOST_INTERVALS:
        return None
    row = torch.repeat_interleave(number)
    place = torch.arange(row.numel()) - stored.ptr[row]
    lo, hi = (
        torch.zeros(most, edges.num_targets, dtype=ends.dtype) for ends in (stored.lo, stored.hi)
    )
    lo[place, row] = stored.lo
    hi[place, row] = stored.hi
    lo = lo.to(device)
    hi = hi.to(device)

    def test(t: Tensor, s: Tensor) -> Tensor:
        return reduce(or_, [(s >= lo[i, t]) & (s < hi[i, t]) for i in range(most)])

    return test


def _tiled(edges: Edges, device: torch.device) -> PairTest:
    """A table of tiles, and a bitmap for each partial tile: three look-ups without a loop.

    (Compilers inline a mask_mod, and inlining a binary search grows with a power of its steps.)
    """
    tables = [_bytes(edges, side) for side in _SIDES]
    num_bytes, side, classes = min(tables, key=lambda table: table[0])
    refuse_over(
        int(num_bytes),
        "a mask_mod of these edges",
        "reorder the nodes with reordered(), or use fewer",
    )
    table, bits = (x.to(device) for x in bitmaps(edges, classes, side))

    def test(t: Tensor, s: Tensor) -> Tensor:
        byte = bits[table[t // side, s // side], t % side, s % side // 8]
        return (byte >> (s % 8)) % 2 == 1

    return test


def bitmaps(edges: Edges, classes: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """The number of the bitmap of each square tile, int32, and the bitmaps (n, side, side / 8).

    Bitmap 0 has no bit set, bitmap 1 has all, and the partial tiles have the others, in the order
    of the rows.
    """
    partial = torch.nonzero(classes == PARTIAL)
    table = classes.to(torch.int32) // FULL
    table[partial[:, 0], partial[:, 1]] = torch.arange(2, 2 + len(partial), dtype=torch.int32)
    bits = torch.zeros(2 + len(partial), side, side // 8, dtype=torch.uint8)
    bits[1] = 255
    if isinstance(edges, Listed):
        edges = edges.distinct()
        t = edges.target.cpu()
        s = edges.source.cpu()
        slot = table[t // side, s // side].long()
        t, s, slot = (x[slot > 1] for x in (t, s, slot))
        # edges are distinct, so that adding sets bits
        byte = (slot * side + t % side) * (side // 8) + s % side // 8
        bits.view(-1).index_add_(0, byte, torch.bitwise_left_shift(1, s % 8).to(torch.uint8))
    else:
        _ask_tiles(bits, partial, edges, side)
    return table, bits


def _bytes(edges: Edges, side: int) -> tuple[float, int, Tensor]:
    """Bytes of a table and bitmaps for a side of tiles; infinity if the table is too large."""
    tiles = -(-edges.num_targets // side) * -(-edges.num_sources // side)
    if 8 * tiles > MAX_BYTES and side != _SIDES[-1]:
        return math.inf, side, torch.empty(0)
    classes = AttentionGraph(edges)._block_classes((side, side))
    total = 4 * tiles + int((classes == PARTIAL).sum()) * side * side // 8
    return total, side, classes


def _ask_tiles(bits: Tensor, partial: Tensor, edges: Edges, side: int) -> None:
    """Set the bits of the partial tiles by testing every pair, in chunks of tiles.

    Pairs beyond the border repeat the last row.
    """
    place = torch.arange(side)
    power = 2 ** torch.arange(8)
    step = max(1, _ASKED_AT_ONCE // side**2)
    for first in range(0, len(partial), step):
        tile = partial[first : first + step]
        t = (tile[:, 0, None, None] * side + place[:, None]).clamp(max=edges.num_targets - 1)
        s = (tile[:, 1, None, None] * side + place[None, :]).clamp(max=edges.num_sources - 1)
        inside = edges.contains(t, s).expand(len(tile), side, side)
        here = slice(2 + first, 2 + first + len(tile))
        bits[here] = (inside.reshape(-1, side, side // 8, 8) * power).sum(-1).to(torch.uint8)
