"""Output to a terminal: text that any encoding can hold, tables, progress, one JSON document."""

import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import OptionError, need_extra, singular

Document = dict[str, Any]
"""Values by name, as a command prints them in JSON."""
#: Of :func:`graphattn.viz.plot`; others of matplotlib's are for photographs or for printers.
PICTURES = (".png", ".pdf", ".svg")
BLOCKS = "█·░▒▓"
_PLAIN = str.maketrans(BLOCKS, "#.-+%")
# control characters, and those that change the order of text, in names from files
_CONTROLS = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (
        *range(32),
        *range(127, 160),
        0x61C,
        *range(0x200E, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    )
}
_LINES = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}
_LONG = 3.0  # seconds after which a line is worth it without a terminal
_LONGEST = 255  # bytes of a file's name
CLOSED = 141  # exit status where stdout has no reader, as of a program that SIGPIPE ends


def one_line(name: str) -> str:
    """The name of a file with its line breaks and other control characters escaped.

    Example:
        >>> print(one_line("a\\nb.npy"))
        a\\x0ab.npy
    """
    return name.translate(_CONTROLS)


def is_terminal() -> bool:
    """True if stderr is one; it may be closed."""
    return sys.stderr is not None and sys.stderr.isatty()


def say(text: str = "", stream: Any = None, *, styled: bool = False) -> None:
    """Print, with ``#`` and ``.`` in place of blocks where the encoding lacks them.

    Controls of a terminal are spelled out, unless the text is ``styled`` by this program.
    """
    if not styled:
        text = singular(text.translate(_LINES))
    if stream is None:
        stream = sys.stdout
    if stream is None:  # closed by the caller
        return
    try:
        stream.write(f"{encodable(text, stream.encoding or 'utf-8')}\n")
        stream.flush()
    except BrokenPipeError:
        close_quietly()


def close_quietly() -> None:
    """End without output: stdout has no reader."""
    # or Python complains when it flushes at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(CLOSED)


def encodable(text: str, encoding: str) -> str:
    """``text`` in characters that ``encoding`` has."""
    try:
        BLOCKS.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def fitting(text: str) -> str:
    """``text`` in characters that stdout has."""
    return encodable(text, getattr(sys.stdout, "encoding", None) or "utf-8")


def document(content: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    say(json.dumps(content, indent=2, allow_nan=False), styled=True)


def console(stream: Any = None) -> Any:
    """A rich console that prints text as it is."""
    from rich.console import Console

    if stream is None:
        stream = sys.stdout
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def rendered(*parts: Any) -> None:
    """Print what rich can draw."""
    terminal = console()
    with terminal.capture() as captured:
        for part in parts:
            terminal.print(part)
    say("\n".join(line.rstrip() for line in captured.get().splitlines()), styled=True)


def table(rows: Iterable[tuple[str, ...]]) -> Any:
    """Columns without lines; the first is a label."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 3, 0, 0))
    for i, row in enumerate(rows):
        if i == 0:
            for column in range(len(row)):
                grid.add_column(style="bold" if column == 0 else None, overflow="fold")
        grid.add_row(*row)
    return grid


def mask_lines(drawing: str, width: int | None = None) -> str:
    """A text mask without the blanks between its cells where they do not fit."""
    if width is None:
        width = console().width
    lines = drawing.splitlines()
    cells = [line for line in lines if set(line) <= {*BLOCKS, " "}]
    if max(map(len, cells), default=0) <= width:
        return drawing
    return "\n".join(line[::2] if line in cells else line for line in lines)


@contextmanager
def step(description: str) -> Iterator[Callable[[str], None]]:
    """Announce long work on stderr: a clock on a terminal, elsewhere one line once it takes long.

    Yields a function that shows the current part of it, beside the clock alone.
    """
    description = one_line(description)
    if is_terminal():
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn("line"),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        task = encodable(description, sys.stderr.encoding or "utf-8")
        with Progress(
            *columns, console=console(sys.stderr), transient=True, redirect_stdout=False
        ) as progress:
            clock = progress.add_task(task, total=None)
            yield lambda part: progress.update(clock, description=f"{task}: {part}")
        return
    if sys.stderr is None:  # closed by the caller
        yield lambda part: None
        return
    timer = threading.Timer(_LONG, say, (f"graphattn: {description} ...", sys.stderr))
    timer.daemon = True
    timer.start()
    try:
        yield lambda part: None
    finally:
        timer.cancel()


@contextmanager
def warnings_in_lines() -> Iterator[None]:
    """Python's warnings on stderr, a line each, the same one once."""
    said = set()

    def show(message: object, *where: object, **more: object) -> None:
        line = f"warning: {one_line(str(message))}"
        if line not in said:
            say(line, sys.stderr)
        said.add(line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def check_picture(out: str, endings: tuple[str, ...] = PICTURES) -> None:
    """Refuse a picture that could not be written at the end."""
    from importlib.util import find_spec

    check_file("--out", out, endings)
    if find_spec("matplotlib") is None:
        raise need_extra("matplotlib", "plot")


def check_file(flag: str, path: str, endings: tuple[str, ...] = ()) -> None:
    """Refuse a file that cannot be written, or a pipe, on which a writer would block."""
    if endings and Path(path).suffix.lower() not in endings:
        raise OptionError(f"{flag} must end in {' or '.join(endings)}, got {path}")
    if not _can_be_written(path):
        raise OptionError(f"{flag}: {path} is no file in a folder that can be written to")


def _can_be_written(path: str) -> bool:
    folder, name = os.path.split(path)
    if "\0" in path or len(os.fsencode(name)) > _LONGEST:
        return False
    if os.path.exists(path):
        return os.path.isfile(path) and os.access(path, os.W_OK)
    if not folder:
        folder = "."
    return os.path.isdir(folder) and os.access(folder, os.W_OK)
