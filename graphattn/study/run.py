"""The course of a study: its plan is written, then its missing trials are trained."""

import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from ..arguments import whole
from ..bench.machine import machine
from ..errors import OptionError
from .claims import Claim
from .comparison import Comparison, Training, Trial
from .data import Data
from .judge import warn_of_power
from .laws import check_baseline
from .network import CustomModel, Model
from .page import Report, from_docstring, report
from .plan import Study, planned
from .pool import run_all
from .records import (
    LOCK,
    PLAN,
    TRIALS,
    Entry,
    Records,
    as_json,
    fault_of,
    held,
    plain,
    read_plan,
    take_out_refused,
    write_plan,
    writing,
)
from .trials import trials_of

_OF_RUN = ("processes", "baseline")
_LINE_EVERY = 30.0  # seconds between two lines, where there is no terminal


def run(
    arms: dict[str, Any],
    data: Data,
    *,
    readout: str = "mean",
    budgets: Any = None,
    seeds: int | range = 8,
    out: Any,
    model: Model | CustomModel | None = None,
    training: Training | None = None,
    claims: Sequence[Claim] = (),
    name: str = "study",
    **options: Any,
) -> Report:
    """Compare graphs on data: write predictions, train every arm and its controls, report.

    Interrupted by anything, the same call goes on where it was. Each trial is a process with one
    thread.

    Args:
        arms: By name, a graph, a pattern or recipe, a function of a :class:`Sample` that gives its
            graph, or a list with one graph for each layer.
        data: Samples and what is asked about them.
        readout: "mean" of the nodes, "token" (the first one, or ``token=``), "node": every node
            answers, or "edge": every edge that is asked, by both of its nodes.
        budgets: :class:`Budget`, or several: training examples, and steps or operations.
        seeds: Number of repetitions of everything, paired, or a range of them: 6 or more for a
            verdict on one claim, 9 or more on ten; you are warned where no verdict is possible.
        out: Folder of the results; that of another study is refused.
        model: Sizes of the encoder, the same for all arms; or :class:`CustomModel` for a module of
            your own.
        training: Settings of training, the same for all arms.
        claims: Predictions about the arms; judged in the report.
        name: Of the study, as its page, its tables and the errors about its folder have it.
        options: ``positions`` ("none", "learned", "relative", "rotary", "alibi", "distance",
            "pairs": one or several), ``controls``, ``draws`` of a rewiring and ``permutations`` for
            each seed (1: one for all seeds), ``token``, ``metric``; ``processes`` (0: in this one;
            by default one for each core, if they can import the model);
            ``baseline`` (logistic regression, or of numbers ridge regression, and a forest on the same
            splits: by default of small vectors and tables); ``looked_at``, as :class:`Study` has it.
    Raises:
        OptionError: If the readout does not fit, or ``out``
            holds another study.
        GraphError: If a graph does not fit the data.
        ControlError: If a control is not what it claims to be, or arms did not start alike.
    """
    of_run = {name: options.pop(name) for name in _OF_RUN if name in options}
    looked_at = options.pop("looked_at", ())
    arguments = {"budgets": budgets, "model": model, "training": training}
    options |= {name: value for name, value in arguments.items() if value is not None}
    comparison = Comparison(name, arms, data, readout=readout, **options)
    study = Study(name, [comparison], claims, looked_at=looked_at)
    return execute(study, seeds=seeds, out=out, **of_run)


