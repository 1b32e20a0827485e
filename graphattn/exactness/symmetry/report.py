"""The report of symmetries, as a value that prints."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...printed import Printed, json_number


@dataclass(frozen=True)
class SymmetryRow:
    """One output under one kind of move: the relative difference and the bound it is held to.

    Args:
        symmetry: "rotations", "reflections", "translations", "permutations" or "cells".
        case: The moves, in words.
        output: Name of the output.
        error: The largest difference from what the symmetry promises, over the output's size.
        bound: The largest error that is taken for rounding.
        raised: The error that the model raised on a moved structure; empty if none.
    """

    symmetry: str
    case: str
    output: str
    error: float
    bound: float
    raised: str = ""

    @property
    def ok(self) -> bool:
        """True if the error is within its bound; NaN is not."""
        return self.error <= self.bound


@dataclass(frozen=True)
class Cause:
    """Cause of broken symmetries.

    Args:
        symmetries: The symmetries that it breaks.
        kind: "coordinates", "directions", "frames", "ties", "features", "output", "graph", "order",
            "handedness", "cell", "batch", "chance" or "unknown".
        input: The input that it comes by, as Python writes it: ``pos[:, 2]``.
        words: The explanation, and what to try.
    """

    symmetries: tuple[str, ...]
    kind: str
    input: str
    words: str


@dataclass(frozen=True, repr=False)
class SymmetryReport(Printed):
    """The result of :func:`graphattn.verify` with ``symmetry``; print it, or ask ``.ok``.

    Args:
        subject: The model's name.
        structure: What it was run on, in words.
        rows: The errors.
        causes: What explains those beyond their bounds.
        notes: Remarks on how it was measured.
        untested: Outputs that do not depend on the positions: zeros have every symmetry.
    """

    subject: str
    structure: str
    rows: tuple[SymmetryRow, ...]
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every symmetry that was asked for holds on this structure."""
        return not self.untested and all(row.ok for row in self.rows)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def worst(self) -> SymmetryRow | None:
        """The row with the largest error in terms of its bound."""
        ratios = [row.error / row.bound for row in self.rows]
        if not ratios:
            return None
        return self.rows[int(np.argmax(ratios))]  # of a NaN, if there is one

    @property
    def broken(self) -> tuple[str, ...]:
        """The symmetries that do not hold."""
        return tuple(dict.fromkeys(row.symmetry for row in self.rows if not row.ok))

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values that ``json.dumps`` takes."""
        return {
            "ok": self.ok,
            "subject": self.subject,
            "structure": self.structure,
            "rows": [
                {**row.__dict__, "error": json_number(row.error), "ok": row.ok} for row in self.rows
            ],
            "causes": [
                {**cause.__dict__, "symmetries": list(cause.symmetries)} for cause in self.causes
            ],
            "notes": list(self.notes),
            "untested": list(self.untested),
        }

    def few_lines(self) -> list[str]:
        """The moves, the verdict, and what breaks the symmetry."""
        lines = [f"symmetry of {self.subject}", f"  on {self.structure}"]
        lines += [f"  {', '.join(cause.symmetries)}: {cause.input}" for cause in self.causes[:4]]
        return [*lines, *self._verdict()]

    def in_full(self) -> str:
        lines = [f"symmetry of {self.subject}", f"  on {self.structure}", ""]
        width = max(len("output"), *(len(row.output) for row in self.rows))
        lines.append(f"{'':<47}{'output':<{width}}  {'':<6}   error   limit")
        for row in self.rows:
            verdict = "BROKEN"
            if row.ok:
                verdict = "ok"
            label = f"{row.symmetry:<13} {row.case}"
            line = (
                f"{label:<47}{row.output:<{width}}  {verdict:<6} {row.error:7.1e} {row.bound:7.1e}"
            )
            lines.append(line)
            if row.raised:
                lines.append(f"    raised {row.raised}")
        lines += [
            "error: the largest difference from what the symmetry promises, over the output's"
        ]
        lines += ["size", ""]
        lines += [f"note: {note}" for note in self.notes]
        for cause in self.causes:
            lines.append(f"{', '.join(cause.symmetries)}: {cause.input}")
            lines += [f"    {part}" for part in cause.words.split("; ")]
        return "\n".join([*lines, *self._verdict()])

    def _verdict(self) -> list[str]:
        failed = sum(not row.ok for row in self.rows)
        if failed:
            return [f"NOT SYMMETRIC: {failed} of {len(self.rows)} checks fail"]
        if self.untested:
            return [
                f"NOTHING TESTED of {', '.join(self.untested)}",
                "    it does not depend on the positions, or by less than the limit shows",
            ]
        return [f"SYMMETRIC: all {len(self.rows)} checks hold"]
