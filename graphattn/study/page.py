"""The report of a study: one page with one figure, in Markdown and HTML, and its numbers."""

import html
import json
import re
import warnings
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from ..errors import OptionError
from ..io.tables import comma_separated
from ..io.writing import save_page, save_picture
from ..printed import Printed, counted
from ..statistics.collapse import RULE, unseen
from ..statistics.intervals import TYPICAL, Interval
from .arms import DRAWN
from .claims import SCORE, STEPS
from .judge import CLASSES, UNKNOWN, VERDICTS
from .laws import interval_of
from .records import FIXED, TRIALS, Entry, Records, read_plan
from .table import AT_CHANCE, SATURATED, SIGMAS, ArmRow, Drawing, Results, Summary, frame

MOST_WORDS = 1_200
"""Words of a page: of many arms the first are shown, and all are in the table of arms."""
_ROWS = (48, 24, 12, 6, 3)
_FEW = 24  # rows that a terminal shows
_LIMITS = "*What cannot be said.*"  # begins a paragraph of a study's text that stands at the top
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 72rem; margin: 2rem auto;
  padding: 0 1.2rem }
p, li { max-width: 46rem; overflow-wrap: break-word }
div { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; border-top: 2px solid; border-bottom: 2px solid }
td, th { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; min-width: 2.5rem }
th { border-bottom: 1px solid }
img { width: 100%; display: block; margin: 1.2rem 0 }
"""
_READER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass(frozen=True)
class Table:
    """A table; a cell is a line of Markdown.

    Args:
        head: Names of the columns.
        rows: The cells of each line.
    """

    head: list[str]
    rows: list[list[str]]

    def __str__(self) -> str:
        lines = [f"| {' | '.join(self.head)} |", f"|{'---|' * len(self.head)}"]
        return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in self.rows)])


Block = str | Table
"""What follows one another on a page; a text is Markdown: paragraphs, or a list."""


def _cell(text: str) -> str:
    """A cell on one line, in which bars and brackets are themselves."""
    return " ".join(str(text).splitlines()).replace("|", "&#124;").replace("<", "&lt;")


def verbatim(text: Any) -> str:
    """A name, or a user's text, as it is: nothing in it is Markdown, a link or HTML."""
    for wild, instead in ((r"&(?=#?\w+;)", "&amp;"), ("<", "&lt;"), (r"\|", "&#124;")):
        text = re.sub(wild, instead, str(text))
    return re.sub(r"[\\`*\[\]~$]|#(?!\w+;)|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def from_docstring(text: str | None) -> str:
    """The text behind the first line of a docstring, with its mathematics as Markdown has it."""
    _, _, rest = (text or "").strip().partition("\n")
    return re.sub(r":math:`([^`]*)`", r"$\1$", rest.strip()).replace("``", "`")


def as_html(markdown: str, title: str, figure: Path) -> str:
    """A page of Markdown as HTML that needs nothing beside it: the figure stands in the page."""
    body = _READER.render(re.sub(r"(?<!\\)\$([^$`\n]+)\$", r"*\1*", markdown))
    body = body.replace("<table>", "<div><table>").replace("</table>", "</table></div>")
    image = ""
    if figure.exists():
        data = b64encode(figure.read_bytes()).decode()
        image = f'<img alt="Scores of every arm" src="data:image/svg+xml;base64,{data}">'
    body = re.sub('<img src="figure.svg"[^>]*>', lambda _: image, body)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}</body></html>\n'


