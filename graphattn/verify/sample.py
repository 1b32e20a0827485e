"""A sample of targets and every source they read, so that a dense twin never builds T x S."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.listed import Listed

EXHAUSTIVE = 1 << 16  # pairs up to which all targets are compared
BUDGET = 1 << 20  # pairs that a twin may hold at once, per head


@dataclass(frozen=True, eq=False)
class Sample:
    """A dense piece of a graph: R targets, and U columns for the sources they read.

    A repeated edge is given a column for each copy, so that copies may differ in bias and features: the twin then needs
    no notion of a multigraph.

    Args:
        targets: int64 (R,), ascending.
        columns: int64 (U,), the source in each column.
        edge: int64 (e,), positions in the graph's edge order of all edges into the targets.
        row: int64 (e,), the row of each such edge.
        column: int64 (e,), its column.
        complete: Whether these are all targets.
        slots: int64 (R, W), where every row has W columns of its own: for each, its place in ``columns``.
    """

    targets: Tensor
    columns: Tensor
    edge: Tensor
    row: Tensor
    column: Tensor
    complete: bool
    slots: Tensor | None = None

    @property
    def width(self) -> int:
        """Columns of a row: U, or W where every row has its own."""
        return self.columns.numel() if self.slots is None else self.slots.shape[1]

    @property
    def mask(self) -> Tensor:
        """bool (R, U)."""
        mask = torch.zeros(self.targets.numel(), self.width, dtype=torch.bool, device=self.targets.device)
        mask[self.row, self.column] = True
        return mask

    def spread(self, values: Tensor) -> Tensor:
        """Values of all edges (..., E, F) laid out as (..., R, U, F); 0 where there is no edge."""
        dense = values.new_zeros(*values.shape[:-2], self.targets.numel(), self.width, values.shape[-1])
        dense[..., self.row, self.column, :] = values.index_select(-2, self.edge)
        return dense

    def collect(self, dense: Tensor) -> Tensor:
        """The other way: (..., R, U) to (..., e), in the order of ``edge``."""
        return dense[..., self.row, self.column]


def sample(graph: AttentionGraph, at_most: int = 256, seed: int = 0, budget: int = BUDGET) -> Sample:
    """All targets of a small graph; else a seeded choice with the first, the last, the busiest and the idlest one.

    Args:
        graph: The graph.
        at_most: Targets chosen; fewer if their sources would not fit the budget.
        seed: Of the choice.
        budget: Pairs of targets and sources.
    """
    T = graph.num_targets
    if T * graph.num_sources <= min(EXHAUSTIVE, budget):
        return piece_of(graph, torch.arange(T), complete=True)
    shuffled = torch.randperm(T, generator=torch.Generator().manual_seed(seed))
    degree = graph.in_degree.cpu()
    telling = torch.stack((torch.tensor(0), torch.tensor(T - 1), degree.argmax(), degree.argmin()))
    order = torch.cat((torch.unique(telling), shuffled[~torch.isin(shuffled, telling)]))
    count = min(at_most, T)
    while True:
        piece = piece_of(graph, order[:count].sort().values, complete=count == T)
        if count == 1 or count * piece.columns.numel() <= budget:
            return piece
        count //= 2


def piece_of(
    graph: AttentionGraph,
    targets: Tensor,
    edges: tuple[Tensor, Tensor, Tensor] | None = None,
    *,
    complete: bool = False,
) -> Sample:
    """Those targets (R,) with all sources that any of them reads; ``edges`` as of :func:`edges_into`, if known."""
    row, source, edge = edges_into(graph, targets) if edges is None else edges
    sources, place = torch.unique(source, return_inverse=True)
    copy = _copies(row * max(1, sources.numel()) + place)
    copies = int(copy.max()) + 1 if copy.numel() else 1
    column = copy * sources.numel() + place
    device = graph.device
    columns = sources.repeat(copies)
    return Sample(targets.to(device), columns.to(device), edge.to(device), row.to(device), column.to(device), complete)


def edges_into(graph: AttentionGraph, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row, source and place in the edge order of every edge into the targets, on the CPU."""
    if isinstance(graph.edges, Listed):
        number = torch.full((graph.num_targets,), -1)
        number[targets] = torch.arange(targets.numel())
        row = number[graph.edges.target.cpu()]
        edge = torch.nonzero(row >= 0).flatten()
        return row[edge], graph.edges.source.cpu()[edge], edge
    row, source = _runs.expand(graph.edges.runs(targets))
    degree = graph.in_degree.cpu()
    first = degree.cumsum(0) - degree
    _, within = _runs.spread(torch.bincount(row, minlength=targets.numel()))
    return row, source, first[targets][row] + within


def _copies(pair: Tensor) -> Tensor:
    """For every edge, how many equal pairs stand before it."""
    key, order = torch.sort(pair, stable=True)
    _, within = _runs.spread(torch.unique_consecutive(key, return_counts=True)[1])
    copy = torch.empty_like(order)
    copy[order] = within
    return copy
