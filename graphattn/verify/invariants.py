"""What must hold whatever the numbers are: who is heard, and that order and names do not matter."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..errors import BackendError
from ..graph import AttentionGraph
from ..graph.listed import Listed
from .bounds import agreement
from .measure import difference, size
from .report import Check
from .sample import EXHAUSTIVE, Sample
from .subject import Case, Subject, seeded

MOST_LISTED = 1 << 22  # edges up to which a graph is listed anew, to drop, shuffle or rename
PROBES = 3  # targets that are asked whether they hear what they should,
TRIES = 32  # found among so many
SHOVE = 3.0  # how far an input is moved

NOT_HEARD = "non-neighbours are not heard, bit for bit"
NO_GRADIENT = "the gradient of a non-neighbour is exactly 0"
NEIGHBOURS_HEARD = "every neighbour is heard"
ISOLATED = "a target without an edge gives exactly 0"
SAME_BITS = "the same bits twice"
REMOVED_EDGE = "a removed edge is seen"
EDGE_ORDER = "the order of the edges does not matter"
NODE_LABELS = "the labels of the nodes do not matter"
RULE_AGREES = "the rule's closed form agrees with its edges"

Outcome = str | None  # what went wrong; None if nothing did


def check_invariants(
    subject: Subject,
    piece: Sample,
    dtypes: tuple[torch.dtype, ...],
    backends: tuple[str, ...],
    gradients: bool = True,
) -> list[Check]:
    """Every invariant that has a meaning here, for every backend, in the first dtype that it accepts."""
    checks = []
    if subject.graph.is_rule:
        wrong = _rule_disagrees(subject.graph, piece)
        checks.append(Check("graph", RULE_AGREES, wrong is None, wrong or ""))
    for backend in backends:
        probe = _first_that_runs(subject, piece, dtypes, backend, gradients)
        if probe is None:
            continue
        for claim, test in (
            (NOT_HEARD, probe.not_heard),
            (NO_GRADIENT, probe.no_gradient),
            (NEIGHBOURS_HEARD, probe.neighbours_heard),
            (ISOLATED, probe.isolated),
            (SAME_BITS, probe.same_bits),
            (REMOVED_EDGE, probe.removed_edge),
            (EDGE_ORDER, probe.edge_order),
            (NODE_LABELS, probe.node_labels),
        ):
            if probe.applies(claim) and (gradients or claim != NO_GRADIENT):
                wrong = test()
                checks.append(Check(backend, claim, wrong is None, wrong or ""))
    return checks


def _first_that_runs(
    subject: Subject, piece: Sample, dtypes: tuple[torch.dtype, ...], backend: str, gradients: bool
) -> "_Probe | None":
    """The richest case without lse and weights that the backend runs."""
    for dtype in dtypes:
        for case in sorted(subject.cases, key=lambda case: case.bias, reverse=True):
            try:
                return _Probe(subject, piece, replace(case, extras=False), dtype, backend, gradients)
            except BackendError:
                continue
            except Exception:
                if subject.owns_graph:
                    raise
    return None


class _Probe:
    """One backend with inputs to move about."""

    def __init__(
        self, subject: Subject, piece: Sample, case: Case, dtype: torch.dtype, backend: str, gradients: bool
    ) -> None:
        self.gradients = gradients
        self.subject, self.piece, self.case, self.dtype, self.backend = subject, piece, case, dtype, backend
        self.graph, self.axis = subject.graph, subject.output_axis
        self.leaves = {name: leaf.detach() for name, leaf in subject.leaves(case, dtype).items()}
        self.output = self.run(self.leaves)
        self.degree = torch.bincount(piece.row, minlength=piece.targets.numel())
        shuffle = torch.randperm(piece.targets.numel(), generator=torch.Generator().manual_seed(0))
        self.busy = [row for row in shuffle.tolist() if self.degree[row] > 0][:TRIES]
        self.probes = [row for row in self.busy if bool(self.strangers(row).any())][:PROBES]
        self.listable = subject.owns_graph and self.graph.num_edges <= MOST_LISTED

    def run(self, leaves: dict[str, Tensor], graph: AttentionGraph | None = None) -> Tensor:
        with torch.no_grad():
            return self.subject.run(leaves, self.case, self.backend, graph).output

    def applies(self, claim: str) -> bool:
        """Whether the graph gives the claim a meaning."""
        edges = self.graph.num_edges > 0 and self.output.numel() > 0
        return {
            NOT_HEARD: bool(self.probes) and edges,
            NO_GRADIENT: bool(self.probes) and edges,
            NEIGHBOURS_HEARD: edges,
            ISOLATED: self.subject.gives_zero and bool((self.degree == 0).any()),
            REMOVED_EDGE: edges and self.listable,
            EDGE_ORDER: edges and self.listable,
            NODE_LABELS: edges and self.listable,
        }.get(claim, True)

    def at(self, output: Tensor, target: int) -> Tensor:
        return output.select(self.axis, target)

    def target(self, row: int) -> int:
        return int(self.piece.targets[row])

    def neighbours(self, row: int) -> Tensor:
        return torch.unique(self.piece.columns[self.piece.column[self.piece.row == row]])

    def strangers(self, row: int) -> Tensor:
        """bool (S,): sources that the target of the row must not hear, in this layer (not itself, as a query)."""
        strange = torch.ones(self.graph.num_sources, dtype=torch.bool, device=self.piece.targets.device)
        strange[self.neighbours(row)] = False
        if any(place.of == "nodes" for place in self.subject.places.values()):
            strange[self.target(row)] = False
        return strange

    def shoved(self, sources: Tensor) -> dict[str, Tensor]:
        """The inputs with those sources moved; bool (S,)."""
        moved = dict(self.leaves)
        for name, place in self.subject.places.items():
            if name in moved and place.of in ("sources", "nodes"):
                leaf = moved[name]
                step = seeded(f"shove {name}", tuple(leaf.shape), 2).to(leaf)
                where = sources.view(-1, *(1,) * (-place.axis - 1))
                moved[name] = torch.where(where, leaf + SHOVE * step, leaf)
        return moved

    def not_heard(self) -> Outcome:
        for row in self.probes:
            strange = self.strangers(row)
            changed = self.run(self.shoved(strange))
            before, after = (self.at(x, self.target(row)) for x in (self.output, changed))
            if not torch.equal(before, after):
                return (
                    f"moving {int(strange.sum())} sources without an edge into target {self.target(row)} "
                    f"changed its output by {difference(after, before):.3g}"
                )
        return None

    def no_gradient(self) -> Outcome:
        leaves = {name: leaf.clone().requires_grad_() for name, leaf in self.leaves.items()}
        output = self.subject.run(leaves, self.case, self.backend).output
        if not output.requires_grad:
            return None  # the missing gradient is an error of its own, and stands in the table
        names = [name for name, place in self.subject.places.items() if place.of in ("sources", "nodes")]
        for row in self.probes:
            heard = self.at(output, self.target(row)).sum()
            grads = torch.autograd.grad(heard, [leaves[name] for name in names], retain_graph=True, allow_unused=True)
            for name, grad in zip(names, grads, strict=True):
                axis = self.subject.places[name].axis
                strange = torch.nonzero(self.strangers(row)).flatten()
                if grad is not None and bool((leak := grad.index_select(axis, strange)).ne(0).any()):
                    return (
                        f"target {self.target(row)} sends a gradient of {size(leak):.3g} to {name} "
                        "of sources without an edge into it"
                    )
        return None

    def neighbours_heard(self) -> Outcome:
        for row in self.busy[:PROBES]:
            neighbours = self.neighbours(row)
            source = neighbours[row % neighbours.numel()]
            one = torch.zeros(self.graph.num_sources, dtype=torch.bool, device=source.device)
            one[source] = True
            after = self.at(self.run(self.shoved(one)), self.target(row))
            if torch.equal(after, self.at(self.output, self.target(row))):
                return f"moving source {int(source)} changed nothing at target {self.target(row)}, which reads it"
        return None

    def isolated(self) -> Outcome:
        row = int(torch.nonzero(self.degree == 0).flatten()[0])
        found = self.at(self.output, self.target(row))
        if bool((found == 0).all()):
            return None
        return f"target {self.target(row)} has no edge and gives {float(found.flatten()[0]):.3g}"

    def same_bits(self) -> Outcome:
        first, second = self.run_twice()
        for name, x in first.items():
            if not torch.equal(x, second[name]) and not bool(torch.isnan(x).any()):
                return f"{name} of two runs differs by {difference(x, second[name]):.3g}"
        return None  # a NaN is an error of its own, and stands in the table

    def run_twice(self) -> list[dict[str, Tensor]]:
        found = []
        for _ in range(2):
            leaves = {name: leaf.clone().requires_grad_() for name, leaf in self.leaves.items()}
            output = self.subject.run(leaves, self.case, self.backend).output
            values = {"output": output.detach()}
            if self.gradients and output.requires_grad:
                grads = torch.autograd.grad(output.sum(), list(leaves.values()), allow_unused=True)
                values |= {f"grad {name}": grad for name, grad in zip(leaves, grads, strict=True) if grad is not None}
            found.append(values)
        return found

    # --- on another graph

    def with_edges(self, order: Tensor) -> tuple[AttentionGraph, dict[str, Tensor]]:
        """The graph with the edges in ``order`` (e,) alone, and the inputs that follow them."""
        listed = self.graph.explicit().edges
        assert isinstance(listed, Listed)
        kept = Listed(listed.target[order], listed.source[order], listed.num_targets, listed.num_sources)
        leaves = dict(self.leaves)
        for name, place in self.subject.places.items():
            if name in leaves and place.of == "edges":
                leaves[name] = leaves[name].index_select(place.axis, order)
        return replace(self.graph, edges=kept), leaves

    def removed_edge(self) -> Outcome:
        for row in self.busy[:PROBES]:
            edges = torch.nonzero(self.piece.row == row).flatten()
            gone = int(self.piece.edge[edges[row % edges.numel()]])
            order = torch.arange(self.graph.num_edges, device=self.graph.device)
            graph, leaves = self.with_edges(order[order != gone])
            try:
                after = self.at(self.run(leaves, graph), self.target(row))
            except BackendError:  # an axis of size 0, and the like, once the edge is gone
                continue
            if torch.equal(after, self.at(self.output, self.target(row))):
                return f"dropping edge {gone} changed nothing at its target {self.target(row)}"
        return None

    def edge_order(self) -> Outcome:
        shuffle = torch.randperm(self.graph.num_edges, generator=torch.Generator().manual_seed(4))
        graph, leaves = self.with_edges(shuffle.to(self.graph.device))
        return self._agrees(lambda: self.run(leaves, graph))

    def node_labels(self) -> Outcome:
        shared = any(place.of == "nodes" for place in self.subject.places.values())
        new = {
            side: torch.randperm(count, generator=torch.Generator().manual_seed(seed)).to(self.graph.device)
            for side, count, seed in (("targets", self.graph.num_targets, 5), ("sources", self.graph.num_sources, 6))
        }
        if shared:
            new["sources"] = new["nodes"] = new["targets"]
        leaves = dict(self.leaves)
        for name, place in self.subject.places.items():
            if name in leaves and place.of != "edges":
                leaves[name] = leaves[name].index_select(place.axis, torch.argsort(new[place.of]))
        graph = self.graph.explicit().relabel(targets=new["targets"], sources=new["sources"])
        return self._agrees(lambda: self.run(leaves, graph).index_select(self.axis, new["targets"]))

    def _agrees(self, run: Callable[[], Tensor]) -> Outcome:
        """Within the sum of the bounds of two results that are each exact."""
        apart = difference(run(), self.output) / (size(self.output) or 1.0)
        limit = agreement(self.dtype)
        return None if apart <= limit else f"outputs differ by {apart:.3g} of their size (bound {limit:.3g})"


def _rule_disagrees(graph: AttentionGraph, piece: Sample) -> Outcome:
    """A pair on which ``contains`` and the listed edges of the sampled rows differ."""
    rows = max(1, min(piece.targets.numel(), 16 * EXHAUSTIVE // max(1, graph.num_sources)))
    targets = piece.targets[:rows]
    inside = graph.contains(targets[:, None], torch.arange(graph.num_sources, device=targets.device)[None, :])
    listed = torch.zeros_like(inside)
    near = piece.row < rows
    listed[piece.row[near], piece.columns[piece.column[near]]] = True
    wrong = torch.nonzero(inside != listed)
    if wrong.numel() == 0:
        return None
    row, source = wrong[0].tolist()
    return f"contains({int(targets[row])}, {source}) is {bool(inside[row, source])}, and its runs say otherwise"
