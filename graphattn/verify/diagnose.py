"""From a wrong answer to the mistake that explains it."""

from dataclasses import replace

import torch
from torch import Tensor

from .bounds import EXPLAINED
from .measure import Measured, difference, measure_backend, size, twins
from .report import Row
from .sample import BUDGET, Sample
from .scene import Answer, Scene
from .subject import Case, Subject
from .wrong_graphs import WRONG_GRAPHS
from .wrong_scores import WRONG_SCORES

UNEXPLAINED = "none of the known mistakes explains it"


def diagnose(subject: Subject, piece: Sample, rows: list[Row]) -> str | None:
    """What explains the errors, in words; ``None`` if there are none."""
    wrong = [row for row in rows if not row.ok]
    if not wrong:
        return None
    first = next((row for row in wrong if row.is_output), wrong[0])
    case = next(case for case in subject.cases if case.name == first.case)
    where = f"{first.backend}, {first.dtype}, {case.name}"
    if not first.is_output:
        names = [
            row.quantity
            for row in wrong
            if (row.backend, row.dtype, row.case) == (first.backend, first.dtype, case.name)
        ]
        return f"{where}: the output is right; {_of_the_rest(subject, piece, case, first, names)}"
    look = _Look(subject, piece, case, getattr(torch, first.dtype), first.backend)
    return f"{where}: {look.extent(first.bound)}; {look.explanation()}"


def _of_the_rest(subject: Subject, piece: Sample, case: Case, row: Row, names: list[str]) -> str:
    """Which gradients are lost, and which are wrong."""
    dtype = getattr(torch, row.dtype)
    found: Measured = measure_backend(subject, case, dtype, row.backend, piece)
    truth, _ = twins(subject, case, dtype, piece)
    lost = [name for name in names if name in found.values and size(found.values[name]) == 0 < size(truth.values[name])]
    rest = [name for name in names if name not in lost]
    said = [f"{', '.join(lost)}: zero, as after detach()"] * bool(lost) + [f"wrong: {', '.join(rest)}"] * bool(rest)
    return "; ".join(said)


class _Look:
    """A wrong output beside the right one, and beside what known mistakes would give."""

    def __init__(self, subject: Subject, piece: Sample, case: Case, dtype: torch.dtype, backend: str) -> None:
        self.subject, self.case, self.graph = subject, case, subject.graph
        self.targets, self.axis, self.tolerance = piece.targets, subject.output_axis, EXPLAINED[dtype]
        leaves = subject.leaves(case, dtype)
        with torch.no_grad():
            found = subject.run(leaves, case, backend).output.detach().double()
            self.leaves = {name: leaf.detach().double() for name, leaf in leaves.items()}
            self.right = subject.problem(self.leaves, case, piece).solve(piece).output
        self.found = found.index_select(self.axis, piece.targets)
        self.degree = torch.bincount(piece.row, minlength=piece.targets.numel())
        self.scene = self._scene(piece)

    def _scene(self, piece: Sample) -> Scene:
        """The first of the sampled targets, with all sources as columns."""
        S = self.graph.num_sources
        rows = max(1, min(piece.targets.numel(), BUDGET // max(1, S)))
        here = piece.row < rows
        wide = Sample(
            piece.targets[:rows],
            torch.arange(S, device=piece.targets.device),
            piece.edge[here],
            piece.row[here],
            piece.columns[piece.column[here]],
            piece.complete and rows == piece.targets.numel(),
        )
        places, ones = (wide.row, wide.column), torch.ones_like(wide.row)
        copies = torch.zeros_like(wide.mask, dtype=torch.int64).index_put(places, ones, accumulate=True)
        return Scene(self.subject.problem(self.leaves, self.case, wide), self.graph, wide, copies)

    def _apart(self, rows: Tensor, other: Tensor) -> float:
        """Largest difference between what was found and another output on some rows, relative to its size."""
        found, other = (x.index_select(self.axis, rows) for x in (self.found, other))
        return difference(found, other) / (size(other) or 1.0)

    def extent(self, bound: float) -> str:
        """How many targets are wrong by more than the bound, and which most."""
        node = self.found.dim() + self.axis
        apart = torch.where(self.found == self.right, 0.0, (self.found - self.right).abs()).nan_to_num(nan=torch.inf)
        apart = apart.movedim(node, 0).flatten(1).amax(1)
        wrong = int((apart > bound * (size(self.right) or 1.0)).sum())
        worst = int(apart.argmax())
        return (
            f"{wrong} of {apart.numel()} targets are wrong, most of all target {int(self.targets[worst])} "
            f"(in-degree {int(self.degree[worst])})"
        )

    def explanation(self) -> str:
        """The mistakes that give what was found."""
        with torch.no_grad():
            empty = self._empty_rows()
            if empty is not None:
                return empty
            names = [name for name, make in WRONG_GRAPHS + WRONG_SCORES if self._explains(make(self.scene))]
        return " or ".join(names) if names else UNEXPLAINED

    def _explains(self, answer: Answer | None) -> bool:
        if answer is None:
            return False
        rows = torch.nonzero(answer.heard).flatten()
        if rows.numel() == 0:
            return False
        output = self._finished(answer.output)
        return self._apart(rows, output) <= self.tolerance < self._apart(rows, self.right)

    def _finished(self, heads: Tensor) -> Tensor:
        return self.scene.problem.finish(heads)

    def _empty_rows(self) -> str | None:
        """What happens at targets without an edge, if all others are right."""
        edgeless, others = (torch.nonzero(x).flatten() for x in (self.degree == 0, self.degree > 0))
        if edgeless.numel() == 0 or self._apart(others, self.right) > self.tolerance:
            return None
        found = self.found.index_select(self.axis, edgeless)
        if bool(torch.isnan(found).any()):
            return "targets without an edge give NaN, as a softmax over -inf alone does; they must give 0"
        problem = self.scene.problem
        everything = replace(problem, mask=torch.ones_like(problem.mask), scale=0.0, bias=None)
        average = everything.solve(self.scene.piece).output
        seen = edgeless[edgeless < self.scene.targets.numel()]
        if seen.numel() and self._apart(seen, average) <= self.tolerance:
            return "targets without an edge average all sources, as a mask of finite numbers does; they must give 0"
        return "targets without an edge do not give 0"
