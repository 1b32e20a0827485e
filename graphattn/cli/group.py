"""Click's group: every error becomes one line, or one JSON document, and an exit status."""

import json
import os
import re
import sys
import sysconfig
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import BackendError, ExactnessError, GraphAttnError, Interrupted, not_installed
from .options import add_options
from .output import CLOSED, document, one_line, say

WRONG, UNEXPECTED, INTERRUPTED = 2, 70, 130  # 70 is EX_SOFTWARE of sysexits.h
_LONGEST = 300  # letters of a sentence about a command


class Command(TyperCommand):
    """A command whose options stand in groups, in the order in which they begin."""

    def make_context(self, *words: Any, **extra: Any) -> Any:
        """Read the options of a dataclass, which may load torch, once the command is asked for."""
        add_options(self)
        return super().make_context(*words, **extra)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then the options of each group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                heading = getattr(parameter, "rich_help_panel", None) or "Options"
                if parameter.param_type_name == "argument":
                    heading = "Arguments"
                groups.setdefault(heading, []).append(record)
        last = groups.pop("Options", [])  # what all commands have
        for heading, records in {**groups, "Options": last}.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class CommandGroup(TyperGroup):
    """All commands, in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of every command, uncut, group by group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            line = command.get_short_help_str(_LONGEST)
            groups.setdefault(command.rich_help_panel, []).append((name, line))
        for heading, lines in groups.items():
            with formatter.section(heading):
                formatter.write_dl(lines)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *rest: Any,
        **extra: Any,
    ) -> Any:
        """Run and exit; every error becomes a line, or a JSON document, and a status."""
        if args is None:
            args = sys.argv[1:]
        words = list(args)
        extra["standalone_mode"] = False
        wrong: Exception | Interrupted | None = None
        status = 0
        try:
            status = super().main(words, prog_name, *rest, **extra) or 0
        except Interrupted as signal:
            wrong = signal
        except SystemExit:  # stdout has no reader: the only exit that click takes by itself here
            status = CLOSED
        except Exception as error:
            wrong = error
        # some versions of typer raise Abort, some return the status
        if wrong is not None or status == INTERRUPTED:
            if wrong is None:
                wrong = typer.Abort()
            debug = "--debug" in words or _is_set("GRAPHATTN_DEBUG")
            status = report(wrong, as_json="--json" in words, debug=debug)
        sys.exit(status)


def report(error: Exception | Interrupted, *, as_json: bool, debug: bool) -> int:
    """Print an error, and return its exit status."""
    if isinstance(error, BrokenPipeError):
        return CLOSED
    status, message = _described(error)
    is_interrupted = isinstance(error, Interrupted | typer.Abort)
    if isinstance(error, Interrupted) and os.environ.get("RANK", "0") != "0":
        return status  # the first process prints the same
    if is_interrupted:
        line = message
    else:
        line = f"error: {message}"
    is_repeated = _is_in_summary(line) and status == WRONG and _is_set("LOCAL_RANK")
    processes = sys.modules.get("torch.distributed")
    # each process of a group may meet other errors
    has_joined = processes and processes.is_available() and processes.is_initialized()
    if is_repeated and not has_joined:
        return status  # the machine's first process prints the same
    if debug and not is_interrupted:
        _aloud("".join(traceback.format_exception(error)).rstrip("\n"))
    try:
        if as_json:
            document({"error": {"type": type(error).__name__, "message": message}})
        else:
            _aloud(line)
    except OSError:  # stdout is full
        _aloud(line)
    return status


def _is_set(variable: str) -> bool:
    """True if a variable of the environment is neither empty nor 0."""
    return os.environ.get(variable, "0") not in ("", "0")


def _is_in_summary(line: str) -> bool:
    """True if torchrun will end with this line, after its own traceback."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return False
    from ..io.writing import save_page

    record = {"message": {"message": line, "extraInfo": {"timestamp": int(time.time())}}}
    with suppress(GraphAttnError):
        save_page(file, json.dumps(record))
        return True
    return False


def _aloud(line: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):
            say(line, sys.stderr)


def _described(error: Exception | Interrupted) -> tuple[int, str]:
    if isinstance(error, Interrupted):
        return int(str(error.code)), str(error)
    if isinstance(error, typer.Abort):
        return INTERRUPTED, "interrupted"
    if isinstance(error, BackendError | ExactnessError):  # with a reason on each line
        return WRONG, str(error)
    if isinstance(error, GraphAttnError):
        return WRONG, one_line(str(error))  # whatever files are called
    usage = getattr(error, "format_message", None)  # of click, or of the copy of it inside typer
    if usage is not None:
        see = ""
        if getattr(error, "ctx", None) is not None:
            see = f"; see {error.ctx.command_path} --help"  # type: ignore[attr-defined]
        return WRONG, one_line(usage().rstrip(".")) + see
    if isinstance(error, ModuleNotFoundError):
        line = _line_of_a_user(error)
        missing = not_installed(error)
        if line and error.name:
            # more often a file beside it than a package
            name = one_line(error.name.partition(".")[0])
            return WRONG, (
                f"{line}: needs {name}, and no {name}.py is beside it or in the folder above, nor "
                "is such a package installed; copy it there, or install it"
            )
        if missing:
            return WRONG, str(missing)
    if isinstance(error, OSError):
        return WRONG, str(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        size = re.search(r"tried to allocate (\d+) bytes", str(error))
        if size:
            size_note = f", it takes {int(size[1]):,} bytes"
        else:
            size_note = ""
        return (
            WRONG,
            f"not enough memory for this graph{size_note}; graphattn explain prints what each "
            "backend needs",
        )
    if line := _line_of_a_user(error):
        return WRONG, f"{line}: {type(error).__name__}: {one_line(str(error))}"
    message = (
        f"unexpected {type(error).__name__}: {error}; this is a fault of graphattn, --debug "
        "shows where"
    )
    return UNEXPECTED, message


def _line_of_a_user(error: Exception) -> str:
    """File and line of a user, such as a study, that raised an error; "" if this package did."""
    package = Path(__file__).parents[1]
    libraries = {Path(path) for path in sysconfig.get_paths().values()}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path == package / "lazy.py":  # a name that this package does not have
            continue
        if path.is_relative_to(package):
            return ""
        if path.is_file() and not any(map(path.is_relative_to, libraries)):
            return f"{one_line(frame.filename)}:{frame.lineno}"
    return ""
