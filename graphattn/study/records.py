"""Results on disk: one line of JSON for each trial, appended, never rewritten."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import LoaderError, OptionError
from ..interop.files._replace import replace_file

TRIALS, PLAN, LOCK = "trials.jsonl", "plan.json", ".lock"


class Records:
    """The trials of a folder by key; the latest line of a key counts, and a line cut off by a crash does not."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TRIALS
        self.of_key: dict[str, dict[str, Any]] = {}
        self.failures = 0
        for line in self._lines():
            self.of_key[line["key"]] = line
            self.failures += line["state"] == "failed"

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                if line:
                    yield plain(line)
            except ValueError:
                if number < len(lines):  # only the last one can have been cut off, before a newline
                    raise LoaderError(
                        f"{self.path}: line {number} is no JSON; it was written by something else. Try: another folder."
                    ) from None

    def done(self, key: str) -> bool:
        """Whether a trial need not run: it has a number. One that failed is tried again."""
        return key in self.of_key and self.of_key[key]["state"] != "failed"

    def append(self, record: dict[str, Any]) -> None:
        """Write a line and bring it to the disk; a line that was cut off is removed first."""
        record = plain(json.dumps(record))
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(handle).st_size
            cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            if cut:
                last = self.path.read_bytes().rfind(b"\n") + 1
                os.ftruncate(handle, last)
            os.write(handle, f"{json.dumps(record)}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        self.of_key[record["key"]] = record
        self.failures += record["state"] == "failed"


def plain(line: str | bytes) -> dict[str, Any]:
    """What a line holds, with None for NaN and infinity, which JSON lacks: where training diverged."""
    found: dict[str, Any] = json.loads(line, parse_constant=lambda name: None)
    return found


def read_plan(folder: Path) -> dict[str, Any] | None:
    """What a study wrote before its first trial; None where none was started.

    Raises:
        LoaderError: If it is no plan of a study.
    """
    path = folder / PLAN
    if not path.exists():
        return None
    try:
        plan = json.loads(path.read_text())
        return plan if plan["study"] and plan["comparisons"] is not None else None
    except (ValueError, KeyError, TypeError) as error:
        raise LoaderError(f"{path}: expected a plan of a study, got {error!r}. Try: another folder.") from None


def write_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Put it in place whole."""
    text = json.dumps(plan, indent=1, allow_nan=False)
    replace_file(folder / PLAN, lambda file: file.write(text.encode()))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder that one study at a time writes to.

    Raises:
        OptionError: If another process is at it.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OptionError(f"out: another process runs a study in {folder}; wait for it") from None
        yield
    finally:
        os.close(handle)
