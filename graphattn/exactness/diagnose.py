"""Diagnosis: from a wrong answer to the mistake that explains it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import isfinite

import torch
from torch import Tensor

from ..mistakes.attention.operands import RARE_OPERANDS, WRONG_OPERANDS
from ..mistakes.attention.scene import Answer, Make, Mistake, Rotation, Scene
from ..mistakes.attention.scores import (
    NUMBERS,
    RARE_SCORES,
    WRONG_SCORES,
    rounded_weights,
    with_mask,
)
from ..mistakes.graphs.mutant import MOVED, Mutant
from ..mistakes.graphs.mutants import Mutants
from ..nn import Rotary
from ..twins.pieces import BUDGET, Piece, piece_of
from .bounds import EXPLAINED, difference, differences, size
from .measure import measure_backend, twins
from .probe import sent
from .report import Row
from .stability import only_stable, stability
from .subject import Case, Subject, detached

UNEXPLAINED = "none of the known mistakes explains it"
_LOOKED_AT = 64  # wrong targets of a large graph, and as many right ones
_ENOUGH = 8  # targets of which a mistake about the whole graph must change more than one
# relative: a float64 output that is off by less, nearly everywhere, was rounded on the way,
_ROUNDED = 1e-5
_HALVES = 8.0  # and one that is off by so many eps of a half precision, if it has the marks of that
_SHARE = 1e-6  # of a small error that a mistake must leave unexplained at most
_FITTED = BUDGET >> 6  # pairs on which the number in a mistake is found
_NAMED_TARGETS = 3  # whose edges are looked at,
_NAMED_EDGES = 4  # and so many of them named


def diagnose(subject: Subject, pieces: Sequence[Piece], rows: list[Row]) -> str:
    """Explanation of the errors that were measured on some pieces, of which there are some."""
    wrong = [row for row in rows if not row.ok]
    first = next((row for row in wrong if row.is_output), wrong[0])
    case = next(case for case in subject.cases if case.name == first.case)
    dtype = getattr(torch, first.dtype)
    where = f"{first.backend}, {first.dtype}, {case.name}"
    if not first.is_output:
        run = (first.backend, first.dtype, first.case)
        alike = [row for row in wrong if (row.backend, row.dtype, row.case) == run]
        return f"{where}: the output is right; {_of_the_rest(subject, pieces, case, dtype, alike)}"
    gradients = any(row.quantity.startswith("grad") for row in rows)
    if len(pieces) == 1 and pieces[0].slots is None:
        look = _Look(subject, pieces[0], case, dtype, first.backend)
        extent = look.extent(first.bound)
    else:
        targets = _wrong_targets(subject, pieces, case, dtype, first)
        piece = piece_of(subject.graph, _telling(targets, subject))
        look = _Look(subject, piece, case, dtype, first.backend)
        extent = look.extent(first.bound, targets)
    return f"{where}: {extent}; {look.explanation(gradients)}"


def _wrong_targets(
    subject: Subject, pieces: Sequence[Piece], case: Case, dtype: torch.dtype, row: Row
) -> Tensor:
    """All targets whose output is wrong, the worst first, on the CPU."""
    subject = only_stable(subject, stability(subject, case, dtype, pieces))
    upcast = detached(subject.leaves(case, dtype), torch.float64)
    with torch.no_grad():
        output = subject.run(detached(subject.leaves(case, dtype)), case, row.backend).output
        right = torch.zeros_like(output, dtype=torch.float64)
        for piece in pieces:
            part = subject.problem(upcast, case, piece).solve(piece).output
            right.index_copy_(subject.output_axis, piece.targets, part)
    apart = differences(output, right, subject.output_axis)
    order = torch.argsort(apart, descending=True, stable=True)
    return order[: int((apart > row.bound * (size(right) or 1.0)).sum())].cpu()


def _telling(wrong: Tensor, subject: Subject) -> Tensor:
    """Wrong targets, the worst first, and right ones.

    A mistake about the whole graph should have changed the right ones.
    """
    graph = subject.graph
    rows = BUDGET // subject.floats_per_pair // max(1, graph.num_sources)
    most = max(1, min(_LOOKED_AT, rows // 2))
    right = torch.randperm(graph.num_targets, generator=torch.Generator().manual_seed(0))
    right = right[~torch.isin(right, wrong)]
    return torch.cat((wrong[:most], right[:most])).sort().values


def _of_the_rest(
    subject: Subject, pieces: Sequence[Piece], case: Case, dtype: torch.dtype, rows: list[Row]
) -> str:
    """Gradients that are lost, and gradients that are wrong."""
    subject = only_stable(subject, stability(subject, case, dtype, pieces))
    measured = measure_backend(subject, case, dtype, rows[0].backend, pieces)
    truth, _ = twins(subject, case, dtype, pieces)
    lost = []
    wrong = []
    for row in rows:
        name = row.quantity
        if name in measured and size(measured[name]) == 0 < size(truth[name]):
            lost.append(name)
        else:
            wrong.append(name)
    notes = []
    if lost:
        notes.append(f"{', '.join(lost)}: zero, as after detach()")
    if wrong:
        notes.append(f"wrong: {', '.join(wrong)}")
    return "; ".join(notes)


def _few(edges: list[str]) -> str:
    """The first edges in words, and how many more there are."""
    words = ", ".join(edges[:_NAMED_EDGES])
    more = len(edges) - _NAMED_EDGES
    if more > 0:
        words = f"{words} and {more} more"
    if len(edges) == 1:
        return f"edge {words}"
    return f"edges {words}"


def _are(count: int) -> str:
    if count == 1:
        return "is"
    return "are"


def _into(target: int, sources: Tensor) -> list[str]:
    """The edges into a target in words, from the sources where bool (S,) is True."""
    return [f"{source} -> {target}" for source in torch.nonzero(sources).flatten().tolist()]


class _Look:
    """A wrong output beside the right one, and beside what known mistakes would give."""

    def __init__(
        self, subject: Subject, piece: Piece, case: Case, dtype: torch.dtype, backend: str
    ) -> None:
        subject = only_stable(subject, stability(subject, case, dtype, [piece]))
        self.subject = subject
        self.case = case
        self.graph = subject.graph
        self.targets = piece.targets
        self.axis = subject.output_axis
        self.tolerance = EXPLAINED[dtype]
        self.piece = piece
        self.dtype = dtype
        self.backend = backend
        leaves = subject.leaves(case, dtype)
        with torch.no_grad():
            output = subject.run(detached(leaves), case, backend).output.double()
            self.leaves = detached(leaves, torch.float64)
            self.right = subject.problem(self.leaves, case, piece).solve(piece).output
        self.output = output.index_select(self.axis, piece.targets)
        self.degree = torch.bincount(piece.row, minlength=piece.targets.numel())
        self.scene = self._scene(piece)

    def _scene(self, piece: Piece, most: int = BUDGET) -> Scene:
        """The first of the sampled targets, with all sources as columns."""
        S = self.graph.num_sources
        R = piece.targets.numel()
        rows = max(1, min(R, most // self.subject.floats_per_pair // max(1, S)))
        inside = piece.row < rows
        scene = Piece(
            piece.targets[:rows],
            torch.arange(S, device=piece.targets.device),
            piece.edge[inside],
            piece.row[inside],
            piece.columns[piece.column[inside]],
            piece.complete and rows == R,
        )
        copies = torch.zeros_like(scene.mask, dtype=torch.int64)
        ones = torch.ones_like(scene.row)
        copies.index_put_((scene.row, scene.column), ones, accumulate=True)
        output = self.output.narrow(self.axis, 0, rows)
        problem = self.subject.problem(self.leaves, self.case, scene)
        return Scene(problem, self.graph, scene, copies, output, self._rotation(scene))

    def _rotation(self, piece: Piece) -> Rotation | None:
        """Queries and keys that the layer rotates by positions that are its inputs."""
        names = [name for name in self.leaves if name.endswith("positions")]
        rotary = getattr(getattr(self.subject, "layer", None), "rotary", None)
        if not names or type(rotary) is not Rotary or rotary.scaling is not None:
            return None
        still = self.leaves | {name: torch.zeros_like(self.leaves[name]) for name in names}
        p = self.subject.problem(still, self.case, piece)
        # one tensor of positions, or those of targets and those of sources
        targets = self.leaves[names[0]]
        sources = self.leaves[names[-1]]
        if rotary.num_axes == 1:
            targets = targets.squeeze(-1)
            sources = sources.squeeze(-1)
        at = targets[piece.targets], sources[piece.columns]
        return Rotation(
            p.query, p.key, at, rotary.base, rotary.rotary_dim, rotary.layout, rotary.num_axes
        )

    def _apart(self, rows: Tensor, other: Tensor) -> float:
        """Relative difference between the output and another one on some rows, the largest."""
        output, other = (x.index_select(self.axis, rows) for x in (self.output, other))
        return difference(output, other) / (size(other) or 1.0)

    def extent(self, bound: float, wrong: Tensor | None = None) -> str:
        """The number of wrong targets, and the worst one; ``wrong`` has them if all are known."""
        apart = differences(self.output, self.right, self.axis)
        worst = int(apart.argmax())
        count = int((apart > bound * (size(self.right) or 1.0)).sum())
        total = apart.numel()
        if wrong is not None:
            count = wrong.numel()
            total = self.graph.num_targets
        order = torch.argsort(apart, descending=True, stable=True)
        self.worst = order[: min(count, _NAMED_TARGETS)]
        self.wrong = count
        self.total = total
        return (
            f"{count:,} of {total:,} targets {_are(count)} wrong, "
            f"most of all target {int(self.targets[worst])} (in-degree {int(self.degree[worst])})"
        )

    def explanation(self, gradients: bool) -> str:
        """The mistakes that give this output, and the edges that a gradient shows to be wrong."""
        with torch.no_grad():
            first = self._chance() or self._empty_rows()
            if first is not None:
                return first
            graphs, others = self._mistakes()
        single = self.wrong == 1
        edges: list[str] = []
        if gradients and (single or not others):
            edges = self._edges()
        names = [*graphs, *dict.fromkeys(others)]
        if edges and single and self.total >= _ENOUGH:
            names = []
        notes = edges
        if names:
            notes = [" or ".join(names), *edges]
        if notes:
            return "; ".join(notes)
        return self._not_finite() or UNEXPLAINED

    def _mistakes(self) -> tuple[tuple[str, ...], list[str]]:
        """The known mistakes about the graph, and all others, that give this output.

        Rare ones are named only if no other explains it.
        """
        mutants, graphs = self._mutants()
        near = [mutant for mutant in graphs if not mutant.remote]
        others = self._explaining(*WRONG_SCORES, *WRONG_OPERANDS)
        if others or any(mutant.rank < MOVED for mutant in near):
            return mutants.described(near), others
        others = self._explaining(*RARE_SCORES, *RARE_OPERANDS)
        if near:  # a mask that is rolled looks like keys and values that are: both are named
            return mutants.described(near), others
        return mutants.described(graphs), others or self._numbers() or self._rounding()

    def _explaining(self, *mistakes: Mistake) -> list[str]:
        """The mistakes in words that give this output."""
        return [words for words, make in mistakes if self._explains(make(self.scene))]

    def _mutants(self) -> tuple[Mutants, list[Mutant]]:
        """The mistakes about edges that give this output."""
        mutants = Mutants(self.graph)
        matching = list[Mutant]()
        explains = dict[bytes, bool]()
        sources = torch.arange(self.graph.num_sources, device=self.scene.targets.device)
        for mutant, graph in mutants.singles():
            mask = graph.contains(self.scene.targets[:, None], sources[None, :])
            key = mask.cpu().numpy().tobytes()
            if key not in explains:
                explains[key] = self._explains(with_mask(mask, self.scene))
            if explains[key]:
                matching.append(mutant)
        return mutants, matching

    def _numbers(self) -> list[str]:
        """The mistakes with a number in them, which is found where the output is most wrong."""
        from scipy.optimize import brentq  # slow to import

        scene = self._scene(self.piece, _FITTED)
        right = self.right.narrow(self.axis, 0, scene.targets.numel())
        apart = (scene.output - right).abs().nan_to_num(0.0)
        if not bool(apart.any()):
            return []
        worst = apart.argmax()

        def off(mistake: Callable[[float], Make], number: float) -> float:
            """Signed distance of the mistake from the output, where that is most wrong."""
            answer = mistake(number)(scene)
            if answer is None:
                return torch.nan
            return float((scene.problem.finish(answer.output) - scene.output).flatten()[worst])

        explanations = []
        for words, mistake, grid in NUMBERS:
            distances = [(number, off(mistake, number)) for number in grid]
            for (low, off_low), (high, off_high) in pairwise(distances):
                changes_sign = off_low * off_high <= 0.0  # False for a NaN
                if not changes_sign or off_low == off_high:
                    continue
                number = brentq(partial(off, mistake), low, high, xtol=1e-18)
                if not self._explains(mistake(number)(self.scene)):
                    continue
                for digits in range(12):
                    rounded = round(number, digits)
                    if self._explains(mistake(rounded)(self.scene)):
                        number = rounded
                        break
                explanations.append(words.format(f"{number + 0.0:.4g}"))
        return list(dict.fromkeys(explanations))

    def _rounding(self) -> list[str]:
        """The narrower dtype whose errors an output has: small ones, nearly everywhere."""
        share = int((self.degree > 1).sum()) / max(1, self.degree.numel())
        if self.wrong < 0.9 * share * self.total:
            return []
        off = difference(self.output, self.right) / (size(self.right) or 1.0)
        for narrow in (torch.bfloat16, torch.float16):
            name = str(narrow).removeprefix("torch.")
            eps = torch.finfo(narrow).eps
            if off > _HALVES * eps or eps <= torch.finfo(self.dtype).eps:
                continue
            if torch.equal(self.output.to(narrow).double(), self.output):
                return [f"every output is a {name} number: computed in {name}, or rounded to it"]
            scene = self.scene
            right = self.right.narrow(self.axis, 0, scene.targets.numel())
            apart = {"": 0.5 * float((right - scene.output).norm())}
            for words, make in rounded_weights(narrow).items():
                answer = make(scene)
                if answer is not None:
                    output = scene.problem.finish(answer.output)
                    apart[words] = float((output - scene.output).norm())
            nearest = min(apart, key=lambda words: apart[words])
            if nearest:
                return [nearest]
        if self.dtype == torch.float64 and off <= _ROUNDED:
            return [
                f"off by {off:.0e} of its size nearly everywhere, as by float32 arithmetic inside "
                "a float64 call"
            ]
        return []

    def _chance(self) -> str | None:
        """Reason why two calls on the same inputs differ, if they do."""

        def run(seed: int | None = None) -> Tensor:
            if seed is not None:
                torch.manual_seed(seed)
            leaves = detached(self.subject.leaves(self.case, self.dtype))
            output = self.subject.run(leaves, self.case, self.backend).output.double()
            return output.index_select(self.axis, self.targets).nan_to_num()

        last = self.output.nan_to_num()
        magnitude = size(self.output) or 1.0
        apart = difference(run(), last) / magnitude
        if apart <= self.tolerance:
            return None
        devices = []
        if self.graph.device.type == "cuda":
            devices = [self.graph.device]
        with torch.random.fork_rng(devices=devices):
            same = difference(run(0), run(0)) <= self.tolerance * magnitude
        if same:
            why = "random numbers are in it: dropout left on? Call eval()"
        else:
            why = "something is kept between calls"
        return f"two calls on the same inputs differ by {apart:.1g} of their size; {why}"

    def _edges(self) -> list[str]:
        """Edges that are not read, or read without being in the graph, at the worst targets.

        An edge is read if its source is sent a gradient.
        """
        leaves = self.subject.leaves(self.case, self.dtype)
        shared = any(place.of == "nodes" for place in self.subject.places.values())
        output = self.subject.run(leaves, self.case, self.backend).output
        # float16 rounds small gradients to 0
        if not output.requires_grad or self.dtype == torch.float16:
            return []
        unread = list[str]()
        invented = list[str]()
        everything = True
        for row in self.worst.tolist():
            target = int(self.targets[row])
            row_output = output.select(self.axis, target)
            read = torch.zeros(self.graph.num_sources, dtype=torch.bool, device=output.device)
            for grad in sent(row_output, leaves, self.subject.places).values():
                read |= grad > 0  # not where it is NaN
            near = torch.zeros_like(read)
            near[self.piece.columns[self.piece.column[self.piece.row == row]]] = True
            if shared:
                read[target] = False
                near[target] = False
            if not bool(read.any()):
                continue  # its gradients are lost
            unread += _into(target, near & ~read)
            invented += _into(target, read & ~near)
            everything &= bool((read | near).all()) and not bool(near.all())
        notes = []
        if unread:
            notes.append(f"{_few(unread)} of the graph {_are(len(unread))} not read")
        if invented and everything:
            return [*notes, "every source is read: no mask, or one of finite numbers, not -inf"]
        if invented:
            notes.append(f"{_few(invented)} {_are(len(invented))} read, but not of the graph")
        if notes and not self.subject.owns_graph:
            notes.append(
                "behind a mask m of your own: g - ga.from_mask(m) has the edges it lacks, "
                "ga.from_mask(m) - g those it has too many; ga.from_mask(m).equals(g) must be True"
            )
        return notes

    def _explains(self, answer: Answer | None) -> bool:
        if answer is None:
            return False
        rows = torch.nonzero(answer.has_edges).flatten()
        if rows.numel() == 0:
            return False
        apart = self._apart(rows, self.scene.problem.finish(answer.output))
        if not isfinite(apart):  # a NaN is as far from every answer
            return False
        right = self._apart(rows, self.right)
        if self.dtype == torch.float64 and apart <= _SHARE * right:  # an epsilon
            return True
        return apart <= self.tolerance < right

    def _not_finite(self) -> str | None:
        """The number of targets with edges whose output is NaN or infinite."""
        output = self.output.movedim(self.axis, 0).flatten(1)
        spoilt = int((~output.isfinite().all(1) & (self.degree > 0)).sum())
        if spoilt == 0:
            return None
        return (
            f"{spoilt:,} of the targets with edges {_are(spoilt)} NaN or infinite, as where a mask's "
            "-inf is in embeddings, keys or values, not in scores (find_nonfinite names the nodes)"
        )

    def _empty_rows(self) -> str | None:
        """The mistake at targets without an edge, if all others are right."""
        edgeless = torch.nonzero(self.degree == 0).flatten()
        others = torch.nonzero(self.degree > 0).flatten()
        if edgeless.numel() == 0 or self._apart(others, self.right) > self.tolerance:
            return None
        output = self.output.index_select(self.axis, edgeless)
        if bool(torch.isnan(output).any()):
            return (
                "targets without an edge give NaN, as a softmax over -inf alone does; they must "
                "give 0"
            )
        problem = self.scene.problem
        alike = replace(problem, score=None, normalize=None, scale=0.0, bias=None)
        everything = replace(alike, mask=torch.ones_like(problem.mask))
        average = everything.solve(self.scene.piece).output
        rows = edgeless[edgeless < self.scene.targets.numel()]
        if rows.numel() and self._apart(rows, average) <= self.tolerance:
            return (
                "targets without an edge average all sources, as a mask of finite numbers does; "
                "they must give 0"
            )
        return "targets without an edge do not give 0"
