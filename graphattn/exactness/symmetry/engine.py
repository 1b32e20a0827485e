"""A model on a structure and its moves: measure, diagnose, report."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...graph.modes import without_autocast
from .arguments import Question, question
from .diagnose import by_chance, causes_of
from .measure import Trials
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
    asked = question(
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
    with torch.random.fork_rng(devices=[]), without_autocast(asked.structure.pos.device.type):
        return _report(asked)


def _report(asked: Question) -> SymmetryReport:
    trials = Trials(asked.model, asked.structure, asked.bound, asked.seed)
    apart = trials.repeats()
    rows: list[SymmetryRow] = []
    for name in asked.symmetries:
        rows += trials.rows(moves_of(name, asked.structure, asked.periodic, asked.seed))
    broken = tuple(dict.fromkeys(row.symmetry for row in rows if not row.ok))
    causes: tuple[Cause, ...] = ()
    if broken and apart > asked.bound:
        causes = (by_chance(broken, apart),)
    elif broken:
        causes = causes_of(trials, broken, asked.periodic)
    of_order = asked.symmetries == ("permutations",)
    return SymmetryReport(
        subject=asked.model.name,
        structure=_in_words(asked),
        rows=tuple(rows),
        causes=causes,
        notes=tuple(_notes(asked)),
        tested=of_order or trials.depends_on_pos(),
    )


def _in_words(asked: Question) -> str:
    structure = asked.structure
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


def _notes(asked: Question) -> list[str]:
    notes = [
        f"{copy.words} are coordinates, and were moved with pos" for copy in asked.structure.copies
    ]
    if asked.structure.pos.dtype == torch.float32:
        notes.append("a break below the limit of float32 is not seen; verify model.double()")
    return notes
