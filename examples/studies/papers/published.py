"""Numbers of publications beside those of a study, for the pages of this folder."""

from dataclasses import dataclass
from typing import Any

from graphattn.study import Report
from graphattn.study.page import Block, Table


@dataclass(frozen=True)
class Published:
    """A statement of a publication, and the row of a study that stands beside it.

    Args:
        what: The arm and setting.
        source: The place in the publication.
        number: The number there, or the statement in its words.
        ours: Where the row is: keywords of ``Report.row``.
        why: The reason where ours differs.
        groups: Parts of the test whose scores stand there, in place of the whole test's.
    """

    what: str
    source: str
    number: str
    ours: dict[str, Any]
    why: str = "-"
    groups: tuple[str, ...] = ()


def beside(report: Report, lines: list[Published]) -> list[Block]:
    """A table of what was published, what was measured here, and why they differ."""
    rows = []
    for line in lines:
        row = report.row(**line.ours)
        word = row.fit.word
        measured = "not measured"
        if line.groups:
            parts = [report.of_group(row, group).interval for group in line.groups]
            measured = " / ".join(map(str, parts))
        elif row.interval is not None:
            measured = f"{row.interval} ({word})"
        rows.append([line.what, line.number, line.source, measured, line.why])
    head = ["what", "published", "where", "ours [95 %]", "where ours differs"]
    return ["## Published, and ours", Table(head, rows)]
