"""A report computed again from its trials, and the places at which its files differ."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ...errors import LoaderError, OptionError
from ...printed import Printed, counted
from ..files import file_of_command, load
from ..plan import Study
from ..runs.records import plain, read_plan
from . import export, html
from .report import Report, read

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_RESULT = re.compile(
    r"(\||<tr|<td|<th)"  # a line of a table
    r"|(\* |<li>).*: (\*\*|<strong>)?(yes|no|at chance|above chance)\b"  # a check
    r"|(<p>)?(\*\*|<strong>)(Warning|Incomplete):"
)
"""Begins a line of a page that says what was found, and not what that means."""
_AS_GOOD = 1e-9  # relative: the last digits of sums differ between libraries
_ROUNDING = 0.1  # of the tolerance of a finding
_PAGES = ("report.md", "report.html")
_NOT_COMPUTED = ("command", "cpu_s", "machine")  # of a study that trains nothing


@dataclass(frozen=True)
class Recounted:
    """A place in a file of a report at which something else was computed.

    Args:
        file: Its name.
        where: The place: keys of JSON, or a line.
        stands: Text in the file.
        computed: Text in its place.
    """

    file: str
    where: str
    stands: str
    computed: str

    def __str__(self) -> str:
        return f"{self.file}, {self.where}: {self.stands} stands there, computed: {self.computed}"


@dataclass(frozen=True, repr=False)
class Recount(Printed):
    """A report beside what its trials give.

    Args:
        study: Name.
        folder: Folder of the files.
        trials: Number of trials in the plan; 0 of a study that trains nothing.
        numbers: Numbers that were compared, by file.
        differences: Places that differ, in the order of the files.
        unchecked: Files and lines that could not be compared, with the reason.
    """

    study: str
    folder: Path
    trials: int
    numbers: dict[str, int]
    differences: list[Recounted]
    unchecked: dict[str, str]

    @property
    def ok(self) -> bool:
        """True if nothing differs."""
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        """The recount as plain values."""
        return {
            "study": self.study,
            "trials": self.trials,
            "numbers": self.numbers,
            "differences": [asdict(difference) for difference in self.differences],
            "unchecked": self.unchecked,
        }

    def in_full(self) -> str:
        total = sum(self.numbers.values())
        files = ", ".join(self.numbers)
        if self.trials:
            source = f"its {counted(self.trials, 'trial')}"
        else:
            source = "what is measured now"
        if self.ok:
            outcome = f"all {total:,} numbers of {files} are those of {source}"
        else:
            places = counted(len(self.differences), "place")
            if len(self.differences) == 1:
                verb = "differs"
            else:
                verb = "differ"
            outcome = f"{places} of {files} ({total:,} numbers) {verb} from {source}"
        lines = [f"{self.study}: {outcome}"]
        lines += [str(difference) for difference in self.differences]
        for why in dict.fromkeys(self.unchecked.values()):
            names = [name for name, reason in self.unchecked.items() if reason == why]
            lines.append(f"not checked: {', '.join(names)}: {why}")
        return "\n".join(lines)


def recount(folder: Any, file: Any = None) -> Recount:
    """Compute a report again from the plan and the trials of its folder; no file is written.

    A page with a summary of the study's own is computed by its study file: ``file``, or
    ``study.py`` in the folder, or that of the recorded command, where it still stands. So are the
    findings of a study that trains nothing.

    Raises:
        OptionError: If there is no report, or the study file is of another study.
        LoaderError: If a file is no report.
    """
    folder = Path(folder)
    path = folder / "report.json"
    if not path.is_file():
        raise OptionError(
            f"--check must be given the folder of a study with a report, got {folder}; graphattn "
            f"study report {folder} writes one"
        )
    plan = read_plan(folder)
    source = _source(folder, file, plan)
    if plan is None:
        if source is None:
            raise OptionError(
                f"{folder} holds no plan.json, and no study.py that computes its report"
            )
        return _of_findings(folder, load(source).study())
    unchecked = {}
    if not plan.get("own_page"):
        report = read(folder)
    elif source is not None:
        study = load(source).study()
        if getattr(study, "name", None) != plan["study"]:
            raise OptionError(
                f"{source} must be the file of {plan['study']}, the study of {folder}"
            )
        report = read(folder, study.summary, study.figure)
    else:
        report = read(folder)
        why = (
            "a study file makes the summary, and is not where it was; graphattn study FILE.py "
            f"--check --out {folder} checks it"
        )
        unchecked = dict.fromkeys(_PAGES, why)
    texts = _texts(report, [*unchecked])
    return _compared(plan["study"], folder, len(plan["trials"]), report.to_dict(), texts, unchecked)


def _source(folder: Path, file: Any, plan: dict[str, Any] | None) -> Path | None:
    """The study file of a folder, if it is known and there."""
    if file is not None:
        return Path(file)
    file_beside = folder / "study.py"
    if file_beside.is_file():
        return file_beside
    if plan is None:
        return None
    return file_of_command(plan["command"])


def _texts(report: Report, left_out: list[str]) -> dict[str, str]:
    """The files of a report that are there, as they should be."""
    folder = report.folder
    texts: dict[str, str] = {}
    for name in ("report.md", "report.csv", "report.tex", "report.html"):
        if name in left_out or not (folder / name).is_file():
            continue
        if name == "report.md":
            texts[name] = str(report)
        elif name == "report.csv":
            texts[name] = export.comma_separated(report)
        elif name == "report.tex":
            texts[name] = export.latex(report)
        else:
            texts[name] = html.render(report.page, folder / "figure.svg")
    return texts


def _of_findings(folder: Path, findings: Any) -> Recount:
    """The recount of a study that trains nothing: everything is measured anew."""
    if isinstance(findings, Study):
        raise OptionError(f"{folder} holds no plan.json; run the study again, which writes it")
    findings = _with_stored_rounding(findings, _stored(folder))
    texts = {"report.md": str(findings)}
    return _compared(folder.name, folder, 0, plain(json.dumps(findings.to_dict())), texts, {})


def _with_stored_rounding(findings: Any, stored: dict[str, Any]) -> Any:
    """The findings with the stored measurements that differ from theirs by rounding alone.

    A measurement in floating point differs between processors, by how much follows from what is
    measured. A finding states the tolerance at which it is judged; a share of it is rounding.
    """
    parts = {}
    for heading, part in findings.parts.items():
        rows = stored.get("parts", {}).get(heading, [])
        if len(rows) != len(part):
            return findings
        parts[heading] = [
            replace(finding, measured=row["measured"])
            if _differs_by_rounding(finding, row.get("measured"))
            else finding
            for finding, row in zip(part, rows, strict=True)
        ]
    return replace(findings, parts=parts)


def _differs_by_rounding(finding: Any, measured: Any) -> bool:
    if not (isinstance(measured, float) and isinstance(finding.measured, float)):
        return False
    return abs(measured - finding.measured) <= _ROUNDING * finding.tolerance


def _compared(
    study: str,
    folder: Path,
    trials: int,
    computed: dict[str, Any],
    texts: dict[str, str],
    unchecked: dict[str, str],
) -> Recount:
    stands = _stored(folder)
    for name in _NOT_COMPUTED:
        if name not in computed:
            stands.pop(name, None)
    differences = [Recounted("report.json", *place) for place in _differences("", stands, computed)]
    numbers = {"report.json": _count(computed)}
    for name, text in texts.items():
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        expected = text.splitlines()
        if not trials:
            lines = lines[: len(expected)]  # what follows is the machine's
        places, prose = _line_differences(lines, expected, name in _PAGES)
        if prose:
            unchecked[f"{counted(prose, 'line')} of prose in {name}"] = (
                "other words than this version of graphattn writes; only numbers, tables, checks and "
                "warnings are compared, and study report writes all anew"
            )
        differences += [Recounted(name, *place) for place in places]
        numbers[name] = len(_NUMBER.findall(text))
    return Recount(study, folder, trials, numbers, differences, unchecked)


def _stored(folder: Path) -> Any:
    """The values of ``report.json``."""
    path = folder / "report.json"
    try:
        return plain(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise LoaderError(f"{path}: expected JSON, got {error}. Try: study report") from None


def _count(value: Any) -> int:
    """Numbers in plain values."""
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    if isinstance(value, list):
        return sum(map(_count, value))
    return int(type(value) in (int, float))


def _differences(where: str, stands: Any, computed: Any) -> Iterator[tuple[str, str, str]]:
    """Places of plain values that differ, with both values."""
    if isinstance(stands, dict) and isinstance(computed, dict):
        for key in dict.fromkeys([*stands, *computed]):
            inside = f"{where}.{key}".removeprefix(".")
            yield from _differences(
                inside, stands.get(key, "nothing"), computed.get(key, "nothing")
            )
    elif isinstance(stands, list) and isinstance(computed, list) and len(stands) == len(computed):
        for i, (one, other) in enumerate(zip(stands, computed, strict=True)):
            yield from _differences(f"{where}[{i}]", one, other)
    elif not _same(stands, computed):
        yield where, _short(stands), _short(computed)


def _same(one: Any, other: Any) -> bool:
    if {type(one), type(other)} <= {int, float}:
        return math.isclose(one, other, rel_tol=_AS_GOOD, abs_tol=_AS_GOOD)
    return bool(one == other)


def _short(value: Any) -> str:
    """A value on one line."""
    text = str(value)
    if len(text) > 80:
        return f"{text[:77]}..."
    return text


def _line_differences(
    lines: list[str], expected: list[str], of_page: bool
) -> tuple[list[tuple[str, str, str]], int]:
    """Numbers that differ, results that do in words, and the number of other such lines.

    Lines are aligned by their words: a page may have been written by another version. In other
    files every line is one of a table.
    """
    places: list[tuple[str, str, str]] = []
    prose = 0
    if lines == expected:
        return places, prose
    words = [_NUMBER.sub("0", line) for line in lines]
    matcher = SequenceMatcher(None, words, [_NUMBER.sub("0", line) for line in expected])
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag == "equal":
            for i, j in zip(range(start, end), range(first, last), strict=True):
                places += _number_differences(i + 1, lines[i], expected[j])
            continue
        stored = lines[start:end]
        computed = expected[first:last]
        if of_page:
            prose += sum(not _is_result(line) for line in max(stored, computed, key=len))
            stored = [line for line in stored if _is_result(line)]
            computed = [line for line in computed if _is_result(line)]
        for one, other in zip_longest(stored, computed, fillvalue=""):
            if one != other:
                places.append((f"line {start + 1}", *_around_first(one, other)))
    return places, prose


def _is_result(line: str) -> bool:
    """True of a line of a table, of a check or of a warning."""
    return _RESULT.match(line.lstrip()) is not None


def _number_differences(number: int, line: str, other: str) -> Iterator[tuple[str, str, str]]:
    for one, computed in zip(_NUMBER.findall(line), _NUMBER.findall(other), strict=True):
        if not _same(float(one.replace(",", "")), float(computed.replace(",", ""))):
            yield f"line {number}", one, computed


def _around_first(line: str, other: str) -> tuple[str, str]:
    """Both lines from shortly before the first character that differs."""
    start = 0
    for one, computed in zip(line, other, strict=False):
        if one != computed:
            break
        start += 1
    start = max(0, start - 20)
    return repr(_short(line[start:])), repr(_short(other[start:]))
