"""Suites that train nothing: a prediction, how far a measurement may be from it, and what was measured."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...bench.machine import machine
from ...convert.files._replace import save_page, save_picture
from ...errors import OptionError
from ..markdown import table


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
    """All of a suite's findings.

    Args:
        title: Of the page.
        about: What is measured and how, Markdown.
        parts: Findings by heading.
        draw: Makes the figure.
    """

    title: str
    about: str
    parts: dict[str, list[Finding]]
    draw: Callable[[], Any]

    @property
    def failed(self) -> list[Finding]:
        """Those that are not as predicted."""
        return [finding for part in self.parts.values() for finding in part if not finding.holds]

    def __str__(self) -> str:
        count = sum(map(len, self.parts.values()))
        lines = [f"# {self.title}", self.about, f"{count - len(self.failed)} of {count} predictions hold."]
        for heading, findings in self.parts.items():
            rows = [
                [f.question, _told(f.predicted), _within(f), _told(f.measured), _state(f), f.source] for f in findings
            ]
            lines += [f"## {heading}", table(["question", "predicted", "within", "measured", "holds", "source"], rows)]
        return "\n\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        parts = {name: [{**asdict(f), "holds": f.holds} for f in part] for name, part in self.parts.items()}
        return {"title": self.title, "failed": len(self.failed), "parts": parts}

    def save(self, out: Any, name: str, command: str = "", cpu_s: float = 0.0) -> "Findings":
        """Write the page, the numbers and the figure.

        Raises:
            OptionError: If the folder holds something else.
        """
        folder = Path(out)
        before = read_findings(folder)
        if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and before is None)):
            raise OptionError(f"out: {folder} holds other things than the suite {name}; give a new or an empty folder")
        if before is not None and before.title != self.title:
            raise OptionError(f"out: {folder} holds {before.title!r}; give another folder")
        folder.mkdir(parents=True, exist_ok=True)
        told = {"suite": name, "command": command, "cpu_s": cpu_s, "machine": machine("cpu"), **self.to_dict()}
        save_page(folder / "report.json", json.dumps(told, indent=1, allow_nan=False) + "\n")
        by = f"{told['machine']['processor']}, {told['machine']['date']}; {cpu_s} CPU seconds."
        page = [str(self), "## Made by", *[f"`{command}`"] * bool(command), by]
        save_page(folder / "report.md", "\n\n".join(page) + "\n")
        for ending in ("pdf", "svg"):
            save_picture(folder / f"figure.{ending}", self.draw())
        return self


def _told(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def _within(finding: Finding) -> str:
    return "exactly" if finding.tolerance == 0 else f"{finding.tolerance:g}"


def _state(finding: Finding) -> str:
    return "yes" if finding.holds else "**no**"


@dataclass(frozen=True, eq=False)
class SavedFindings:
    """Findings as a folder holds them."""

    title: str
    page: str
    content: dict[str, Any]

    def __str__(self) -> str:
        return self.page

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return self.content


def read_findings(folder: Any) -> SavedFindings | None:
    """The findings of a folder; None where it holds none."""
    numbers, page = Path(folder) / "report.json", Path(folder) / "report.md"
    if not numbers.is_file() or not page.is_file():
        return None
    try:
        content = json.loads(numbers.read_text())
    except ValueError:
        return None
    return SavedFindings(content["title"], page.read_text().rstrip("\n"), content) if "parts" in content else None
