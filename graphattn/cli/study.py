"""What ``graphattn study`` does: run a suite, read a study's folder, or list the suites."""

import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import OptionError
from .output import document, one_line, rendered, say, table


def study(
    name: str | None,
    folder: str | None,
    out: str | None,
    quick: bool,
    seeds: int | None,
    arms: str | None,
    processes: int | None,
    listed: bool,
    as_json: bool,
) -> None:
    """One of the three."""
    from ..study.suites import SUITES, run_suite, suite, suites

    if listed:
        document(suites()) if as_json else rendered(table(suites().items()))
        return
    if name == "report":
        if folder is None:
            raise OptionError("study report needs the folder of a study: graphattn study report DIR")
        with _warned_in_lines():
            found = _read(folder)
        _shown(found, as_json)
        return
    if name is None or folder is not None:
        raise OptionError(f"study needs the NAME of a suite, {', '.join(SUITES)}; or report DIR")
    suite(name)
    if out is None:
        raise OptionError(f"--out must be a folder for the results: graphattn study {name} --out {name}")
    given: dict[str, Any] = {"--seeds": seeds, "--arms": arms}
    words = ["graphattn", "study", name, *["--quick"] * quick]
    words += [word for flag, value in given.items() if value is not None for word in (flag, str(value))]
    chosen = [arm.strip() for arm in arms.split(",")] if arms is not None else None
    options: dict[str, Any] = {"quick": quick, "seeds": seeds, "arms": chosen, "processes": processes}
    with _warned_in_lines():
        try:
            report = run_suite(name, out, command=shlex.join([*words, "--out", out]), **options)
        except KeyboardInterrupt:
            say(f"what is trained is kept in {one_line(out)}: the same command goes on from there", sys.stderr)
            raise
    _shown(report, as_json)
    say(f"report.md, report.json, figure.pdf and figure.svg are in {one_line(out)}", sys.stderr)


@contextmanager
def _warned_in_lines() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *where, **more: say(f"warning: {one_line(str(message))}", sys.stderr)
        yield


def _read(folder: str) -> Any:
    from ..study.suites.untrained import read_findings

    found = read_findings(folder)
    if found is not None:
        return found
    from ..study import report

    return report(folder)


def _shown(report: Any, as_json: bool) -> None:
    if as_json:
        document(report.to_dict())
    else:
        say(str(report))
