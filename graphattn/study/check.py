"""A report computed again from its trials, and the places at which its files differ."""

import json
import re
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..errors import OptionError
from ..printed import Printed, counted
from .page import Report, read
from .plan import Study
from .pool import run_trial
from .records import Entry, as_json, plain, read_plan
from .run import file_of_command, load
from .trials import trials_of

_IMAGE = re.compile(r"data:image/svg\+xml;base64,[^\"]*")
_TIMES = ("cpu_s",)


@dataclass(frozen=True)
class Mismatch:
    """A place in a file of a report at which something else was computed.

    Args:
        file: Its name, or the trial that was trained again.
        where: The line, or the number.
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
class Checked(Printed):
    """A report beside what its trials give.

    Args:
        study: Name.
        files: Files that were compared, whole but for pictures.
        trained: Trials that were trained again.
        differences: Places that differ, in the order of the files.
    """

    study: str
    files: list[str]
    trained: int
    differences: list[Mismatch]

    @property
    def ok(self) -> bool:
        """True if nothing differs."""
        return not self.differences

    def to_dict(self) -> Entry:
        """The result as plain values."""
        return asdict(self)

    def in_full(self) -> str:
        lines = [
            f"{self.study}: {counted(len(self.differences), 'difference')} in "
            f"{', '.join(self.files)}; {counted(self.trained, 'trial')} trained again"
        ]
        return "\n".join([*lines, *map(str, self.differences)])


def rendered_again(folder: Any, file: Any = None, again: int = 0) -> Checked:
    """Render a report again from the plan and the trials of its folder, and compare it whole.

    A page with a summary of the study's own needs its study file: ``file``, or ``study.py`` in the
    folder, or that of the recorded command; so do findings of a study that trains nothing, and
    trials that are trained again. Pictures are not compared.

    Args:
        folder: Where the report is.
        file: The study file.
        again: Trials, drawn at random, that are trained again and must have the same numbers.
    Raises:
        OptionError: If there is no report, or no study file where it needs one.
    """
    folder = Path(folder)
    if not (folder / "report.json").is_file():
        raise OptionError(
            f"--check must be given the folder of a study with a report, got {folder}; graphattn "
            f"study report {folder} writes one"
        )
    plan = read_plan(folder)
    study: Any = None
    if again or plan is None or plan.get("own_page"):
        study = study_of(folder, file)
    if plan is None:
        if isinstance(study, Study):
            raise OptionError(f"{folder} holds no plan.json; run the study again, which writes it")
        result: Checked = study.check(folder)
        return result
    report = read(folder)
    if study is not None:
        report = read(folder, study.summary, study.figure)
    texts = report.texts()
    files = [name for name in texts if (folder / name).is_file()]
    differences = []
    for name in files:
        differences += line_differences(name, (folder / name).read_text("utf-8"), texts[name])
    differences += [Mismatch("trials.jsonl", "warning", "-", text) for text in report.by_hand]
    if again:
        differences += _trained_again(report, study, again)
    return Checked(plan["study"], files, again, differences)


def study_of(folder: Path, file: Any = None) -> Any:
    """The study that the file of a folder makes: ``file``, ``study.py`` in it, or the command's.

    Raises:
        OptionError: If there is no such file, or it is one of another study.
    """
    plan = read_plan(folder)
    source = file
    if source is None and (folder / "study.py").is_file():
        source = folder / "study.py"
    if source is None and plan is not None:
        source = file_of_command(plan["command"])
    if source is None:
        raise OptionError(
            f"{folder} needs its study file, study.py in it; or graphattn study FILE.py --check "
            f"--out {folder}"
        )
    study = load(source).study()
    if plan is not None and getattr(study, "name", None) != plan["study"]:
        raise OptionError(f"{source} must be the file of {plan['study']}, the study of {folder}")
    return study


def line_differences(name: str, stands: str, computed: str) -> list[Mismatch]:
    """Lines of a file that are others."""
    lines = [_IMAGE.sub("", text).splitlines() for text in (stands, computed)]
    differences = []
    for number, (one, other) in enumerate(zip_longest(*lines, fillvalue=""), 1):
        if one != other:
            # from shortly before the first character that differs
            pairs = enumerate(zip_longest(one, other))
            start = max(0, next(i for i, (a, b) in pairs if a != b) - 20)
            quoted = (repr(line[start : start + 80]) for line in (one, other))
            differences.append(Mismatch(name, f"line {number}", *quoted))
    return differences


def _trained_again(report: Report, study: Any, again: int) -> list[Mismatch]:
    """Numbers of trials, drawn anew each time, that come out otherwise."""
    import random

    differences = []
    trials = []
    for comparison in study.by_name().values():
        first = report.plan.get("first_seed", 0)
        trials += [(comparison, t) for t in trials_of(comparison, report.plan["seeds"], first)]
    done = [(of, trial) for of, trial in trials if report.records.done(trial.key)]
    for comparison, trial in random.sample(done, min(again, len(done))):
        answer = run_trial(comparison, comparison.graphs_for(trial), trial)
        answer = plain(json.dumps(answer, default=as_json))
        record = report.records.of_key[trial.key]
        differences += [
            Mismatch(f"{trial.arm}, seed {trial.seed}", name, str(record[name]), str(value))
            for name, value in answer.items()
            if name in record and name not in _TIMES and record[name] != value
        ]
    return differences
