"""The report of a verification, as a value that prints."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..printed import Printed, counted, json_number


@dataclass(frozen=True)
class Row:
    """One measured quantity of one backend: the relative error and the bound it is held to."""

    backend: str
    dtype: str
    case: str
    quantity: str
    error: float
    bound: float

    @property
    def ok(self) -> bool:
        """True if the error is within its bound; NaN is not."""
        return self.error <= self.bound

    @property
    def ratio(self) -> float:
        """Error in units of the bound; inf for NaN."""
        if self.error == self.error:
            return self.error / self.bound
        return math.inf

    @property
    def is_output(self) -> bool:
        """True if it is the output itself rather than a gradient, a weight or an lse."""
        return self.quantity == "output"


@dataclass(frozen=True)
class Check:
    """One invariant of one backend: ``detail`` contradicts it, ``tried`` is what it was tried on."""

    backend: str
    claim: str
    ok: bool
    detail: str = ""
    tried: str = ""


@dataclass(frozen=True)
class Refusal:
    """A backend that does not run a case, and its reasons; a ``fault`` is an error of the code."""

    backend: str
    case: str
    reasons: tuple[str, ...]
    fault: bool = False


@dataclass(frozen=True, repr=False)
class Report(Printed):
    """The result of :func:`graphattn.verify`; print it, or ask ``.ok``.

    Args:
        subject: What was verified, in words.
        graph: The graph's ``repr``.
        measured: Targets at which everything was compared with the dense twin; ``total`` is all of
            them.
        rows: The errors.
        checks: The invariants.
        refusals: Backends that did not run, and why.
        notes: Remarks on how it was measured.
        diagnosis: What explains a difference, if there is one.
    """

    subject: str
    graph: str
    measured: int
    total: int
    rows: tuple[Row, ...]
    checks: tuple[Check, ...]
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...] = ()
    diagnosis: str | None = None

    @property
    def ok(self) -> bool:
        """True if something was measured, and everything measured held.

        It says nothing of what was not looked at: see :attr:`measured`, and what each check tried.
        """
        return bool(self.rows) and not self._failed

    def __bool__(self) -> bool:
        return self.ok

    @property
    def _failed(self) -> int:
        """Number of rows, checks and runs that failed."""
        wrong = sum(not row.ok for row in self.rows) + sum(not check.ok for check in self.checks)
        return wrong + sum(refusal.fault for refusal in self.refusals)

    @property
    def worst(self) -> Row | None:
        """The row nearest to its bound, or furthest beyond it."""
        return max(self.rows, key=lambda row: row.ratio, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values that ``json.dumps`` takes; numbers that JSON lacks become strings."""
        return {
            "ok": self.ok,
            "subject": self.subject,
            "graph": self.graph,
            "targets_measured": self.measured,
            "targets": self.total,
            "rows": [
                {
                    **row.__dict__,
                    "error": json_number(row.error),
                    "bound": json_number(row.bound),
                    "ok": row.ok,
                }
                for row in self.rows
            ],
            "checks": [dict(check.__dict__) for check in self.checks],
            "refusals": [
                {**refusal.__dict__, "reasons": list(refusal.reasons)} for refusal in self.refusals
            ],
            "notes": list(self.notes),
            "diagnosis": self.diagnosis,
        }

    def few_lines(self) -> list[str]:
        """The subject, the verdict, and what explains it."""
        lines = [f"verify {self.subject}", f"  on {self.graph}"]
        if self.diagnosis is not None:
            lines.append(f"  diagnosis: {self.diagnosis}")
        return [*lines, *self._verdict()]

    def in_full(self) -> str:
        lines = [
            f"verify {self.subject}",
            f"  on {self.graph}",
            f"  compared with dense attention in float64 at {self._where}",
            "",
        ]
        lines += [*self._table(), *self._lines_of_checks(), *self._refusal_lines(), ""]
        lines += [f"note: {note}" for note in self.notes]
        if self.diagnosis is not None:
            lines += ["diagnosis:", *(f"    {x}" for x in self.diagnosis.split("; "))]
        return "\n".join([*lines, *self._verdict()])

    @property
    def _where(self) -> str:
        """The targets that were compared."""
        if self.measured == self.total:
            return f"all {self.total:,} targets"
        return f"{self.measured:,} of {self.total:,} targets"

    def _table(self) -> list[str]:
        """A line for each backend and dtype: the output, and the worst of the rest."""
        if not self.rows:
            return []
        width = max(len("backend"), *(len(row.backend) for row in self.rows))
        blank = f"{'':<{width + 18}}"
        pair = f"{'error':>7} {'limit':>7}"
        lines = [
            f"{blank}{'output':<18}worst of gradients, weights, lse",
            f"{'backend':<{width}}  {'dtype':<14}  {pair}   {pair}",
        ]
        for backend, dtype in dict.fromkeys((row.backend, row.dtype) for row in self.rows):
            rows = [row for row in self.rows if (row.backend, row.dtype) == (backend, dtype)]
            output = _worst(row for row in rows if row.is_output)
            rest = _worst(row for row in rows if not row.is_output)
            verdict = "WRONG"
            if all(row.ok for row in rows):
                verdict = "ok"
            name = ""
            if rest is not None:
                name = f"{rest.quantity} ({rest.case})"
                if name.startswith("second "):
                    name = f"2nd grad {name.removeprefix('second ')}"
            errors = f"{_cell(output)}   {_cell(rest)}"
            line = f"{backend:<{width}}  {dtype:<8}  {verdict:<5} {errors}  {name}"
            lines.append(line.rstrip())
        dtypes = {row.dtype for row in self.rows}  # the rule of graphattn.exactness.bounds
        lines.append("error: the largest difference from the twin, over the largest value")
        if "float64" in dtypes:
            lines.append("limit: 1e-12 in float64")
        if dtypes - {"float64"}:
            lines.append(
                "limit: twice (gradients: 3 times) the error of dense torch in the same dtype, "
                "plus a floor"
            )
        return lines

    def _lines_of_checks(self) -> list[str]:
        lines = []
        for claim in dict.fromkeys(check.claim for check in self.checks):
            checks = [check for check in self.checks if check.claim == claim]
            failed = [check for check in checks if not check.ok]
            tried = ", ".join(dict.fromkeys(check.tried for check in checks if check.tried))
            if failed:
                verdict = f"BROKEN ({', '.join(check.backend for check in failed)})"
            else:
                verdict = "ok"
            lines.append(f"{claim:<48} {verdict:<6}  {tried}".rstrip())
            lines += [f"    {check.backend}: {check.detail}" for check in failed]
        if lines:
            return ["", *lines]
        return []

    def _refusal_lines(self) -> list[str]:
        lines = []
        faults: dict[tuple[str, ...], list[str]] = {}  # backends by reasons
        alike: dict[tuple[str, str], list[Refusal]] = {}
        for refusal in self.refusals:
            if refusal.fault:
                faults.setdefault(refusal.reasons, []).append(refusal.backend)
            else:  # reasons that differ in their numbers alone are shown once
                words = re.sub(r"[\d,.]+", "#", str(refusal.reasons))
                alike.setdefault((refusal.backend, words), []).append(refusal)
        for reasons, backends in faults.items():
            lines += [*reasons, f"    with {', '.join(dict.fromkeys(backends))}"]
        together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for group in alike.values():
            cases = ", ".join(dict.fromkeys(refusal.case for refusal in group))
            together.setdefault((cases, group[0].reasons), []).append(group[0].backend)
        for (cases, reasons), backends in together.items():
            verb = "does"
            if len(backends) > 1:
                verb = "do"
            lines.append(f"{', '.join(backends)} {verb} not run {cases}:")
            lines += [f"    {reason}" for reason in reasons]
        if lines:
            return ["", *lines]
        return []

    def _verdict(self) -> list[str]:
        if not self.rows:
            return ["NOTHING MEASURED: no backend ran"]
        total = len(self.rows) + len(self.checks) + sum(refusal.fault for refusal in self.refusals)
        if self._failed:
            return [f"NOT EXACT: {self._failed} of {total} checks fail"]
        others = ""
        if self.measured < self.total:
            others = ", the others were not looked at"
        comparisons = counted(len(self.rows), "comparison")
        lines = []
        if self.checks:
            lines.append(f"{counted(len(self.checks), 'other check')} hold where they were tried")
        exact = f"EXACT: outputs and gradients agree at {self._where}{others} ({comparisons})"
        return [*lines, exact]


def _worst(rows: Iterable[Row]) -> Row | None:
    return max(rows, key=lambda row: row.ratio, default=None)


def _cell(row: Row | None) -> str:
    if row is None:
        return f"{'-':>7} {'-':>7}"
    return f"{row.error:7.1e} {row.bound:7.1e}"