def words_of(text: str) -> int:
    """Words of a page."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def _number(value: float | None, form: str = ".3f") -> str:
    if value is None:
        return "-"
    return format(value, form)


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return str(interval)


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
        texts = self.by_hand
        texts += [
            f"{verdict.claim}: {remark}, so that they could hardly differ"
            for verdict in self.verdicts
            for remark in verdict.remarks
            if remark in (SATURATED, AT_CHANCE)
        ]
        for name, about in self.plan["comparisons"].items():
            rows = [r for r in self.rows if r.comparison == name and r.scores]
            rows = [row for row in rows if row.may_leave_chance]
            if rows and all(row.at_chance for row in rows):
                far = f"is more than {SIGMAS:g} standard errors above chance, {about['chance']:.3f}"
                if not rows[0].is_share:
                    far = "takes fewer bits than a guess by the shares of classes"
                texts.append(f"{name}: no arm {far}; their differences say little")
        return texts

    @property
    def by_hand(self) -> list[str]:
        """Lines of trials that were changed, lost, taken out or forged."""
        texts = self.records.cautions(self.plan.get("end", {}))
        if self.forged:
            scores = counted(self.forged, "accuracy", "accuracies")
            texts.append(f"{TRIALS} was changed by hand: {scores} of no whole number of answers")
        return texts

    @property
    def limits(self) -> list[str]:
        """Limits of what the study can say, whatever the verdicts: a line each."""
        lines = []
        undecided = [v.claim for v in self.verdicts if v.verdict not in ("kept", "broken")]
        if undecided:
            lines.append(f"Nothing of {counted(len(undecided), 'claim')}: {'; '.join(undecided)}.")
        elif not self.verdicts:
            lines.append("Which arm is better: no order of arms was claimed.")
        if self.looked_at:
            seeds = ", ".join(map(str, sorted(self.looked_at)))
            lines.append(
                f"Anything by seed {seeds}, looked at before the claims were made: claims are of "
                "the others."
            )
        unknown = {row.arm for row in self.rows if row.fit.mostly(UNKNOWN) and row.runs}
        if unknown:
            lines.append(
                f"Whether {', '.join(sorted(unknown))} fitted: of runs of before that was recorded, "
                "verdicts hold of this budget alone."
            )
        abouts = self.plan["comparisons"]
        copied = [name for name, about in abouts.items() if about.get("copies")]
        if copied:
            about = abouts[copied[0]]
            lines.append(
                f"How {'; '.join(copied)} generalise: {about['copies']:,} of {about['held']:,} "
                f"held-out samples are copies of training samples ({about['distinct']:,} of "
                f"{about['samples']:,} are distinct)."
            )
        if all(isinstance(about["training"]["rate"], float) for about in abouts.values()):
            lines.append("How arms compare at their best rates: one rate was tried.")
        if all(about.get("test") == FIXED for about in self.plan["comparisons"].values()):
            lines.append("How other test sets would come out: intervals are over seeds.")
        if self.verdicts and any(claim.of == SCORE for claim in self.registered):
            seeds = self.plan["seeds"]
            lines.append(
                f"Anything of means where runs collapse: of {seeds} runs none of which did, up to "
                f"{unseen(seeds):.0%} may."
            )
        return lines

    def in_full(self) -> str:
        for most in _ROWS:
            page = self._page(most)
            if words_of(page) <= MOST_WORDS:
                return page
        paragraphs = len(self.plan.get("about", "").split("\n\n"))
        while words_of(page) > MOST_WORDS and paragraphs:
            paragraphs -= 1
            page = self._page(most, paragraphs)
        return page

    def _page(self, most: int, paragraphs_shown: int | None = None) -> str:
        """The page in Markdown, with so many rows of its tables and paragraphs of its text."""
        blocks: list[Block] = [f"# Study: {verbatim(self.plan['study'])}"]
        blocks += [f"**Warning:** {verbatim(text)}." for text in self.cautions]
        counts = self.counts
        missing = counts["planned"] - counts["done"] - counts["failed"]
        if missing:
            blocks.append(
                f"**Incomplete:** {missing} trials have not run; the same command goes on."
            )
        if self.plan.get("quick"):
            blocks.append("**Quick:** a smaller run than the study asks for.")
        paragraphs = self.plan.get("about", "").split("\n\n")
        own_limits = [text for text in paragraphs if text.startswith(_LIMITS)]
        blocks += ["## What cannot be said"]
        blocks += [text.removeprefix(_LIMITS).strip() for text in own_limits]
        blocks.append("\n".join(f"* {verbatim(line)}" for line in self.limits))
        if self.registered:
            blocks += ["## Claims", *self._claim_blocks()]
        if any(row.scores for row in self.rows):
            blocks.append("![Scores of every arm](figure.svg)")
        if self.summary is not None:
            blocks += self.summary(self)
        blocks += ["## Scores", *self._score_blocks(most)]
        told = [text for text in paragraphs if text not in own_limits]
        blocks += ["## The study", *told[:paragraphs_shown]]
        if self.plan.get("reworded"):
            day = self.plan["reworded"]
            blocks.append(f"These words were changed after training had begun, last on {day}.")
        if len(told) > len(told[:paragraphs_shown]):
            blocks.append("The rest of this text is in plan.json.")
        blocks += ["\n".join(self._recipe()), "## Checks", "\n".join(self._checks(most))]
        blocks += ["## Made by", self._made_by()]
        return "\n\n".join(str(block) for block in blocks if str(block))

    def _claim_blocks(self) -> list[Block]:
        rows = []
        for claim, verdict in zip(self.registered, self.verdicts, strict=True):
            difference = _interval(verdict.difference)
            rows.append(
                [
                    verbatim(verdict.claim),
                    verbatim(claim.because) or "-",
                    difference,
                    _number(verdict.p, ".3g"),
                    verbatim(verdict.words),
                ]
            )
        used = {verdict.verdict for verdict in self.verdicts}
        notes = [f"*{word}*: {meaning}." for word, meaning in VERDICTS.items() if word in used]
        notes.append("p is corrected by Holm for all claims.")
        if any(v.difference and v.difference.of == TYPICAL for v in self.verdicts):
            notes.append(RULE)
        head = ["claim", "because", "difference [95 %]", "p", "verdict"]
        return [Table(head, rows), " ".join(notes)]

    def _score_blocks(self, most: int) -> list[Block]:
        """Predictions of arms beside measurements, and plain methods."""
        table = frame([self._score_line(row) for row in self.rows]).fillna("-")
        alike = {name: table[name].iloc[0] for name in ("positions", "examples", "steps", "metric")}
        alike |= {"reaches": "100.0%", "ceiling": "-", "better than all pairs by": "-"}
        constant = [name for name, value in alike.items() if (table[name] == value).all()]
        table = table.drop(columns=constant)
        shown = table[:most]
        blocks: list[Block] = [Table(list(shown), shown.to_numpy().tolist())]
        plain_lines = [f"* {verbatim(line)}" for line in self._plain_methods()[:most]]
        blocks.append("\n".join(plain_lines))
        note = "All of it, with covariates and probes, is `report.arms`; every trial report.csv."
        more = len(table) - most
        if more > 0:
            note = f"And {counted(more, 'row')} more. {note}"
        runs = " ".join(shown["runs"])
        rules = [f"*{word}*: {rule}." for word, rule in CLASSES.items() if word in runs]
        return [*blocks, " ".join([note, *rules])]

    def _score_line(self, row: ArmRow) -> dict[str, str]:
        """The cells of a row, by column."""
        prediction = row.prediction
        ceiling = _number(row.ceiling)
        if row.holds is False:
            ceiling += " **above its ceiling**"
        if prediction["bag"] and row.positions == "none":
            ceiling += ", a bag of nodes"
        equal = row.about["budgets"][row.budget]["equal"]
        counts = ((row.capped, "at the step limit"), (row.failed, "failed"))
        runs = [f"{count} {state}" for count, state in counts if count]
        groups = []
        if row.kind != "shuffled":
            runs = [row.fit.word, *runs]
            groups = row.about.get("groups", [])
        difference, _ = self.against_all_pairs(row)
        line = {
            "arm": self._name(row.comparison, row.arm),
            "positions": row.positions,
            "examples": _examples(row.examples),
            "steps": f"{row.steps:,}" + f" (equal {equal})" * (equal != "steps"),
            "reaches": f"{prediction['reached']:.1%}",
            "ceiling": ceiling,
            "metric": row.metric,
            f"{self.rows[0].metric} [95 %]": _interval(row.interval),
            "better than all pairs by": _interval(difference),
            "runs": ", ".join(runs),
        }
        for name in groups:
            column = verbatim(name)
            if column in line:
                column += " (group)"
            line[column] = _interval(self.of_group(row, name).interval)
        return line

    def _name(self, comparison: str, arm: str) -> str:
        """The name of an arm, behind that of its comparison where there are several."""
        if len(self.plan["comparisons"]) == 1:
            return verbatim(arm)
        return verbatim(f"{comparison}: {arm}")

    def _plain_methods(self) -> list[str]:
        """Scores of plain methods: the study's own, and those on the same splits."""
        lines = []
        for name, about in self.plan["comparisons"].items():
            for method, score in about["baselines"].items():
                lines.append(f"{name}, {method}, the study's own: {about['metric']} {score:.3f}")
            for method, by_seed in about.get("plain", {}).items():
                of_seeds = interval_of(about["metric"], by_seed)
                lines.append(f"{name}, {method}, same splits: {about['metric']} {of_seeds}")
        return lines

    def _recipe(self) -> list[str]:
        """Registrations, warnings, data, model and training, the latter once for all alike."""
        counts = self.counts
        lines = [
            f"* trials: {trials_text(counts)}; seeds: {self.plan['seeds']}, paired",
        ]
        entries = self.plan["registered"]
        for entry, earlier in zip(entries, [None, *entries], strict=False):
            lines.append(f"* {registration(entry, earlier)}")
        of_comparisons = [
            (
                f"{about['samples']:,} samples of {about['nodes']:,} nodes at most, "
                f"{about['held']:,} of them held out; readout: {about['readout']}",
                f"model: {_values(about['model'])}; positions: {', '.join(about['positions'])}",
                f"training: {_values(about['training'])}; "
                f"{'; '.join(map(_budget, about['budgets']))}",
            )
            for about in self.plan["comparisons"].values()
        ]
        for of_each in zip(*of_comparisons, strict=True):
            others = len(set(of_each)) - 1
            lines.append(f"* {of_each[0]}" + f" (and {others} others, in plan.json)" * bool(others))
        return lines

    def _checks(self, most: int) -> list[str]:
        """Asserts on every comparison, drawn controls, shuffled labels, equal starts, failures."""
        lines: list[str] = []
        for name, about in self.plan["comparisons"].items():
            lines += map(verbatim, about["warnings"])
            for check, value in about["checks"].items():
                result = "yes"
                if value is not True:
                    result = f"{value:.1e}"
                lines.append(f"{self._name(name, check)}: {result}")
        if len(lines) > most:
            lines = [*lines[:most], f"and {len(lines) - most} more like these"]
        drawn = {row.arm: row for row in self.rows if row.kind in DRAWN}
        for row in list(drawn.values())[:most]:
            prediction = row.prediction
            of_arm = row.about["arms"][prediction["of"]]
            keeps = ", ".join(prediction.get("keeps") or ["-"])
            if same := prediction.get("unchanged"):
                keeps += f", all edges of {same:,} of {row.about['samples']:,} graphs"
            lines.append(
                f"{self._name(row.comparison, row.arm)} keeps {keeps}; a node depends on "
                f"{prediction['depends_on_mean']:.1f} (the arm's: {of_arm['depends_on_mean']:.1f})"
            )
        for row in self.rows:
            if row.kind == "shuffled" and row.scores:
                outcome = "at chance"
                if not row.holds:
                    outcome = "**above chance**"
                lines.append(
                    f"{self._name(row.comparison, row.arm)}, positions {row.positions}: "
                    f"{outcome}, {row.interval} (chance {row.prediction['ceiling']:.3f}, sd of a "
                    f"seed {row.deviation:.3f})"
                )
        alike = "yes"
        if self.unlike:
            alike = f"**no**, {verbatim(self.unlike[0])}"
        lines.append(f"all arms of a seed started alike, with as many parameters: {alike}")
        lines += [f"failed: {verbatim(text)}" for text in self.failures]
        return [f"* {line}" for line in lines]

    def _made_by(self) -> str:
        machine = self.plan["machine"]
        versions = ", ".join(f"{name} {of}" for name, of in machine["versions"].items() if of)
        where = f"{verbatim(machine['processor'])}, {machine['cores']} cores, {machine['date']}"
        chain = (
            f"{TRIALS} has {counted(len(self.records.chain), 'line')}, the last of hash "
            f"{self.records.last or '-'}"
        )
        made = f"{where}; {self.cpu_hours:.2f} CPU hours; {versions}; {chain}."
        command = self.plan["command"]
        if not command:
            return made
        if "`" in command:  # more of them around it make it code
            command = f"` {command} `"
        return f"`{command}`\n\n{made}"

    def to_dict(self) -> Entry:
        """The numbers as plain values, of 9 digits."""
        numbers = {k: v for k, v in self.plan.items() if k not in ("trials", "identity")}
        rows = []
        for row, line in zip(self.rows, self.arm_lines(), strict=True):
            groups = {name: self.of_group(row, name).scores for name in row.about.get("groups", [])}
            rows.append(
                {**line, "scores": row.scores, "classes": row.fit.classes, "groups": groups}
            )
        numbers |= {
            "counts": self.counts,
            "cautions": self.cautions,
            "limits": self.limits,
            "cpu_hours": self.cpu_hours,
            "rows": rows,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
        }
        # the last digits differ between libraries
        result: Entry = json.loads(
            json.dumps(numbers),
            parse_float=lambda digits: float(f"{float(digits):.9g}"),
            parse_constant=lambda name: None,
        )
        return result

    def verdict_lines(self) -> list[str]:
        """Each claim with its difference and p, and what became of it."""
        lines = []
        for claim, verdict in zip(self.registered, self.verdicts, strict=True):
            line = verdict.claim
            if verdict.difference is not None:
                by = {STEPS: f"; {claim.worse} takes"}.get(claim.of, ", by")
                line += f"{by} {verdict.difference}"
            if verdict.p is not None:
                line += f", p {verdict.p:.3g}"
            lines.append(f"{line}: {verdict.words}")
        return lines

    def brief(self) -> list[str]:
        """Counts of trials, verdicts, and the table of scores, a line each."""
        counts = trials_text(self.counts)
        lines = [f"{self.plan['study']}: trials: {counts}; seeds: {self.plan['seeds']}"]
        lines += self.verdict_lines()
        for block in self._score_blocks(_FEW):
            lines += str(block).splitlines()
        return lines

    def few_lines(self) -> list[str]:
        """The first verdicts and scores, and where the rest is."""
        return [*self.brief()[:9], f"... in {self.folder / 'report.md'}, by print"]

    def texts(self) -> dict[str, str]:
        """The files of the report without its figure, by name."""
        markdown = f"{self}\n"
        trials = self.trials.astype(object).where(self.trials.notna(), None)
        rows = trials.itertuples(index=False)
        return {
            "report.md": markdown,
            "report.json": json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n",
            "report.csv": comma_separated([list(trials.columns), *rows]),
            "report.html": as_html(markdown, self.plan["study"], self.folder / "figure.svg"),
        }

    def save(self) -> None:
        """Write all files of the report into the folder.

        The page (``report.md``, ``report.html``), the numbers (``report.json``; ``report.csv`` with
        a line for each trial and part of the test) and the figure (``figure.pdf``, ``figure.svg``).
        """
        from .figure import draw  # it needs matplotlib

        if any(row.scores for row in self.rows):
            drawn = draw(self)
            for ending in ("pdf", "svg"):
                save_picture(self.folder / f"figure.{ending}", drawn)
        for name, text in self.texts().items():
            save_page(self.folder / name, text)


