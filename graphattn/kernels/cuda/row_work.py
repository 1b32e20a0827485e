"""Rows of edges as work for a GPU: short, long, and in pieces; computed once for a layout."""

import math
from collections.abc import Hashable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

Value = TypeVar("Value")

SHORT = 4  # most edges of a short row: a block of edges that fits it wastes no loads
PIECE = 128  # most edges of a whole row, and most pieces of a hub, which are longer beyond that
LONG = 16  # most edges that a program for a long row processes at once
NUMBERS = 1024  # most numbers of a row of nodes per program, unless one head has more


class Work(NamedTuple):
    """Programs: each processes the edges ``start .. stop - 1`` (n,) of ``node`` (n,) in blocks."""

    block: int
    node: Tensor
    start: Tensor
    stop: Tensor


class Hubs(NamedTuple):
    """Rows in pieces: hub ``i`` is ``node[i]``, its pieces ``first[i] .. first[i + 1] - 1``."""

    pieces: Work
    owner: Tensor
    node: Tensor
    first: Tensor


class RowSchedule(NamedTuple):
    """All rows of a layout, whole or in pieces."""

    whole_rows: tuple[Work, ...]
    hubs: Hubs | None

    @property
    def parts(self) -> tuple[Work, ...]:
        """All rows, those of hubs in pieces."""
        if self.hubs is None:
            return self.whole_rows
        return (*self.whole_rows, self.hubs.pieces)


class Degrees(NamedTuple):
    """The degrees of a layout, as far as they set how its rows are cut."""

    rows: int
    widest: int
    few: int  # rows of at most SHORT edges

    @classmethod
    def of(cls, degree: Tensor) -> "Degrees":
        """The summary of the degrees (T,) of all rows."""
        widest = 0
        if degree.numel():
            widest = int(degree.max())
        return cls(degree.numel(), widest, int((degree <= SHORT).sum()))


def heads_at_once(heads: int, *widths: int, numbers: int = NUMBERS) -> int:
    """The number of heads per program, a power of two, given the widths of a head's rows."""
    most = max(_power(max(1, width)) for width in widths)
    return min(_power(max(1, heads)), max(1, numbers // most))


def _power(size: int) -> int:
    """The least power of two that is not below a size."""
    return 1 << (size - 1).bit_length()


Memory = tuple[StorageWeakRef, ...]

#: By the memory of a layout. A value has memory of its own: a view of its layout would keep its own
#: key alive, and on a GPU the rows of every graph that there was. So that of one launch for all
#: rows is its block.
_schedules: dict[Hashable, tuple[Memory, RowSchedule | int]] = {}
_degrees: dict[Hashable, tuple[Memory, Degrees]] = {}


def part_of(degrees: Degrees, ptr: Tensor) -> None:
    """Cut rows as in the layout that they are part of, so that their sums are the same bits."""
    _live(_degrees)[_key(ptr)] = _memory(ptr), degrees


def _key(*tensors: Tensor) -> Hashable:
    """The storages of tensors.

    A weak reference to a storage keeps its address from being reused.
    """
    return tuple([(x.untyped_storage()._cdata, x.storage_offset(), x.numel()) for x in tensors])


def _memory(*tensors: Tensor) -> Memory:
    return tuple([StorageWeakRef(x.untyped_storage()) for x in tensors])


def _live(cache: dict[Hashable, tuple[Memory, Value]]) -> dict[Hashable, tuple[Memory, Value]]:
    """The dict without the entries of which some memory is gone."""
    for key, (memory, _) in list(cache.items()):
        if any(storage.expired() for storage in memory):
            cache.pop(key, None)
    return cache


def schedule(ptr: Tensor, order: Tensor) -> RowSchedule:
    """The work of rows ``ptr[r] .. ptr[r + 1] - 1`` of ``order[r]``, cached with their memory.

    Only the first call waits for the device, to learn the lengths of the rows.
    """
    key = (_key(ptr, order), PIECE)
    if key not in _schedules:
        degrees = _live(_degrees).get(_key(ptr), (None, None))[1]
        keep(ptr, order, cut(ptr, order, degrees))
    entry = _schedules[key][1]
    if isinstance(entry, RowSchedule):
        return entry
    return RowSchedule((Work(entry, order, ptr[:-1], ptr[1:]),), None)


def keep(ptr: Tensor, order: Tensor, entry: RowSchedule | int) -> None:
    """Let the schedule of these rows be one that :func:`cut` made of them, on any device."""
    _live(_schedules)[_key(ptr, order), PIECE] = _memory(ptr, order), entry


def cut(ptr: Tensor, order: Tensor, degrees: Degrees | None = None) -> RowSchedule | int:
    """A schedule in memory of its own, or the block of one launch for all rows."""
    degree = ptr.diff()
    if degree.numel() == 0:
        return RowSchedule((), None)
    rows, widest, few = degrees or Degrees.of(degree)
    piece = max(PIECE, 1 << math.isqrt(max(0, widest - 1)).bit_length())
    if widest <= piece and not 0.25 < few / rows < 1:
        if few == rows:
            return SHORT
        return LONG
    short = degree <= SHORT
    hub = degree > piece
    parts = ((SHORT, short), (LONG, ~short & ~hub))
    works = []
    for block, mask in parts:
        numbers = torch.nonzero(mask).flatten()
        if numbers.numel():
            works.append(Work(block, order[numbers], ptr[numbers], ptr[numbers + 1]))
    return RowSchedule(tuple(works), _hubs(ptr, order, hub, piece))


def _hubs(ptr: Tensor, order: Tensor, hub: Tensor, piece: int) -> Hubs | None:
    rows = torch.nonzero(hub).flatten()
    if rows.numel() == 0:
        return None
    count = (ptr[rows + 1] - ptr[rows] + piece - 1) // piece
    first = torch.nn.functional.pad(count.cumsum(0), (1, 0))
    owner = torch.repeat_interleave(count)
    start = (
        ptr[rows][owner] + (torch.arange(owner.numel(), device=ptr.device) - first[owner]) * piece
    )
    stop = torch.minimum(start + piece, ptr[rows + 1][owner])
    return Hubs(Work(LONG, order[rows][owner], start, stop), owner, order[rows], first)
