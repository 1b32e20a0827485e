"""One backend on one graph, with inputs, edges and labels that can be moved about."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.listed import listed
from ..graph.modes import cached_property
from ..twins.pieces import Piece
from .stability import stability
from .subject import Case, Leaf, Subject, detached, seeded

MOST_LISTED = 1 << 22  # edges up to which a graph is listed anew, to drop, shuffle or rename
PROBES = 3  # targets of a large graph that are probed,
TRIES = 32  # of so many with an edge
ALL = 256  # and of a small one
SHOVE = 3.0  # how far an input is moved
LEAST = 16.0  # in eps of the largest weight: what is less may be none


@contextmanager
def threads(count: int) -> Iterator[int]:
    """A number of threads of torch inside; yields the number before, and restores it.

    Thousands of runs on tensors of a few kilobytes take a tenth of the processor time with one
    thread: a second only waits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


def sent(output: Tensor, leaves: dict[str, Tensor], places: dict[str, Leaf]) -> dict[str, Tensor]:
    """The largest gradient (S,) that the sum of an output sends to each input of the sources."""
    names = [name for name, place in places.items() if place.of in ("sources", "nodes")]
    names = [name for name in names if name in leaves]
    inputs = [leaves[name] for name in names]
    grads = torch.autograd.grad(output.sum(), inputs, retain_graph=True, allow_unused=True)
    largest = {}
    for name, grad in zip(names, grads, strict=True):
        if grad is not None and grad.numel():
            largest[name] = grad.abs().movedim(places[name].axis, 0).flatten(1).amax(1)
    return largest