def trials_text(counts: dict[str, int]) -> str:
    """Numbers of trials: planned, done, of these at the step limit, and failed."""
    limit = f" ({counts['capped']} at the step limit)" * bool(counts["capped"])
    return f"{counts['planned']} planned, {counts['done']} done{limit}, {counts['failed']} failed"


def registration(entry: Entry, before: Entry | None) -> str:
    """A registration of claims in words, with what had changed since the one before."""
    words = counted(len(entry["claims"]), "claim")
    if "seeds" in entry:
        words += f", {counted(entry['seeds'], 'seed')}"
    if entry.get("first_seed"):
        words += f" from {entry['first_seed']}"
    if entry.get("withdrawn"):
        words += f", {len(entry['withdrawn'])} withdrawn after looking"
    if before is not None and before.get("spent", entry.get("spent")) != entry.get("spent"):
        words += ", other positions or budgets"
    if before is None:
        did = "registered"
    else:
        did = "changed"
    return f"{did} {entry['at']}, with {entry['trials_on_disk']} trials on disk: {words}"


def _values(arguments: Entry) -> str:
    """Arguments that are given, by name."""
    return ", ".join(
        f"{name} {verbatim(value) if isinstance(value, str) else value}"
        for name, value in arguments.items()
        if value is not None
    )


def _examples(examples: int | None) -> str:
    if examples is None:
        return "all"
    return f"{examples:,}"


def _budget(budget: Entry) -> str:
    text = f"{_examples(budget['examples'])} examples, {budget['steps']:,} batches"
    return text + f", equal {budget['equal']}" * (budget["equal"] != "steps")


def read(
    folder: Any,
    summary: Summary | None = None,
    figure: Drawing | None = None,
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
    summary: Summary | None = None,
    figure: Drawing | None = None,
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
