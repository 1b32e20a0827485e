"""Diagnosis: from a wrong answer to the mistake that explains it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from ..analyse.mistakes import described, singles
from ..analyse.mutant import MOVED, Mutant
from ..analyse.mutants import Mutants
from ..nn import Rotary
from .bounds import EXPLAINED, difference, differences, size
from .measure import measure_backend, twins
from .pieces import BUDGET, Piece, piece_of
from .probe import sent
from .report import Row
from .stability import only_stable, stability
from .subject import Case, Subject, detached
from .wrong_operands import RARE_OPERANDS, WRONG_OPERANDS
from .wrong_scores import (
    NUMBERS,
    RARE_SCORES,
    WRONG_SCORES,
    Answer,
    Make,
    Rotation,
    Scene,
    rounded_weights,
    with_mask,
)

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
        alike = [
            row
            for row in wrong
            if (row.backend, row.dtype, row.case) == (first.backend, first.dtype, case.name)
        ]
        return f"{where}: the output is right; {_of_the_rest(subject, pieces, case, dtype, alike)}"
    gradients = any(row.quantity.startswith("grad") for row in rows)
    if len(pieces) == 1 and pieces[0].slots is None:
        look = _Look(subject, pieces[0], case, dtype, first.backend)
        extent = look.extent(first.bound)
    else:
        targets = _wrong_targets(subject, pieces, case, dtype, first)
        look = _Look(
            subject, piece_of(subject.graph, _telling(targets, subject)), case, dtype, first.backend
        )
        extent = look.extent(first.bound, targets)
    return f"{where}: {extent}; {look.explanation(gradients)}"


def _wrong_targets(
    subject: Subject, pieces: Sequence[Piece], case: Case, dtype: torch.dtype, row: Row
) -> Tensor:
    """All targets whose output is wrong, the worst first, on the CPU."""
    subject = only_stable(subject, stability(subject, case, dtype, pieces))
    wide = detached(subject.leaves(case, dtype), torch.float64)
    with torch.no_grad():
        output = subject.run(detached(subject.leaves(case, dtype)), case, row.backend).output
        right = torch.zeros_like(output, dtype=torch.float64)
        for piece in pieces:
            part = subject.problem(wide, case, piece).solve(piece).output
            right.index_copy_(subject.output_axis, piece.targets, part)
    apart = differences(output, right, subject.output_axis)
    order = torch.argsort(apart, descending=True, stable=True)
    return order[: int((apart > row.bound * (size(right) or 1.0)).sum())].cpu()


def _telling(wrong: Tensor, subject: Subject) -> Tensor:
    """Wrong targets, the worst first, and right ones that a mistake about the whole graph should
    have changed.
    """
    graph = subject.graph
    most = max(
        1, min(_LOOKED_AT, BUDGET // subject.floats_per_pair // max(1, graph.num_sources) // 2)
    )
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
    names = [row.quantity for row in rows]
    lost = [
        name for name in names if name in measured and size(measured[name]) == 0 < size(truth[name])
    ]
    rest = [name for name in names if name not in lost]
    notes = [f"{', '.join(lost)}: zero, as after detach()"] * bool(lost) + [
        f"wrong: {', '.join(rest)}"
    ] * bool(rest)
    return "; ".join(notes)


def _few(edges: list[str]) -> str:
    more = len(edges) - _NAMED_EDGES
    named = ", ".join(edges[:_NAMED_EDGES]) + (f" and {more} more" if more > 0 else "")
    return f"edge{'s' * (len(edges) > 1)} {named}"


def _are(edges: list[str]) -> str:
    if len(edges) > 1:
        return "are"
    return "is"


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
        rows = max(1, min(piece.targets.numel(), most // self.subject.floats_per_pair // max(1, S)))
        here = piece.row < rows
        wide = Piece(
            piece.targets[:rows],
            torch.arange(S, device=piece.targets.device),
            piece.edge[here],
            piece.row[here],
            piece.columns[piece.column[here]],
            piece.complete and rows == piece.targets.numel(),
        )
        places = (wide.row, wide.column)
        ones = torch.ones_like(wide.row)
        copies = torch.zeros_like(wide.mask, dtype=torch.int64).index_put(
            places, ones, accumulate=True
        )
        output = self.output.narrow(self.axis, 0, rows)
        problem = self.subject.problem(self.leaves, self.case, wide)
        return Scene(problem, self.graph, wide, copies, output, self._rotation(wide))

    def _rotation(self, piece: Piece) -> Rotation | None:
        """Queries and keys that the layer rotates by positions that are its inputs."""
        names = [name for name in self.leaves if name.endswith("positions")]
        rotary = getattr(getattr(self.subject, "layer", None), "rotary", None)
        if not names or type(rotary) is not Rotary or rotary.scaling is not None:
            return None
        still = self.leaves | {name: torch.zeros_like(self.leaves[name]) for name in names}
        p = self.subject.problem(still, self.case, piece)
        targets, sources = (
            self.leaves[name].squeeze(-1) if rotary.num_axes == 1 else self.leaves[name]
            for name in (names * 2)[:2]
        )
        at = targets[piece.targets], sources[piece.columns]
        return Rotation(
            p.query, p.key, at, rotary.base, rotary.rotary_dim, rotary.layout, rotary.num_axes
        )

    def _apart(self, rows: Tensor, other: Tensor) -> float:
        """Largest difference between the output and another one on some rows, relative to its
        size.
        """
        output, other = (x.index_select(self.axis, rows) for x in (self.output, other))
        return difference(output, other) / (size(other) or 1.0)

    def extent(self, bound: float, wrong: Tensor | None = None) -> str:
        """Number of targets that are wrong by more than the bound, and the worst; ``wrong`` if all
        are known.
        """
        apart = differences(self.output, self.right, self.axis)
        worst = int(apart.argmax())
        count = int((apart > bound * (size(self.right) or 1.0)).sum())
        total = apart.numel()
        if wrong is not None:
            count = wrong.numel()
            total = self.graph.num_targets
        self.worst = torch.argsort(apart, descending=True, stable=True)[
            : min(count, _NAMED_TARGETS)
        ]
        self.wrong = count
        self.total = total
        return (
            f"{count:,} of {total:,} targets {'is' if count == 1 else 'are'} wrong, "
            f"most of all target {int(self.targets[worst])} (in-degree {int(self.degree[worst])})"
        )

    def explanation(self, gradients: bool) -> str:
        """The mistakes that give this output, and the edges that a gradient shows to be wrong."""
        with torch.no_grad():
            first = self._chance() or self._empty_rows()
            if first is not None:
                return first
            graphs, others = self._mistakes()
        if gradients and (self.wrong == 1 or not others):
            edges = self._edges()
        else:
            edges = []
        if edges and self.wrong == 1 and self.total >= _ENOUGH:
            graphs = ()
            others = []
        names = [*graphs, *dict.fromkeys(others)]
        notes = [" or ".join(names)] * bool(names) + edges
        if notes:
            return "; ".join(notes)
        return UNEXPLAINED

    def _mistakes(self) -> tuple[tuple[str, ...], list[str]]:
        """The known mistakes about the graph, and all others, that give this output; remote ones
        only if no other.
        """
        mutants, graphs = self._mutants()
        near = [mutant for mutant in graphs if not mutant.remote]
        others = [
            words
            for words, make in (*WRONG_SCORES, *WRONG_OPERANDS)
            if self._explains(make(self.scene))
        ]
        if others or any(mutant.rank < MOVED for mutant in near):
            return described(mutants, near), others
        others = [
            words
            for words, make in (*RARE_SCORES, *RARE_OPERANDS)
            if self._explains(make(self.scene))
        ]
        if near:  # a mask that is rolled looks like keys and values that are: both are said
            return described(mutants, near), others
        return described(mutants, graphs), others or self._numbers() or self._rounding()

    def _mutants(self) -> tuple[Mutants, list[Mutant]]:
        """The mistakes about who reads whom that give this output."""
        mutants = Mutants(self.graph)
        matching = list[Mutant]()
        known = dict[bytes, bool]()
        every = torch.arange(self.graph.num_sources, device=self.scene.targets.device)[None, :]
        for mutant, made in singles(mutants):
            mask = made.contains(self.scene.targets[:, None], every)
            key = mask.cpu().numpy().tobytes()
            if key not in known:
                known[key] = self._explains(with_mask(mask, self.scene))
            matching += [mutant] * known[key]
        return mutants, matching

    def _numbers(self) -> list[str]:
        """The mistakes with a number in them, which is found where the output is most wrong."""
        from scipy.optimize import brentq  # slow to import

        scene = self._scene(self.piece, _FITTED)
        found = list[str]()
        apart = (
            (scene.output - self.right.narrow(self.axis, 0, scene.targets.numel()))
            .abs()
            .nan_to_num(0.0)
        )
        if not bool(apart.any()):
            return found

        def off(made: Callable[[float], Make], number: float) -> float:
            """Signed distance of the mistake from the output."""
            answer = made(number)(scene)
            if answer is None:
                return torch.nan
            return float(
                (scene.problem.finish(answer.output) - scene.output).flatten()[apart.argmax()]
            )

        for words, made, grid in NUMBERS:
            for (low, one), (high, other) in pairwise(
                (number, off(made, number)) for number in grid
            ):
                if not one * other <= 0.0 or one == other:
                    continue
                number = brentq(partial(off, made), low, high, xtol=1e-18)
                if self._explains(made(number)(self.scene)):
                    rounded = (round(number, digits) for digits in range(12))
                    number = next(
                        (x for x in rounded if self._explains(made(x)(self.scene))), number
                    )
                    found.append(words.format(f"{number + 0.0:.4g}"))
        return list(dict.fromkeys(found))

    def _rounding(self) -> list[str]:
        """The narrower dtype whose errors an output has: small ones, nearly everywhere."""
        if self.wrong < 0.9 * int((self.degree > 1).sum()) * self.total / max(
            1, self.degree.numel()
        ):
            return []
        off = difference(self.output, self.right) / (size(self.right) or 1.0)
        for narrow in (torch.bfloat16, torch.float16):
            name = str(narrow).removeprefix("torch.")
            eps = torch.finfo(narrow).eps
            if off > _HALVES * eps or eps <= torch.finfo(self.dtype).eps:
                continue
            if torch.equal(self.output.to(narrow).double(), self.output):
                return [
                    f"every output is a {name} number: computed in {name}, or rounded to it on "
                    "the way"
                ]
            right = self.right.narrow(self.axis, 0, self.scene.targets.numel())
            apart = {"": 0.5 * float((right - self.scene.output).norm())}
            for words, make in rounded_weights(narrow).items():
                answer = make(self.scene)
                if answer is not None:
                    apart[words] = float(
                        (self.scene.problem.finish(answer.output) - self.scene.output).norm()
                    )
            nearest = min(apart, key=lambda words: apart[words])
            if nearest:
                return [nearest]
        if self.dtype != torch.float64 or off > _ROUNDED:
            return []
        return [
            f"off by {off:.0e} of its size nearly everywhere, as by float32 arithmetic inside a "
            "float64 call"
        ]

    def _chance(self) -> str | None:
        """Reason why two calls on the same inputs differ, if they do."""

        def run(seed: int | None = None) -> Tensor:
            if seed is not None:
                torch.manual_seed(seed)
            leaves = detached(self.subject.leaves(self.case, self.dtype))
            output = self.subject.run(leaves, self.case, self.backend).output.double()
            return output.index_select(self.axis, self.targets).nan_to_num()

        last = self.output.nan_to_num()
        whole = size(self.output) or 1.0
        apart = difference(run(), last) / whole
        if apart <= self.tolerance:
            return None
        device = self.graph.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            same = difference(run(0), run(0)) <= self.tolerance * whole
        if same:
            why = "random numbers are in it: dropout left on? Call eval()"
        else:
            why = "something is kept between calls"
        return f"two calls on the same inputs differ by {apart:.1g} of their size; {why}"

    def _edges(self) -> list[str]:
        """Edges that are not read, or read without being there, at the worst targets: by who is
        sent a gradient.
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
            read = torch.zeros(self.graph.num_sources, dtype=torch.bool, device=output.device)
            for grad in sent(
                output.select(self.axis, target), leaves, self.subject.places
            ).values():
                read |= grad > 0  # not where it is NaN
            near = torch.zeros_like(read)
            near[self.piece.columns[self.piece.column[self.piece.row == row]]] = True
            if shared:
                read[target] = near[target] = False
            if bool(read.any()):  # else it is its gradients that are lost
                unread += [
                    f"{s} -> {target}" for s in torch.nonzero(near & ~read).flatten().tolist()
                ]
                invented += [
                    f"{s} -> {target}" for s in torch.nonzero(read & ~near).flatten().tolist()
                ]
                rest = ~near
                everything &= bool(rest.any()) and bool(read[rest].all())
        notes = [f"{_few(unread)} of the graph {_are(unread)} not read"] * bool(unread)
        if invented and everything:
            return [*notes, "every source is read: no mask, or one of finite numbers, not -inf"]
        notes += [f"{_few(invented)} {_are(invented)} read, but not of the graph"] * bool(invented)
        if notes and not self.subject.owns_graph:
            notes.append(
                "behind a mask m of your own: g - ga.from_mask(m) has the edges it lacks, "
                "ga.from_mask(m) - g "
                "those it has too many; ga.from_mask(m).equals(g) must be True"
            )
        return notes

    def _explains(self, answer: Answer | None) -> bool:
        if answer is None:
            return False
        rows = torch.nonzero(answer.has_edges).flatten()
        if rows.numel() == 0:
            return False
        apart = self._apart(rows, self.scene.problem.finish(answer.output))
        right = self._apart(rows, self.right)
        small = self.dtype == torch.float64 and apart <= _SHARE * right  # an epsilon
        return small or apart <= self.tolerance < right

    def _empty_rows(self) -> str | None:
        """The mistake at targets without an edge, if all others are right."""
        edgeless, others = (torch.nonzero(x).flatten() for x in (self.degree == 0, self.degree > 0))
        if edgeless.numel() == 0 or self._apart(others, self.right) > self.tolerance:
            return None
        output = self.output.index_select(self.axis, edgeless)
        if bool(torch.isnan(output).any()):
            return (
                "targets without an edge give NaN, as a softmax over -inf alone does; they "
                "must give 0"
            )
        problem = self.scene.problem
        alike = replace(problem, score=None, normalize=None, scale=0.0, bias=None)
        everything = replace(alike, mask=torch.ones_like(problem.mask))
        average = everything.solve(self.scene.piece).output
        seen = edgeless[edgeless < self.scene.targets.numel()]
        if seen.numel() and self._apart(seen, average) <= self.tolerance:
            return (
                "targets without an edge average all sources, as a mask of finite numbers "
                "does; they must give 0"
            )
        return "targets without an edge do not give 0"
