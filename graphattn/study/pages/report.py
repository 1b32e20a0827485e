"""Reports of studies: predictions beside measurements, as pages, tables and figures."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import OptionError
from ...io.writing import save_page, save_picture
from ...printed import Printed
from ..page import Block, Page
from ..runs import pilot
from ..runs.records import Records, plain, read_plan
from . import export, markdown
from .brief import brief
from .results import AT_CHANCE, GROUP, SATURATED, SIGMAS, Results
from .sections import page_of


@dataclass(frozen=True, eq=False, repr=False)
class Report(Printed, Results):
    """A study on disk: its numbers, and the page that they are.

    Args:
        folder: Where it is.
        plan: What was written before training.
        records: Of all trials, by key.
        summary: Of the study.
        figure: Of the study.
    """

    @property
    def cautions(self) -> list[str]:
        """Faults of a study: lines changed or lost, equal arms alike by law, nothing learned."""
        texts = [*self._cautions_of_records(), *self._cautions_of_claims()]
        for name, about in self.plan["comparisons"].items():
            rows = [row for row in self.rows if row.comparison == name and row.scores]
            rows = [row for row in rows if row.may_leave(about["chance"])]
            if rows and all(map(self.at_chance, rows)):
                far = f"is more than {SIGMAS:g} standard errors above chance, {about['chance']:.3f}"
                if not rows[0].is_share:
                    far = "takes fewer bits than a guess by the shares of classes"
                texts.append(f"{name}: no arm {far}; their differences say little")
        if self.is_pilot:
            texts += pilot.cautions(self)
        return texts

    def _cautions_of_records(self) -> list[str]:
        """Lines of trials that were changed, lost, or taken out."""
        name = self.records.path.name
        broken = self.records.broken
        texts = []
        if broken:
            lines = ", ".join(map(str, broken[:5]))
            if len(broken) > 1:
                lines = f"lines {lines}"
            else:
                lines = f"line {lines}"
            if len(broken) > 5:
                lines += " and more"
            texts.append(f"{name} was changed by hand: the hash is another at {lines}")
        end = self.plan.get("end", {})
        if not self.records.reach(end):
            texts.append(
                f"{name} was changed by hand: it had {end['lines']} lines, the last of hash "
                f"{end['hash']}"
            )
        out = len(self.records.notes)
        if out == 1:
            texts.append(f"1 line was taken out of {name} that held no trial")
        elif out > 1:
            texts.append(f"{out} lines were taken out of {name} that held no trial")
        return texts

    def _cautions_of_claims(self) -> list[str]:
        """Equal arms that could not differ."""
        return [
            f"{verdict.claim}: {remark}, so that they could hardly differ"
            for verdict in self.verdicts
            for remark in verdict.remarks
            if remark in (SATURATED, AT_CHANCE)
        ]

    @property
    def page(self) -> Page:
        """The page as data: sections of text, tables and a figure."""
        return page_of(self, self.cautions)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain values."""
        rows = []
        for row in self.rows:
            line = {
                name: getattr(row, name)
                for name in (*GROUP, "metric", "capped", "failed", "answers", "holds")
            }
            if row.interval is not None:
                line |= vars(row.interval)
            _, effect = self.beside_all_pairs(row)
            fit = self.fit(row)
            line |= {"scores": row.scores, "effect": None, "probes": self.probes(row)}
            line |= {"fit": {**vars(fit), "failed": fit.failed, "unknown": fit.unknown}}
            if effect is not None:
                line["effect"] = vars(effect)
            names = self.test_groups(row)
            if names:
                line["groups"] = {name: self.of_group(row, name).scores for name in names}
            rows.append(line)
        numbers = {k: v for k, v in self.plan.items() if k not in ("trials", "identity")}
        numbers |= {
            "counts": self.counts,
            "cautions": self.cautions,
            "cpu_hours": round(self.cpu_hours, 4),
            "rows": rows,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
        }
        return plain(json.dumps(numbers))

    def in_full(self) -> str:
        return markdown.render(self.page)

    def few_lines(self) -> list[str]:
        """The first verdicts and scores, and where the rest is."""
        return [*self.brief()[:9], f"... in {self.folder / 'report.md'}, by print"]

    def brief(self) -> list[str]:
        """Verdicts and scores, a line each."""
        return brief(self)

    def save(self) -> None:
        """Write all files of the report into the folder.

        The page (``report.md``, ``report.html``), the numbers (``report.json``, ``report.csv``), a
        table for LaTeX (``report.tex``) and figures (``figure.*``, and ``column.*`` as wide as a
        column).
        """
        # they need packages that a study without a page does not
        from . import html
        from .picture import COLUMN, SHEET, draw

        numbers = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        save_page(self.folder / "report.md", f"{self}\n")
        save_page(self.folder / "report.json", f"{numbers}\n")
        save_page(self.folder / "report.csv", export.comma_separated(self))
        save_page(self.folder / "report.tex", export.latex(self))
        if any(row.scores for row in self.rows):
            sheets = {"figure": SHEET}
            if self.figure is None:
                sheets["column"] = COLUMN
            for name, sheet in sheets.items():
                figure = draw(self, sheet)
                for ending in ("pdf", "svg"):
                    save_picture(self.folder / f"{name}.{ending}", figure)
        page = html.render(self.page, self.folder / "figure.svg")
        save_page(self.folder / "report.html", page)


def read(
    folder: Any,
    summary: Callable[[Report], list[Block]] | None = None,
    figure: Callable[[Report], Any] | None = None,
) -> Report:
    """Read a study from its folder; no file is written.

    Raises:
        OptionError: If there is no study.
    """
    plan = read_plan(Path(folder))
    if plan is None:
        raise OptionError(
            f"{folder} holds no study; graphattn study FILE.py --out {folder} makes one"
        )
    return Report(Path(folder), plan, Records(Path(folder)), summary, figure)


def report(
    folder: Any,
    summary: Callable[[Report], list[Block]] | None = None,
    figure: Callable[[Report], Any] | None = None,
) -> Report:
    """Read a study from its folder, write its page, numbers and figure there, and return it.

    Files that were made with a summary or a figure of the study's own are not overwritten without
    them.

    Raises:
        OptionError: If there is no study.
    """
    result = read(folder, summary, figure)
    if summary or figure or not result.plan.get("own_page"):
        result.save()
    for text in result.cautions:
        warnings.warn(text, stacklevel=2)
    return result
