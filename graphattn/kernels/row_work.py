"""Rows of edges as work for a GPU: short ones, long ones, and hubs cut into pieces; made once for a layout."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

SHORT = 4  # most edges of a short row: a block of edges that fits it wastes no loads
PIECE = 128  # most edges of a whole row, and most pieces of a hub, which are longer beyond that
LONG = 16  # most edges that a program for a long row processes at once
NUMBERS = 1024  # most numbers of a row of nodes per program, unless one head has more


class Work(NamedTuple):
    """Programs: each processes the edges ``start .. stop - 1`` (n,) of ``node`` (n,), at most ``block`` at once."""

    block: int
    node: Tensor
    start: Tensor
    stop: Tensor


class Hubs(NamedTuple):
    """Rows in pieces: hub ``i`` is ``node[i]``, and its pieces are ``first[i] .. first[i + 1] - 1``."""

    pieces: Work
    owner: Tensor
    node: Tensor
    first: Tensor


class Schedule(NamedTuple):
    """All rows of a layout, whole or in pieces."""

    whole: tuple[Work, ...]
    hubs: Hubs | None


class Degrees(NamedTuple):
    """What of a layout's degrees sets how its rows are cut."""

    rows: int
    widest: int
    few: int  # rows of at most SHORT edges

    @classmethod
    def of(cls, degree: Tensor) -> "Degrees":
        """Of the degrees (T,) of all rows."""
        return cls(degree.numel(), int(degree.max()) if degree.numel() else 0, int((degree <= SHORT).sum()))


def heads_at_once(heads: int, *widths: int, numbers: int = NUMBERS) -> int:
    """The number of heads per program, a power of two, given the widths of a head's rows."""
    most = max(_power(max(1, width)) for width in widths)
    return min(_power(max(1, heads)), max(1, numbers // most))


def _power(size: int) -> int:
    """The least power of two that is not below a size."""
    return 1 << (size - 1).bit_length()


_made: dict[tuple[Any, ...], tuple[StorageWeakRef, Schedule]] = {}
_wholes: dict[tuple[Any, ...], tuple[StorageWeakRef, Degrees]] = {}


def part_of(degrees: Degrees, ptr: Tensor) -> None:
    """Let some rows be cut as in the whole layout that they are part of, so that their sums are the same bits."""
    _live(_wholes)[_key(ptr)] = StorageWeakRef(ptr.untyped_storage()), degrees


def _key(ptr: Tensor) -> tuple[Any, ...]:
    return ptr.untyped_storage()._cdata, ptr.storage_offset(), ptr.numel()


def _live(held: dict[Any, tuple[StorageWeakRef, Any]]) -> dict[Any, tuple[StorageWeakRef, Any]]:
    """The dict without the entries whose memory is gone."""
    for old in [key for key, (memory, _) in held.items() if memory.expired()]:
        held.pop(old, None)
    return held


def schedule(ptr: Tensor, order: Tensor) -> Schedule:
    """The work of rows ``ptr[r] .. ptr[r + 1] - 1`` of nodes ``order[r]``, cached as long as the memory of ``ptr``.

    Only the first call waits for the device, to learn the lengths of the rows.
    """
    key = (*_key(ptr), order.data_ptr(), PIECE)
    if key not in _made:
        held = StorageWeakRef(ptr.untyped_storage())
        _live(_made)[key] = held, _schedule(ptr, order, _live(_wholes).get(_key(ptr), (held, None))[1])
    return _made[key][1]


def _schedule(ptr: Tensor, order: Tensor, degrees: Degrees | None) -> Schedule:
    degree = ptr.diff()
    if degree.numel() == 0:
        return Schedule((), None)
    rows, widest, few = degrees or Degrees.of(degree)
    piece = max(PIECE, 1 << math.isqrt(max(0, widest - 1)).bit_length())
    if widest <= piece and not 0.25 < few / rows < 1:  # one launch for all
        block = SHORT if few == rows else LONG
        return Schedule((Work(block, order, ptr[:-1], ptr[1:]),), None)
    short, hub = degree <= SHORT, degree > piece
    parts = ((SHORT, short), (LONG, ~short & ~hub))
    whole = (_of_rows(block, torch.nonzero(mask).flatten(), ptr, order) for block, mask in parts)
    return Schedule(tuple(work for work in whole if work.node.numel()), _hubs(ptr, order, hub, piece))


def _of_rows(block: int, rows: Tensor, ptr: Tensor, order: Tensor) -> Work:
    return Work(block, order[rows], ptr[rows], ptr[rows + 1])


def _hubs(ptr: Tensor, order: Tensor, hub: Tensor, piece: int) -> Hubs | None:
    rows = torch.nonzero(hub).flatten()
    if rows.numel() == 0:
        return None
    count = (ptr[rows + 1] - ptr[rows] + piece - 1) // piece
    first = torch.nn.functional.pad(count.cumsum(0), (1, 0))
    owner = torch.repeat_interleave(count)
    start = ptr[rows][owner] + (torch.arange(owner.numel(), device=ptr.device) - first[owner]) * piece
    stop = torch.minimum(start + piece, ptr[rows + 1][owner])
    return Hubs(Work(LONG, order[rows][owner], start, stop), owner, order[rows], first)
