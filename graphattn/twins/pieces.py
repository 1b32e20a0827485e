"""Pieces of a graph that a dense twin can hold: all targets in several, or a sample in one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs

EXHAUSTIVE = 1 << 16  # pairs T x S up to which one piece has all targets
EVERYTHING = 1 << 22  # pairs, as the twin computes them, up to which every target is compared
BUDGET = 1 << 20  # pairs of a sample, per head
AT_ONCE = 1 << 18  # pairs of one of several pieces
ROW_BY_ROW = 128  # a target with at most so many edges gets columns of its own,
GATHERED = 8  # each of which costs as much as so many pairs of a product


@dataclass(frozen=True, eq=False)
class Piece:
    """A dense piece of a graph: R targets, and U columns for the sources they read.

    A repeated edge is given a column for each copy, so that copies may differ in bias and features:
    the twin then needs no notion of a multigraph.

    Args:
        targets: int64 (R,), ascending.
        columns: int64 (U,), the source in each column.
        edge: int64 (e,), positions in the graph's edge order of all edges into the targets.
        row: int64 (e,), the row of each such edge.
        column: int64 (e,), its column.
        complete: Whether this one piece has all targets, in their order.
        slots: int64 (R, W), where every row has W columns of its own: for each, its place in
            ``columns``.
    """

    targets: Tensor
    columns: Tensor
    edge: Tensor
    row: Tensor
    column: Tensor
    complete: bool = False
    slots: Tensor | None = None

    @property
    def width(self) -> int:
        """Columns of a row: U, or W where every row has its own."""
        if self.slots is None:
            return self.columns.numel()
        return self.slots.shape[1]

    @property
    def sources(self) -> Tensor:
        """int64 (e,), the source of each edge."""
        if self.slots is None:
            return self.columns[self.column]
        return self.columns[self.slots[self.row, self.column]]

    @property
    def cost(self) -> int:
        """Cost of the twin, in pairs of a product."""
        pairs = self.targets.numel() * self.width
        if self.slots is None:
            return pairs
        return pairs * GATHERED

    @property
    def mask(self) -> Tensor:
        """bool (R, U)."""
        mask = torch.zeros(
            self.targets.numel(), self.width, dtype=torch.bool, device=self.targets.device
        )
        mask[self.row, self.column] = True
        return mask

    def to(self, device: torch.device) -> "Piece":
        """The piece on a device."""
        tensors = {name: x.to(device) for name, x in self.__dict__.items() if isinstance(x, Tensor)}
        return replace(self, **tensors)  # type: ignore[arg-type]

    def spread(self, values: Tensor) -> Tensor:
        """Values of all edges (..., E, F) laid out as (..., R, U, F); 0 where there is no edge."""
        dense = values.new_zeros(
            *values.shape[:-2], self.targets.numel(), self.width, values.shape[-1]
        )
        dense[..., self.row, self.column, :] = values.index_select(-2, self.edge)
        return dense

    def collect(self, dense: Tensor) -> Tensor:
        """The other way: (..., R, U) to (..., e), in the order of ``edge``."""
        return dense[..., self.row, self.column]


def longest_sum(pieces: Sequence[Piece]) -> int:
    """Most edges of a target, or of a source in all pieces together."""
    of_targets = [torch.bincount(piece.row).max() for piece in pieces if piece.row.numel()]
    sources = torch.cat([piece.sources for piece in pieces])
    if not sources.numel():
        return 0
    return int(torch.stack([*of_targets, torch.bincount(sources).max()]).max())


def sample(
    graph: AttentionGraph, at_most: int = 256, seed: int = 0, floats_per_pair: int = 1
) -> Piece:
    """All targets of a small graph; of a large one a seeded choice.

    A choice has the first and the last target, and those with the most and the fewest edges.

    Args:
        graph: The graph.
        at_most: Targets chosen; fewer if their sources would not fit the budget.
        seed: Of the choice.
        floats_per_pair: Numbers that the twin holds of a pair; they divide the budget.
    """
    T = graph.num_targets
    budget = BUDGET // floats_per_pair
    if T * graph.num_sources <= min(EXHAUSTIVE, budget):
        return piece_of(graph, torch.arange(T), complete=True)
    shuffled = torch.randperm(T, generator=torch.Generator().manual_seed(seed))
    degree = graph.in_degree.cpu()
    telling = torch.unique(
        torch.stack((torch.tensor(0), torch.tensor(T - 1), degree.argmax(), degree.argmin()))
    )
    order = torch.cat((telling, shuffled[~torch.isin(shuffled, telling)]))
    count = min(at_most, T)
    while True:
        piece = piece_of(graph, order[:count].sort().values, complete=count == T)
        if count == 1 or count * piece.columns.numel() <= budget:
            return piece
        count //= 2


def all_pieces(
    graph: AttentionGraph, most_pairs: int = EVERYTHING, floats_per_pair: int = 1
) -> list[Piece] | None:
    """All targets, each once; ``None`` if they have more than ``most_pairs`` pairs of one number."""
    most_pairs //= floats_per_pair
    if graph.num_edges + graph.num_targets > most_pairs:
        return None
    result = []
    cost = 0
    for piece in _one_by_one(graph, AT_ONCE // floats_per_pair):
        cost += piece.cost
        if cost > most_pairs:
            return None
        result.append(piece)
    return result


def _one_by_one(graph: AttentionGraph, at_once: int) -> Iterator[Piece]:
    """Targets with few edges, each with its own columns; then those with many, with common ones."""
    rows = _Rows(graph)
    ordered, order = torch.sort(rows.degree, stable=True)
    narrow = int((ordered <= ROW_BY_ROW).sum())
    first = 0
    slots = at_once // GATHERED // 2
    while first < narrow:
        count = min(slots // max(1, int(ordered[first])), narrow - first)
        count = max(1, min(count, slots // max(1, int(ordered[first + count - 1]))))
        yield rows.gathered(order[first : first + count].sort().values)
        first += count
    wide_targets = torch.nonzero(rows.degree > ROW_BY_ROW).flatten()
    first = 0
    count = 256
    while first < wide_targets.numel():
        piece = rows.joint(wide_targets[first : first + count])
        if piece.targets.numel() > 1 and piece.cost > at_once:
            count = max(1, piece.targets.numel() // 2)
            continue
        yield piece
        first += piece.targets.numel()
        count = min(256, 2 * count)


def piece_of(graph: AttentionGraph, targets: Tensor, *, complete: bool = False) -> Piece:
    """The piece of some targets (R,), with all sources that any of them reads."""
    return _Rows(graph).joint(targets, complete)


class _Rows:
    """The edges into any targets, on the CPU; those of a listed graph are sorted once."""

    def __init__(self, graph: AttentionGraph) -> None:
        self.graph = graph
        self.degree = graph.in_degree.cpu()
        self.first = self.degree.cumsum(0) - self.degree
        if graph.edges.is_listed:
            self.order = torch.argsort(graph.target.cpu(), stable=True)
            self.source = graph.source.cpu()

    def into(self, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Row, source and place in the graph's edge order, by row."""
        row, within = _runs.spread(self.degree[targets])
        edge = self.first[targets][row] + within
        if self.graph.edges.is_listed:
            edge = self.order[edge]
            return row, self.source[edge], edge
        row, source = _runs.expand(self.graph.edges.rows(targets))
        return row, source, edge

    def joint(self, targets: Tensor, complete: bool = False) -> Piece:
        """All rows with the same columns."""
        row, source, edge = self.into(targets)
        sources, place = torch.unique(source, return_inverse=True)
        copy = _copies(row * max(1, sources.numel()) + place)
        if copy.numel():
            copies = int(copy.max()) + 1
        else:
            copies = 1
        column = copy * sources.numel() + place
        return Piece(targets, sources.repeat(copies), edge, row, column, complete).to(
            self.graph.device
        )

    def gathered(self, targets: Tensor) -> Piece:
        """Every row with its own columns: slot after slot, one for each edge."""
        row, source, edge = self.into(targets)
        sources, place = torch.unique(source, return_inverse=True)
        degree = self.degree[targets]
        _, slot = _runs.spread(degree)
        width = 0
        if degree.numel():
            width = int(degree.max())
        slots = torch.zeros(targets.numel(), width, dtype=torch.int64)
        slots[row, slot] = place
        return Piece(targets, sources, edge, row, slot, slots=slots).to(self.graph.device)


def _copies(pair: Tensor) -> Tensor:
    """For every edge, how many equal pairs stand before it."""
    key, order = torch.sort(pair, stable=True)
    _, within = _runs.spread(torch.unique_consecutive(key, return_counts=True)[1])
    copy = torch.empty_like(order)
    copy[order] = within
    return copy
