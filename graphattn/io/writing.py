"""Atomic writes of files: a file is replaced as a whole, or left as it was."""

import os
import secrets
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import GraphAttnError, LoaderError, OptionError
from .reading import PathLike, file_name

# matplotlib reads fonts of a PDF and names in an SVG from globals
_ONE_AT_A_TIME = threading.Lock()


def replace_file(
    path: PathLike, write: Callable[[BinaryIO], object], error: type[GraphAttnError] = LoaderError
) -> None:
    """Write a file beside ``path``, sync it, and rename it, with the old file's permissions.

    A link stays, and its target is replaced.

    Raises:
        LoaderError: If ``path`` is not a regular file, or cannot be written; or the given
            ``error``.
    """
    try:
        name = os.path.realpath(file_name(path))
        beside = os.path.join(os.path.dirname(name), f".{secrets.token_hex(8)}.tmp")
        mode = None
        if os.path.lexists(name):
            mode = os.stat(name).st_mode
            if not stat.S_ISREG(mode):
                raise error(
                    f"{name}: expected a regular file, got a directory, pipe or device. "
                    "Try: another path."
                )
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
        # sync the new name to disk, if folders can be synced
        if os.name == "posix":
            handle = os.open(os.path.dirname(name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except (OSError, ValueError) as failure:
        if isinstance(failure, GraphAttnError):
            raise
        reason = getattr(failure, "strerror", None) or failure
        raise error(
            f"{file_name(path)}: expected a file that can be written, got: {reason}. Try: check "
            "folder and rights."
        ) from None


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files of :func:`replace_file` in a folder, left by a killed process."""
    for file in folder.glob(f".{'[0-9a-f]' * 16}.tmp"):
        if file.is_file() and not file.is_symlink():
            file.unlink(missing_ok=True)


def save_page(path: PathLike, text: str) -> None:
    """Write text as UTF-8, with backslashes for names of files that are not UTF-8."""
    replace_file(
        path, lambda file: file.write(text.encode("utf-8", "backslashreplace")), OptionError
    )


def save_picture(path: PathLike, figure: Any, **options: Any) -> None:
    """Write a matplotlib ``Figure`` in the format of the ending of ``path``.

    Fonts of a PDF are TrueType, and files hold no time of writing, so that equal figures have equal
    bytes.
    """
    from matplotlib import rc_context

    kind = Path(path).suffix.removeprefix(".").lower()
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    metadata = options.get("metadata")
    if metadata is not None:
        undated = {**undated, **metadata}
    options["metadata"] = undated
    with _ONE_AT_A_TIME, rc_context({"pdf.fonttype": 42, "svg.hashsalt": "graphattn"}):
        replace_file(path, lambda file: figure.savefig(file, format=kind, **options), OptionError)