class Probe:
    """The subject run with one backend, case and dtype.

    Args:
        subject: What is verified.
        piece: The targets to choose probes from.
        case: The options.
        dtype: Of the inputs.
        backend: The one that runs.
        gradients: Whether gradients are taken.
        threads: The number of threads of the caller's torch.
    """

    def __init__(
        self,
        subject: Subject,
        piece: Piece,
        case: Case,
        dtype: torch.dtype,
        backend: str,
        gradients: bool,
        threads: int,
    ) -> None:
        self.subject = subject
        self.piece = piece
        self.case = case
        self.dtype = dtype
        self.backend = backend
        self.graph = subject.graph
        self.axis = subject.output_axis
        self.gradients = gradients
        self.threads = threads
        self.leaves = detached(subject.leaves(case, dtype))
        self.places = {name: place for name, place in subject.places.items() if name in self.leaves}
        self.shares_nodes = any(place.of == "nodes" for place in self.places.values())
        self.output = self.run(self.leaves)
        R = piece.targets.numel()
        self.degree = torch.bincount(piece.row, minlength=R)
        self.stable: Tensor | None = None  # (..., T)
        where = stability(subject, case, dtype, [piece])
        if where is not None:
            self.stable = where.stable
        self.edge_weight = self._edge_weight()
        order = torch.randperm(R, generator=torch.Generator().manual_seed(0)).tolist()
        weighted = torch.bincount(piece.row[self.edge_weight > 0], minlength=R).tolist()
        rows = [row for row in order if weighted[row]]
        self.busy = rows[:TRIES]
        if piece.complete:
            self.probed = rows[:ALL]
        else:
            self.probed = rows[:PROBES]
        self.pairs_read = 0
        self._unread: dict[int, Tensor] = {}  # several invariants look at the same rows
        self.listable = (
            subject.owns_graph and subject.relists and self.graph.num_edges <= MOST_LISTED
        )

    def _edge_weight(self) -> Tensor:
        """Weight of each edge (e,); 0 where the twin gives it no weight, or nothing stable.

        Softmax of products gives every edge some; a normalisation may leave edges out.
        """
        piece = self.piece
        if self.stable is None or piece.edge.numel() == 0:
            return torch.ones(piece.edge.numel(), device=piece.targets.device)
        leaves = detached(self.leaves, torch.float64)
        with torch.no_grad():
            weights = self.subject.problem(leaves, self.case, piece).solve(piece).weights
        assert weights is not None
        unstable = ~self.stable[..., piece.targets[piece.row]]
        weight = weights.abs().amax(-1).masked_fill(unstable, 0.0)  # (..., e)
        weight = weight.reshape(-1, piece.edge.numel()).amax(0)
        least = LEAST * torch.finfo(self.dtype).eps * float(weight.nan_to_num(0.0).max())
        return torch.where(weight > least, weight, 0.0)

    def where_stable(self, output: Tensor) -> Tensor:
        """An output of all targets, 0 where it is not stable."""
        if self.stable is None:
            return output
        return torch.where(self.stable.unsqueeze(-1), output, 0.0)

    def run(self, leaves: dict[str, Tensor], graph: AttentionGraph | None = None) -> Tensor:
        """The output, without gradients."""
        with torch.no_grad():
            return self.subject.run(leaves, self.case, self.backend, graph).output

    def run_with_gradients(self) -> tuple[dict[str, Tensor], Tensor]:
        """Fresh leaves that require gradients, and the output."""
        leaves = {
            name: leaf.clone().requires_grad_(self.gradients) for name, leaf in self.leaves.items()
        }
        return leaves, self.subject.run(leaves, self.case, self.backend).output

    @cached_property
    def repeats(self) -> bool:
        """True if another run on the same inputs gives the same bits.

        Else moving an input proves nothing.
        """
        return torch.equal(self.run(self.leaves).nan_to_num(), self.output.nan_to_num())

    @cached_property
    def gradients_sent(self) -> dict[int, dict[str, Tensor]]:
        """The largest gradients (S,) that each probed target sends to each input of the sources.

        Empty where there is no gradient.
        """
        leaves, output = self.run_with_gradients()
        if not output.requires_grad:
            return {}
        return {row: sent(self.at(output, [row]), leaves, self.places) for row in self.probed}

    def groups(self, rows: list[int]) -> list[list[int]]:
        """Rows to probe in one run: one at a time on a small graph, all together on a large one."""
        rows = rows[:PROBES]
        if self.piece.complete:
            return [[row] for row in rows]
        if rows:
            return [rows]
        return []

    def at(self, output: Tensor, rows: list[int]) -> Tensor:
        """The outputs of the rows' targets."""
        return output.index_select(self.axis, self.piece.targets[rows])

    def name(self, row: int) -> str:
        """The row's target in words."""
        return f"target {int(self.piece.targets[row])}"

    def neighbours(self, row: int) -> Tensor:
        """The distinct sources that the row's target reads."""
        return torch.unique(self.piece.columns[self.piece.column[self.piece.row == row]])

    def weighted_sources(self, row: int) -> Tensor:
        """The distinct sources that the row's target reads by an edge with a weight."""
        edges = (self.piece.row == row) & (self.edge_weight > 0)
        return torch.unique(self.piece.columns[self.piece.column[edges]])

    def non_neighbours(self, row: int) -> Tensor:
        """bool (S,): sources that the row's target may not read, as a source or as itself."""
        if row not in self._unread:
            unread = torch.ones(
                self.graph.num_sources, dtype=torch.bool, device=self.piece.targets.device
            )
            unread[self.neighbours(row)] = False
            if self.shares_nodes:
                unread[self.piece.targets[row]] = False
            self._unread[row] = unread
        return self._unread[row]

    def perturbed(self, sources: Tensor, by: float = SHOVE) -> dict[str, Tensor]:
        """The inputs with those sources moved; bool (S,)."""
        moved = dict(self.leaves)
        for name, place in self.places.items():
            if place.of in ("sources", "nodes"):
                step = seeded(f"shove {name}", tuple(moved[name].shape), 2).to(moved[name])
                where = sources.view(-1, *(1,) * (-place.axis - 1))
                moved[name] = torch.where(where, moved[name] + by * step, moved[name])
        return moved

    def without(self, gone: Tensor) -> tuple[dict[str, Tensor], AttentionGraph]:
        """The inputs and the graph without some edges, int64."""
        keep = torch.ones(self.graph.num_edges, dtype=torch.bool, device=self.piece.targets.device)
        keep[gone] = False
        return self._with_edges(torch.nonzero(keep).flatten())

    def _with_edges(self, order: Tensor) -> tuple[dict[str, Tensor], AttentionGraph]:
        """The inputs that go with the edges in ``order`` (e,), and the graph of these alone."""
        index = self.graph.edge_index[:, order]
        images = self.graph.images and self.graph.images.at(order)
        sizes = (self.graph.num_targets, self.graph.num_sources)
        edges = listed(index[1], index[0], *sizes, images=images)
        leaves = dict(self.leaves)
        for name, place in self.places.items():
            if place.of == "edges":
                leaves[name] = leaves[name].index_select(place.axis, order)
        return leaves, replace(self.graph, edges=edges)

    def renamed(self) -> Tensor:
        """The output on the same graph with every node renamed, brought back to the old names."""
        new = {
            "targets": self._shuffle(self.graph.num_targets),
            "sources": self._shuffle(self.graph.num_sources),
        }
        if self.shares_nodes:
            new["sources"] = new["targets"]
            new["nodes"] = new["targets"]
        leaves = dict(self.leaves)
        for name, place in self.places.items():
            if place.of != "edges":
                leaves[name] = leaves[name].index_select(place.axis, torch.argsort(new[place.of]))
        graph = self.graph.materialise().relabel(targets=new["targets"], sources=new["sources"])
        return self.run(leaves, graph).index_select(self.axis, new["targets"])

    def reordered(self) -> Tensor:
        """The output on the same edges in another order."""
        return self.run(*self._with_edges(self._shuffle(self.graph.num_edges)))

    def _shuffle(self, count: int) -> Tensor:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
        return order.to(self.piece.targets.device)
