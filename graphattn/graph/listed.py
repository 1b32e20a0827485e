"""Edges as a list in the caller's order, and the checks of a caller's edge_index."""

from functools import partial

import torch
from torch import Tensor

from ..arguments import one_of, table
from ..errors import GraphError, GraphIndexError
from . import runs as _runs
from .edges import Edges
from .images import Images, checked_images, lexicographic
from .modes import cached_property, unwrapped, without_modes
from .runs import Runs
from .sort import Sorted, ascending, countable, counted, placed

INT32_FROM = 1 << 22  # edges whose ends are kept in int32: 64 MB of int64
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


class Listed(Edges):
    """A list of edges in the caller's order, with copies; :func:`listed` constructs it.

    Attributes:
        ends: The list (2, E), int64, or int32 of :data:`INT32_FROM` edges or more; public properties
            copy it.
    """

    is_listed = True

    def __init__(self, num_targets: int, num_sources: int, ends: Tensor) -> None:
        super().__init__(
            num_targets, num_sources, runs_per_row=1 + ends.shape[1] // max(1, num_targets)
        )
        self.ends = ends
        self._count = ends.shape[1]

    def stored(self) -> None:
        """No intervals: the list is the form of these edges."""

    def contains(self, target: Tensor, source: Tensor) -> Tensor:
        pair_key = (target * self.num_sources + source).to(self.key.device).contiguous()
        if self.key.numel() == 0:
            return torch.zeros_like(pair_key, dtype=torch.bool).to(target.device)
        place = torch.searchsorted(self.key, pair_key).clamp(max=self.key.numel() - 1)
        return (self.key[place] == pair_key).to(target.device)

    @property
    def mean_degree(self) -> int:
        return -(-self.count() // max(1, self.num_targets))

    def degrees(self) -> Tensor:
        return torch.bincount(self.target, minlength=self.num_targets).cpu()

    def flip(self) -> "Listed":
        return listed(
            self.source,
            self.target,
            self.num_sources,
            self.num_targets,
            has_repeats=self.has_repeats,
            images=self.images and self.images.flip(),
        )

    @property
    def edge_index(self) -> Tensor:
        """int64 (2, E): the list."""
        return self.ends.long()

    @property
    def source(self) -> Tensor:
        """int64 (E,): row 0 of :attr:`edge_index`."""
        return self.ends[0].long()

    @property
    def target(self) -> Tensor:
        """int64 (E,): row 1 of :attr:`edge_index`."""
        return self.ends[1].long()

    @cached_property
    def _has_tables(self) -> bool:
        """True if tables of all targets cost little beside the edges."""
        return countable(self.ends[1], self.num_targets, self.num_sources)

    @cached_property
    def _place(self) -> Tensor:
        """:attr:`order` of few edges."""
        return ascending(torch.add(self.source, self.target, alpha=self.num_sources))

    @cached_property
    def sorted(self) -> Sorted:
        """The listed edges by target, then by source; int32 where they are many."""
        row = self.target
        column = self.source
        sizes = (self.num_targets, self.num_sources)
        if not self._has_tables:
            return placed(self._place, row, column, self.num_targets)
        if bool((row[1:] < row[:-1]).any()):
            return counted(row, column, *sizes)
        # quick for keys that are nearly sorted
        place = ascending(torch.add(column, row, alpha=self.num_sources))
        edges = placed(place, row, column, self.num_targets)
        return Sorted(edges.ptr, edges.column.int(), edges.place.int())

    @cached_property
    def key(self) -> Tensor:
        """int64 (E,): ``target * S + source`` of every listed edge, ascending."""
        return torch.add(self.source, self.target, alpha=self.num_sources)[self.order]

    @property
    def order(self) -> Tensor:
        """int64 (E,): the indices of the listed edges by target, then by source."""
        if self._has_tables:
            return self.sorted.place.long()
        return self._place

    def is_copy(self) -> Tensor:
        """bool (E,), in :attr:`order`: True for an edge equal to the one before it."""
        if self._has_tables:
            which = self.sorted.column
        else:
            which = self.key
        same = torch.zeros_like(which, dtype=torch.bool)
        torch.eq(which[1:], which[:-1], out=same[1:])
        if self._has_tables:  # an equal source may belong to another target
            first = self.sorted.ptr[:-1]
            same[first[first < same.numel()]] = False
        return same

    def rows(self, target: Tensor) -> Runs:
        if self.has_repeats:
            key = torch.unique_consecutive(self.key).cpu()
        elif self._has_tables:  # without their keys, which take as much memory as the sources
            ptr, column, _ = self.sorted
            row, within = _runs.spread(ptr[target + 1] - ptr[target])
            return _runs.from_pairs(row, column[ptr[target][row] + within].long())
        else:
            key = self.key.cpu()
        first = torch.searchsorted(key, target * self.num_sources)
        last = torch.searchsorted(key, (target + 1) * self.num_sources)
        row, within = _runs.spread(last - first)
        return _runs.from_pairs(row, key[first[row] + within] - target[row] * self.num_sources)

    def keep(self, mask: Tensor) -> "Listed":
        """The edges where ``mask`` (E,) is True, in the same order."""
        repeats = None  # to be counted again
        if not self.has_repeats:
            repeats = False
        sizes = (self.num_targets, self.num_sources)
        images = self.images and self.images.at(mask)
        ends = (self.target[mask], self.source[mask])
        return listed(*ends, *sizes, has_repeats=repeats, images=images)

    def copies(self) -> tuple[Tensor, Tensor]:
        """Numbers of edges, (E,), so that copies follow each other, and True for one equal to that
        before it; edges through different images are no copies.
        """
        if self.images is None:
            return self.order, self.is_copy()
        images = self.images
        pair = torch.add(self.source, self.target, alpha=self.num_sources)
        columns = torch.cat((pair[:, None], images.offsets), 1)
        order = lexicographic(columns.cpu()).to(pair.device)
        columns = columns[order]
        same = torch.zeros_like(order, dtype=torch.bool)
        same[1:] = (columns[1:] == columns[:-1]).all(1)
        return order, same

    def distinct(self) -> "Listed":
        """The first copy of every edge, in the same order; edges without copies as they are."""
        if not self.has_repeats:
            return self
        order, is_copy = self.copies()
        first = ~is_copy
        keep = torch.zeros_like(first)
        keep[order[first]] = True
        return self.keep(keep)

    def to(self, device: torch.device) -> "Listed":
        if device == self.ends.device:
            return self
        ends = self.target.to(device), self.source.to(device)
        return listed(
            *ends,
            self.num_targets,
            self.num_sources,
            has_repeats=self.has_repeats,
            images=self.images and self.images.to(device),
        )


def listed(
    target: Tensor,
    source: Tensor,
    num_targets: int,
    num_sources: int,
    *,
    has_repeats: bool | None = None,
    images: Images | None = None,
) -> Listed:
    """Edges one by one, in the order given, unchecked; a given ``has_repeats`` saves a sort."""
    check_pairs(num_targets, num_sources)
    ends = without_modes(
        partial(_ends, unwrapped(target), unwrapped(source), max(num_targets, num_sources))
    )
    edges = Listed(num_targets, num_sources, ends)
    edges.images = images
    if has_repeats is None:
        edges.has_repeats = bool(edges.is_copy().any())
    else:
        edges.has_repeats = has_repeats
    return edges


def _ends(target: Tensor, source: Tensor, size: int) -> Tensor:
    if source.numel() >= INT32_FROM and size <= 2**31:
        source = source.int()
        target = target.int()
    return torch.stack((source, target))


def check_pairs(num_targets: int, num_sources: int) -> None:
    """Refuse sizes whose pairs int64 cannot number."""
    if num_targets * num_sources >= 2**63:
        raise GraphError(
            f"{num_targets} targets x {num_sources} sources is {num_targets * num_sources} pairs, "
            "and listed edges are limited to fewer than 2**63; split the graph and join the results"
        )


def _as_index(edge_index: object) -> Tensor:
    if not isinstance(edge_index, Tensor):
        return _as_index(table(edge_index, "edge_index", "integers (2, E)", GraphError))
    shape = tuple(edge_index.shape)
    # an empty list, or a table of no rows or of no columns
    if edge_index.numel() == 0 and (len(shape) != 2 or 2 in shape):
        return torch.empty(2, 0, dtype=torch.int64, device=edge_index.device)
    if shape[:-1] != (2,):
        hint = ""
        if shape[1:] == (2,):
            hint = "; pass edge_index.t()"
        raise GraphError(
            f"edge_index must have shape (2, E), row 0 sources and row 1 targets: "
            f"expected [2, E], got {list(shape)}{hint}"
        )
    if edge_index.dtype not in INTEGERS:
        kind = str(edge_index.dtype).removeprefix("torch.")
        raise GraphError(
            f"edge_index must be integers (int64), got {kind}; pass edge_index.long() if these "
            "are indices"
        )
    return edge_index


def _check_range(index: Tensor, size: int, row: int, other: int, others: Tensor) -> None:
    side = ("source", "target")[row]
    lowest, highest = torch.stack(index.aminmax()).tolist()
    if 0 <= lowest <= highest < size:
        return
    edge = int(torch.nonzero((index < 0) | (index >= size))[0])
    hint = f"Are there more {side}s than {size}? Or negative ones, which are not wrapped?"
    if 0 <= lowest <= highest < other and int(others.max()) < size:
        hint = "Rows swapped? Then use edge_index.flip(0)."
    raise GraphIndexError(
        f"edge {edge}: {side} {int(index[edge])} is outside [0, {size}) ({size} {side}s); row {row} "
        f"of edge_index holds the {side}s. {hint}"
    )


def checked(
    edge_index: object,
    num_targets: int,
    num_sources: int,
    duplicates: str = "error",
    *,
    offsets: object = None,
    cell: object = None,
    batch: object = None,
) -> Listed:
    """Listed edges from a caller's tensors, copied and validated, on the device of ``edge_index``.

    Raises:
        GraphError: If the tensor is not an integer (2, E), or an edge is repeated and
            ``duplicates="error"``.
        GraphIndexError: If an index lies outside its range.
    """
    one_of(duplicates, "duplicates", ("error", "keep", "merge"), GraphError)
    check_pairs(num_targets, num_sources)
    source, target = _as_index(edge_index).detach().to(torch.int64).unbind(0)
    if source.numel():
        _check_range(source, num_sources, 0, num_targets, target)
        _check_range(target, num_targets, 1, num_sources, source)
    images = checked_images(offsets, cell, batch, target, num_targets)
    edges = listed(target, source, num_targets, num_sources, images=images)
    if not edges.has_repeats or duplicates == "keep":
        return edges
    if duplicates == "merge":
        return edges.distinct()
    order, is_copy = edges.copies()
    copies = torch.nonzero(is_copy)
    if not len(copies):
        return edges
    where = int(copies[0])
    first, second = sorted(order[where - 1 : where + 1].tolist())
    raise GraphError(
        f"edges {first} and {second} are both {int(source[first])} -> {int(target[first])}: "
        'repeated edges. ga.from_edge_index(edge_index, duplicates="merge") drops copies, "keep" '
        "counts each one (a multigraph); of images in a cell that repeats pass their offsets"
    )