def execute(
    study: Study,
    *,
    seeds: int | range,
    out: Any,
    processes: int | None = None,
    baseline: bool | None = None,
) -> Report:
    """Plan a study, run what is missing, and report. Arguments as in :func:`run`."""
    span = seeds
    if not isinstance(span, range):
        span = range(whole(seeds, "seeds", 1, below=1 << 16))
    if span.step != 1:
        raise OptionError(f"seeds must be a number, or a range without a step, got {seeds}")
    folder = folder_of(study.name, out)
    processes = _processes(study, processes)
    counted = len({*span} - {*study.looked_at})
    if not study.quick:
        warn_of_power(study.claims, counted)
    by_name = study.by_name()
    trials = [
        trial
        for comparison in by_name.values()
        for trial in trials_of(comparison, len(span), span.start)
    ]
    trials.sort(key=lambda trial: trial.seed)  # what is there of an interrupted study is paired
    study.check_claims(trials)
    check_baseline(study.comparisons, baseline)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # trials seed themselves; the caller's numbers go on
    with (
        held(folder),
        torch.random.fork_rng(devices=[]),
    ):
        take_out_refused(folder)
        records = Records(folder)
        identity = {name: comparison.identity() for name, comparison in by_name.items()}
        before = read_plan(folder)
        if before is not None:
            _check_same(folder, study, by_name, identity, before)
        plan = planned(study, by_name, identity, trials, span, records, before, baseline)
        write_plan(folder, plan)
        texts = [text for about in plan["comparisons"].values() for text in about["warnings"]]
        if texts:  # of arms that cannot depend on all that they are asked about
            more = ""
            if len(texts) > 1:
                more = f"; {folder / PLAN} has all {len(texts)} warnings"
            warnings.warn(f"{texts[0]}{more}", stacklevel=2)
        _train(study, trials, records, processes)
        if records.reach(plan["end"]):
            write_plan(folder, {**plan, "end": records.end})
    report_of = report(folder, study.summary, study.figure)
    report_of.check_controls()
    return report_of


def _processes(study: Study, processes: int | None) -> int:
    """The number of processes; none by default where others could not import a custom model."""
    local = [
        c.name
        for c in study.comparisons
        if isinstance(c.model, CustomModel) and not c.model.can_travel
    ]
    if processes is None:
        if local:
            return 0
        return int(machine("cpu")["cores"])
    if whole(processes, "processes", 0) and local:
        raise OptionError(
            f"processes={processes} must import what makes the model of {', '.join(local)}, which "
            "stands in the program that runs, or within a function; put it into a file of its own, "
            "or give processes=0"
        )
    return processes


def folder_of(study: str, out: Any) -> Path:
    """The folder of a study's results.

    Raises:
        OptionError: If it holds something else.
    """
    folder = Path(out)
    inside = set()
    if folder.exists():
        inside = {path.name for path in folder.iterdir() if path.suffix != ".py"}
    before = read_plan(folder)
    # it ended before there was a plan, or the plan was lost
    if inside - {LOCK, TRIALS, "__pycache__"} and before is None:
        raise OptionError(
            f"out: {folder} holds other things than a study; give a new or an empty folder"
        )
    if before is not None and before["study"] != study:
        raise OptionError(
            f"out: {folder} holds the study {before['study']!r}, not {study!r}; give another folder"
        )
    return folder


def _check_same(
    folder: Path,
    study: Study,
    by_name: dict[str, Comparison],
    identity: dict[str, str],
    before: Entry,
) -> None:
    """Refuse a folder with other data, or with predictions and claims of other graphs."""
    other = [
        name for name, digest in identity.items() if before["identity"].get(name, digest) != digest
    ]
    if other or not set(before["identity"]) <= set(identity):
        raise OptionError(
            f"out: {folder} holds a study {study.name!r} of other data, another readout, model or "
            f"training ({', '.join(other) or 'other comparisons'}); give another folder"
        )
    for name, comparison in by_name.items():
        edges_before = before["comparisons"].get(name, {}).get("graphs", {})
        other = [
            arm for arm, edges in comparison.edges.items() if edges_before.get(arm, edges) != edges
        ]
        if other:
            raise OptionError(
                f"out: {folder} has other graphs by the name of {', '.join(other)}; give other "
                "names"
            )


