"""``graphattn study``: run a study file, read a study's folder, or list the studies of a folder."""

import shlex
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ..errors import OptionError
from ..io.fields import option
from .options import Debug, Json, number, with_options
from .output import document, one_line, say, warnings_in_lines


@dataclass(frozen=True)
class Course:
    """Options of a run of a study."""

    quick: bool = option(False, "Smaller: fewer seeds, steps, sizes or arms.", group="")
    seeds: int | None = option(
        None, "6 to judge one claim, 9 for ten; the study's own by default.", group="", least=1
    )
    processes: int | None = option(
        None,
        "Trials at once; as many as there are cores by default; 0 is in this process.",
        group="",
        least=0,
    )
    baseline: bool | None = option(
        None,
        "A linear model (logistic, ridge) and a forest on the same splits; by default of small "
        "tables.",
        group="",
    )

    def words(self) -> list[str]:
        """These options on a command line, without the number of processes, which changes nothing."""
        words = []
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "processes" or value == item.default:
                continue
            if value is False:
                words.append(f"--no-{item.name}")
            else:
                words.append(f"--{item.name}")
            if not isinstance(value, bool):
                words.append(str(value))
        return words


@with_options(lambda: Course)
def study(
    file: Annotated[
        Optional[str],
        typer.Argument(metavar="FILE.py", help="A study file; a folder with --check; or report."),
    ] = None,
    folder: Annotated[
        Optional[str], typer.Argument(metavar="DIR", help="Of report: a study's folder.")
    ] = None,
    out: Annotated[
        Optional[str], typer.Option(metavar="DIR", help="Folder of the results.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Render a folder's report again, and compare it whole."),
    ] = False,
    again: Annotated[
        int, number("With --check: trials, drawn at random, that are trained again.", 0)
    ] = 0,
    full: Annotated[
        bool, typer.Option("--full", help="Print the whole report, not verdicts and scores alone.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
    **options: Any,
) -> None:
    """Settle by experiment what a connectivity buys.

    Predictions are written first, then every arm and its controls are trained, then the report:
    one page, report.md and .html, with figure.pdf and .svg; report.csv (a line for each trial) and
    .json. Interrupted by anything, the same command goes on. It ends with an error, and the report
    is there, if shuffled labels were learned or arms did not start alike. Verdicts and scores are
    printed, with --full all of report.md. With --check a folder's report is rendered again from its
    trials and compared whole, and nothing is written; it ends with status 1 if a line differs, and
    says which; --again 3 trains three trials again. A page with a summary of the study's own needs
    its file: where the report says that it stands, or the FILE.py that is given.

    \b
      graphattn study examples/studies/recall/study.py --quick --out recall
      graphattn study report recall
      graphattn study --check recall
      graphattn study moved/study.py --check --out recall
    """
    from ..study import report
    from ..study.check import study_of
    from ..study.page import read
    from ..study.run import run_file, study_file

    if check:
        _print_check(file, out, json, again)
    if file == "report":
        if folder is None:
            raise OptionError(
                "study report needs the folder of a study: graphattn study report DIR"
            )
        with warnings_in_lines():
            result = read(folder)
            made: tuple[Any, ...] = ()
            if result.plan.get("own_page"):
                of_file = study_of(Path(folder))
                made = (of_file.summary, of_file.figure)
            result = report(folder, *made)
        _print(result, json, full)
        return
    if file is None or folder is not None:
        raise OptionError("study needs a FILE.py with a study in it, or report DIR")
    study_file(file)
    if out is None:
        raise OptionError(
            f"--out must be a folder for the results: graphattn study {file} --out results"
        )
    course = Course(**options)
    command = shlex.join(["graphattn", "study", file, *course.words(), "--out", out])
    with warnings_in_lines():
        try:
            result = run_file(file, out, **vars(course), command=command)
        except KeyboardInterrupt:
            say(
                f"what is trained is kept in {one_line(out)}: the same command goes on from there",
                sys.stderr,
            )
            raise
    _print(result, json, full)


def _print_check(path: str | None, out: str | None, json: bool, again: int) -> None:
    """Print the differences of a report, and end: with status 1 if there are some.

    ``path`` is its folder; or the study file, and its folder is ``out``.
    """
    from ..study.check import rendered_again

    folder = path
    file = None
    if out is not None:
        folder = out
        file = path
    if folder is None or folder.endswith(".py"):
        raise OptionError(
            "--check must be given the folder of a study: graphattn study --check DIR, or "
            "graphattn study FILE.py --check --out DIR"
        )
    with warnings_in_lines():
        result = rendered_again(folder, file, again)
    if json:
        document(result.to_dict())
    else:
        say("\n".join(map(one_line, str(result).splitlines())))
    raise typer.Exit(int(not result.ok))


def _print(result: Any, json: bool, full: bool) -> None:
    """Print verdicts and scores, and the folder of the rest."""
    if json:
        document(result.to_dict())
    elif full:
        say(str(result))
    else:
        say("\n".join(map(one_line, result.brief())))
    where = one_line(str(result.folder))
    say(f"the report and its figures are in {where}; --full prints report.md", sys.stderr)
