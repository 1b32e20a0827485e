"""Studies that train nothing: a prediction, how far a measurement may be from it, and what was
measured.
"""

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graphattn.bench.machine import machine
from graphattn.errors import OptionError
from graphattn.io.writing import save_page, save_picture
from graphattn.study.check import Checked, line_differences
from graphattn.study.page import Table

ROUNDING = 0.1  # of the tolerance of a finding


@dataclass(frozen=True)
class Finding:
    """A question with its prediction and its measurement.

    Args:
        question: What is measured.
        predicted: By the theorem, or read in the code.
        measured: Here.
        tolerance: How far apart the two may be; stated before measuring.
        source: The theorem, or the lines of the code.
    """

    question: str
    predicted: Any
    measured: Any
    tolerance: float = 0.0
    source: str = ""

    @property
    def holds(self) -> bool:
        """Whether the measurement is as predicted."""
        if self.tolerance == 0:
            return self.predicted == self.measured
        return bool(abs(self.predicted - self.measured) <= self.tolerance)


@dataclass(frozen=True, eq=False)
class Findings:
    """All findings of a study.

    Args:
        title: Of the page.
        about: What is measured and how, Markdown.
        parts: Findings by heading.
        draw: Makes the figure.
        folder: Where they are written.
    """

    title: str
    about: str
    parts: dict[str, list[Finding]]
    draw: Callable[[], Any]
    folder: Path | None = None

    @property
    def failed(self) -> list[Finding]:
        """Those that are not as predicted."""
        return [finding for part in self.parts.values() for finding in part if not finding.holds]

    @property
    def _counts(self) -> str:
        count = sum(map(len, self.parts.values()))
        return f"{count - len(self.failed)} of {count} predictions hold"

    def brief(self) -> list[str]:
        """Counts, and predictions that do not hold, a line each."""
        lines = [f"{self.title}: {self._counts}"]
        for heading, findings in self.parts.items():
            held = sum(finding.holds for finding in findings)
            lines.append(f"{heading}: {held} of {len(findings)}")
        return lines + [
            f"{finding.question}: predicted {_told(finding.predicted)}, measured "
            f"{_told(finding.measured)}, within {_within(finding)}"
            for finding in self.failed
        ]

    def __str__(self) -> str:
        opening = [self.about, f"{self._counts}."]
        head = ["question", "predicted", "within", "measured", "holds", "source"]
        blocks = [f"# {self.title}", *opening]
        for heading, findings in self.parts.items():
            rows = [
                [f.question, _told(f.predicted), _within(f), _told(f.measured), _state(f), f.source]
                for f in findings
            ]
            blocks += [f"## {heading}", str(Table(head, rows))]
        return "\n\n".join(blocks)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        parts = {
            name: [{**asdict(f), "holds": f.holds} for f in part]
            for name, part in self.parts.items()
        }
        return {"title": self.title, "failed": len(self.failed), "parts": parts}

    def save(self, out: Any, command: str = "") -> "Findings":
        """Write the page, the numbers and the figure.

        Raises:
            OptionError: If the folder holds something else.
        """
        folder, before = Path(out), {}
        if folder.exists():
            with suppress(OSError, ValueError):
                before = json.loads((folder / "report.json").read_bytes())
            others = [
                path
                for path in folder.iterdir()
                if path.suffix != ".py" and path.name != "__pycache__"
            ]
            if others and before.get("title") != self.title:
                raise OptionError(
                    f"out: {folder} holds other things than {self.title!r}; give an empty folder"
                )
        folder.mkdir(parents=True, exist_ok=True)
        cpu_s = round(time.process_time(), 1)
        told = {"command": command, "cpu_s": cpu_s, "machine": machine("cpu"), **self.to_dict()}
        save_page(folder / "report.json", json.dumps(told, indent=1, allow_nan=False) + "\n")
        by = f"{told['machine']['processor']}, {told['machine']['date']}; {cpu_s} CPU seconds."
        page = [str(self), "## Made by", *[f"`{command}`"] * bool(command), by]
        save_page(folder / "report.md", "\n\n".join(page) + "\n")
        for ending in ("pdf", "svg"):
            save_picture(folder / f"figure.{ending}", self.draw())
        return replace(self, folder=folder)

    def check(self, folder: Path) -> Checked:
        """The stored page and numbers beside these, measured anew, with what rounding may change.

        A measurement in floating point differs between processors, by how much follows from what
        is measured: a share of the tolerance at which a finding is judged is rounding.
        """
        stored = json.loads((folder / "report.json").read_bytes())
        parts: dict[str, list[Finding]] = {}
        for heading, part in self.parts.items():
            rows = stored.get("parts", {}).get(heading, [])
            measured = [row.get("measured") for row in rows] + [None] * len(part)
            parts[heading] = []
            for one, value in zip(part, measured, strict=False):
                rounding = ROUNDING * one.tolerance
                are_floats = isinstance(value, float) and isinstance(one.measured, float)
                if are_floats and math.isclose(value, one.measured, rel_tol=0, abs_tol=rounding):
                    one = replace(one, measured=value)
                parts[heading].append(one)
        findings = replace(self, parts=parts)
        page = (folder / "report.md").read_text("utf-8").partition("\n\n## Made by")[0]
        computed = json.loads(json.dumps(findings.to_dict()))
        told = {name: stored.get(name) for name in computed}
        texts = [json.dumps(numbers, indent=1) for numbers in (told, computed)]
        differences = line_differences("report.json", *texts)
        differences += line_differences("report.md", page, str(findings).rstrip())
        return Checked(folder.name, ["report.json", "report.md"], 0, differences)


def _told(value: Any) -> str:
    return (
        f"{value:.4g}"
        if isinstance(value, float)
        else f"{value:,}"
        if type(value) is int
        else str(value)
    )


def _within(finding: Finding) -> str:
    return "exactly" if finding.tolerance == 0 else f"{finding.tolerance:g}"


def _state(finding: Finding) -> str:
    return "yes" if finding.holds else "**no**"