def _train(study: Study, trials: list[Trial], records: Records, processes: int) -> None:
    """Run each trial that has no number yet; arms with the same edges share one."""
    missing = {trial.key: trial for trial in trials if not records.done(trial.key)}
    start = time.monotonic()
    with progress(len(trials), len(trials) - sum(t.key in missing for t in trials)) as advance:

        def done(trial: Trial, answer: Entry) -> None:
            at = datetime.now(UTC).isoformat(timespec="seconds")
            about_trial = {
                **asdict(trial),
                "at": at,
                "elapsed_s": round(time.monotonic() - start, 1),
            }
            record = {**answer, **about_trial}  # no process says which trial it ran
            if fault := fault_of(plain(json.dumps(record, default=as_json))):
                record = {"state": "failed", "error": f"its process gave something that is {fault}"}
            records.append({**about_trial, **record})
            advance(sum(t.key == trial.key for t in trials), records.failures)

        if missing:
            run_all(study.by_name(), list(missing.values()), done, processes)


@contextmanager
def progress(total: int, before: int) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on a terminal, elsewhere a line every half minute."""
    from ..io.progress import Pace, bars

    last = time.monotonic()
    number = before
    pace = Pace()
    with bars() as update:

        def advance(count: int, failed: int) -> None:
            nonlocal last, number
            number += count
            share = number / max(1, total)
            words = f"{number} of {total} trials" + f", {failed} failed" * bool(failed)
            left = pace.left("trials", share)
            if update is not None:
                update("trials", share, words)
            elif time.monotonic() - last > _LINE_EVERY and sys.stderr is not None:
                print(f"{words}, {left}", file=sys.stderr, flush=True)
                last = time.monotonic()

        advance(0, 0)
        yield advance


def study_file(path: str | Path) -> Path:
    """The whole path of a Python file that exists."""
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise OptionError(
            f"a study must be a Python file that exists, such as recall/study.py, got {path}"
        )
    return file


def load(path: str | Path) -> Any:
    """The module of a study file, which may import what stands beside it, or in the folder above.

    Raises:
        OptionError: If there is no such file, or it has no ``study()``.
    """
    file = study_file(path)
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    folders = [str(file.parent), str(file.parents[1])]
    sys.path[:] = [
        folders[0],
        *(folder for folder in sys.path if folder not in folders),
        folders[1],
    ]
    # by this name processes of trials import it, too
    module = sys.modules[file.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "study", None)):
        raise OptionError(f"{path} must define study(), which returns study.Study(...)")
    return module


def file_of_command(command: str) -> Path | None:
    """The study file of a command that a report quotes, if it is there from this folder."""
    words = shlex.split(command)
    if words[:2] != ["graphattn", "study"] or len(words) < 3:
        return None
    file = Path(words[2])
    if file.suffix == ".py" and file.is_file():
        return file
    return None


def run_file(
    path: str | Path,
    out: str | Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    processes: int | None = None,
    baseline: bool | None = None,
    command: str = "",
) -> Any:
    """Run a study file into a folder, or go on with it.

    The file defines ``study(quick)``, or ``study()``, which returns a :class:`Study`; or,
    where nothing is to be trained, an object whose ``save(out, command)`` writes a folder and
    returns what the command line prints of it, as a :class:`Report` has it: ``folder``,
    ``brief()``, ``to_dict()`` and ``str()``.

    Args:
        path: The file.
        out: Folder of the results.
        quick: Smaller, as the file says.
        seeds: Seeds; those of the study by default.
        processes: As many as there are cores by default.
        baseline: True for plain methods on the same splits; of small vectors and tables by default.
        command: As the report quotes it.
    Raises:
        OptionError: If the file has no study, or its study no such option; or the folder holds
            another study.
    """
    module = load(path)
    if not quick:
        study = module.study()
    elif "quick" in signature(module.study).parameters:
        study = module.study(quick=True)
    else:
        raise OptionError(f"--quick requires study(quick=...) in {path}")
    if not isinstance(study, Study):
        if (seeds, processes, baseline) != (None, None, None):
            raise OptionError(f"{path} trains nothing: it has no seeds, processes or baseline")
        return study.save(out, command)
    study.command = command
    study.quick = quick
    study.about = study.about or from_docstring(module.__doc__)
    options: dict[str, Any] = {"processes": processes, "baseline": baseline}
    return execute(study, seeds=study.seeds if seeds is None else seeds, out=out, **options)
