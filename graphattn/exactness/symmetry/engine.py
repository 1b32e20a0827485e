"""A model on a structure and its moves: measure, diagnose, report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ...graph.modes import without_autocast
from .arguments import Question, question
from .diagnose import by_chance, by_numbers, causes_of
from .measure import BOUNDS, Trials
from .moves import moves_of
from .report import Cause, SymmetryReport, SymmetryRow


def verify_symmetry(
    subject: Any,
    graph: Any = None,
    *,
    symmetry: str | Sequence[str],
    pos: Tensor | None = None,
    cell: Tensor | None = None,
    pbc: Any = None,
    output: Any = "scalars",
    vectors: Sequence[str] = (),
    tolerance: float | None = None,
    seed: int = 0,
    **inputs: Any,
) -> SymmetryReport:
    """Measure how far a model's output is from what symmetries promise; see ``verify``."""
    request = question(
        subject,
        graph,
        symmetry,
        pos,
        cell,
        pbc,
        output,
        vectors,
        tolerance,
        seed,
        inputs,
    )
    device = request.structure.pos.device.type
    with torch.random.fork_rng(devices=[]), without_autocast(device), _unchanged(subject):
        return _report(request)


@contextmanager
def _unchanged(subject: Any) -> Iterator[None]:
    """Buffers and gradients of a module as they were: of batch norm, say, or of losses in it."""
    if not isinstance(subject, nn.Module):
        yield
        return
    buffers = [(x, x.detach().clone()) for x in subject.buffers() if not is_lazy(x)]
    gradients = [(parameter, parameter.grad) for parameter in subject.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for x, before in buffers:
                x.copy_(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _report(request: Question) -> SymmetryReport:
    trials = Trials(request.model, request.structure, request.tolerance, request.seed)
    apart = trials.repeats()
    rows: list[SymmetryRow] = []
    for name in request.symmetries:
        rows += trials.rows(moves_of(name, request.structure, request.periodic, request.seed))
    broken = tuple(dict.fromkeys(row.symmetry for row in rows if not row.ok))
    causes: tuple[Cause, ...] = ()
    wrong = trials.not_finite()
    if broken and wrong:
        causes = (by_numbers(broken, wrong),)
    elif broken and apart > trials.bound:
        causes = (by_chance(broken, apart),)
    elif broken:
        causes = causes_of(trials, broken, request.periodic)
    untested: tuple[str, ...] = ()
    if request.symmetries != ("permutations",):
        untested = trials.untested()
    return SymmetryReport(
        subject=request.model.name,
        structure=_in_words(request),
        rows=tuple(rows),
        causes=causes,
        notes=tuple(_notes(request, trials)),
        untested=untested,
    )


def _in_words(request: Question) -> str:
    structure = request.structure
    words = f"{structure.num_nodes:,} points on {structure.axes} axes"
    if structure.cell is not None:
        words += ", in a cell"
    if structure.graph is not None:
        words += f", {structure.graph.num_edges:,} edges"
        if structure.build is None:
            words += " that move along"
        else:
            words += " made anew after each move"
    return f"{words}, {str(structure.pos.dtype).removeprefix('torch.')}"


def _notes(request: Question, trials: Trials) -> list[str]:
    notes = [
        f"{copy.words} are coordinates, and were moved with pos"
        for copy in request.structure.copies
    ]
    if trials.dtype == torch.float32:
        notes.append("a break below the limit of float32 is not seen; verify model.double()")
    if request.tolerance is None and trials.bound > BOUNDS[trials.dtype]:
        notes.append(
            f"coordinates are up to {request.structure.distance:,.0f} times as large as the points "
            f"lie apart, and a break below {trials.bound:.0e} is not seen; verify pos - pos.mean(0)"
        )
    is_flat = request.structure.cell is None and request.structure.is_flat
    if is_flat and "reflections" in request.symmetries:
        notes.append("points in a plane are their own mirror images; handedness is not seen")
    return notes
