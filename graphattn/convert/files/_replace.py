"""Files that are there whole or not at all: what was there before survives whatever goes wrong."""

import os
import secrets
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import GraphAttnError, LoaderError, OptionError
from ._guard import PathLike, file_name

_ONE_AT_A_TIME = threading.Lock()  # matplotlib takes fonts of a PDF and names in an SVG from globals alone


def replace_file(
    path: PathLike, write: Callable[[BinaryIO], object], error: type[GraphAttnError] = LoaderError
) -> None:
    """Write a file beside ``path``, bring it to the disk, then give it that name and the rights of the file before.

    A link stays, and the file that it leads to is replaced.

    Raises:
        LoaderError: If ``path`` is no regular file, or cannot be written; or the ``error`` that is given.
    """
    try:
        name = os.path.realpath(file_name(path))
        beside = os.path.join(os.path.dirname(name), f".{secrets.token_hex(8)}.tmp")
        mode = os.stat(name).st_mode if os.path.lexists(name) else None
        if mode is not None and not stat.S_ISREG(mode):
            raise error(f"{name}: expected a regular file, got a directory, pipe or device. Try: another path.")
        try:
            with open(beside, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                os.chmod(beside, stat.S_IMODE(mode))
            os.replace(beside, name)
        finally:
            if os.path.lexists(beside):
                os.unlink(beside)
        _sync(os.path.dirname(name))
    except (OSError, ValueError) as failure:
        if isinstance(failure, GraphAttnError):
            raise
        reason = getattr(failure, "strerror", None) or failure
        raise error(
            f"{file_name(path)}: expected a file that can be written, got: {reason}. Try: check folder and rights."
        ) from None


def remove_unfinished(folder: Path) -> None:
    """Remove what :func:`replace_file` was writing in a folder when its process was killed."""
    for file in folder.glob(f".{'[0-9a-f]' * 16}.tmp"):
        if file.is_file() and not file.is_symlink():
            file.unlink(missing_ok=True)


def save_page(path: PathLike, text: str) -> None:
    """Write text as UTF-8; names of files that are no UTF-8 with backslashes."""
    replace_file(path, lambda file: file.write(text.encode("utf-8", "backslashreplace")), OptionError)


def save_picture(path: PathLike, figure: Any, **options: Any) -> None:
    """Write a matplotlib ``Figure`` in the format that ``path`` ends with; the fonts of a PDF are TrueType, and no file
    says when it was written, so that the same figure is the same bytes."""
    from matplotlib import rc_context

    kind = Path(path).suffix.removeprefix(".").lower()
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    options["metadata"] = {**undated, **(options.get("metadata") or {})}
    with _ONE_AT_A_TIME, rc_context({"pdf.fonttype": 42, "svg.hashsalt": "graphattn"}):
        replace_file(path, lambda file: figure.savefig(file, format=kind, **options), OptionError)


def _sync(folder: str) -> None:
    """Bring the new name to the disk, where folders can be synchronised."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
