"""Results on disk: one line of JSON for each trial, appended, never rewritten."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..arguments import shown
from ..errors import LoaderError
from ..io.locks import locked
from ..io.reading import fault
from ..io.writing import replace_file
from ..printed import counted

Entry = dict[str, Any]
"""Values by name, as JSON has them: a trial, a plan, a part of one, or a line of a table."""
TRIALS, PLAN, LOCK = "trials.jsonl", "plan.json", ".lock"
ANEW, FIXED = "drawn by each seed", "the same for all seeds"
"""Test sets, as a plan has them."""
# what every line has; one with a number also:
_OF_TRIAL = (
    "key",
    "comparison",
    "arm",
    "positions",
    "seed",
    "state",
)
_OF_RESULT = ("answers", "initial", "parameters", "position_parameters")
_HASH, _TAKEN_OUT = "hash", "taken_out"
_MOST_KEPT = 2_000  # bytes of a line that was taken out
_PLAN_FORM = "plan 1"  # another one wherever what a page reads of a plan is another


#: Bounds of the numbers of a line, which are None where training diverged.
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("accuracy", "macro_f1", "ap", "train_accuracy"), (0.0, 1.0)),
    **dict.fromkeys(("bits", "mae", "cpu_s", "rate"), (0.0, math.inf)),
    **dict.fromkeys(("seed", "answers", "parameters", "position_parameters"), (0.0, math.inf)),
    "r2": (-math.inf, 1.0),
}


class Records:
    """The trials of a folder by key.

    The latest line of a key counts; a line cut off by a crash does not.

    Each line has a hash of itself and of the hash before: ``broken`` are the numbers of lines whose
    hash is another, as a line was changed, added or removed by hand. ``notes`` are those that
    :func:`take_out_refused` wrote.

    Args:
        folder: Where they are.
        fault: The reason why a line is none of these, or ""; of trials by default.
    """

    def __init__(self, folder: Path, fault: Callable[[Any], str] | None = None) -> None:
        self.path = folder / TRIALS
        self.of_key: dict[str, Entry] = {}
        self.failures = 0
        self.chain = list[str]()  # the hash of each line
        # numbers of lines
        self.broken = list[int]()
        self.notes = list[int]()
        for number, line in enumerate(_lines(self.path), 1):
            reason, record = _parsed(line, fault or fault_of)
            if reason:
                raise LoaderError(
                    f"{self.path}: line {number} is {reason}; it was written by something else. "
                    "Try: another folder, or run the study again, which takes the line out and "
                    "runs its trial."
                )
            stored_hash = record.pop(_HASH, None)
            # behind a note its chain is not known
            if stored_hash != _hash(self.last, record) and number - 1 not in self.notes:
                self.broken.append(number)
            self.chain.append(stored_hash if isinstance(stored_hash, str) else self.last)
            if _TAKEN_OUT in record:
                self.notes.append(number)
            else:
                self.of_key[record["key"]] = record
                self.failures += record["state"] == "failed"

    @property
    def last(self) -> str:
        """Hash of the last line; empty without one."""
        if self.chain:
            return self.chain[-1]
        return ""

    @property
    def end(self) -> Entry:
        """Number of lines and hash of the last one, as a plan has them."""
        return {"lines": len(self.chain), _HASH: self.last}

    def reach(self, end: Entry | None) -> bool:
        """True if the lines up to an end that was kept are there, in its chain."""
        if not end or end["lines"] == 0 or end["lines"] in self.notes:
            return True
        return self.chain[end["lines"] - 1 : end["lines"]] == [end[_HASH]]

    def cautions(self, end: Entry) -> list[str]:
        """Lines that were changed, lost, or taken out, in words; ``end`` as a plan has it."""
        texts = []
        changed = f"{TRIALS} was changed by hand: "
        if self.broken:
            more = " and more" * (len(self.broken) > 5)
            lines = ", ".join(map(str, self.broken[:5]))
            texts.append(f"{changed}the hash is another at line {lines}{more}")
        if not self.reach(end):
            texts.append(f"{changed}it had {end['lines']} lines, the last of hash {end['hash']}")
        if self.notes:
            lines = counted(len(self.notes), "line")
            texts.append(f"{lines} taken out of {TRIALS}, which held no trial")
        return texts

    def done(self, key: str) -> bool:
        """True if a trial has a number and need not run; one that failed is tried again."""
        return key in self.of_key and self.of_key[key]["state"] != "failed"

    def append(self, record: Entry) -> None:
        """Write a line and bring it to the disk; a line that was cut off is removed first."""
        record = plain(json.dumps(record, default=as_json))
        record.pop(_HASH, None)
        sealed = {**record, _HASH: _hash(self.last, record)}
        with writing(self.path):
            self._write(f"{json.dumps(sealed)}\n".encode())
        self.chain.append(sealed[_HASH])
        self.of_key[record["key"]] = record
        self.failures += record["state"] == "failed"

    def _write(self, text: bytes) -> None:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(handle).st_size
            cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            if cut:
                last = self.path.read_bytes().rfind(b"\n") + 1
                os.ftruncate(handle, last)
            line = memoryview(text)
            while line:  # a disk that is nearly full takes a part, and the next time refuses
                line = line[os.write(handle, line) :]
            os.fsync(handle)
        finally:
            os.close(handle)


def _lines(path: Path) -> list[bytes]:
    """Lines with text; what follows the last newline was cut off, and is run again."""
    if path.exists():
        return [line for line in path.read_bytes().split(b"\n")[:-1] if line.strip()]
    return []


def _parsed(line: bytes, fault: Callable[[Any], str]) -> tuple[str, Entry]:
    """The reason why a line is no trial and no note of one, or ""; and its content."""
    record: Any = None
    with suppress(ValueError, RecursionError):
        record = plain(line)
    if record is None:
        return "no JSON", {}
    return "" if isinstance(record, dict) and _TAKEN_OUT in record else fault(record), record


def take_out_refused(folder: Path) -> None:
    """Replace each line that is no trial by a note, and continue the chain of hashes behind it."""
    lines = _lines(folder / TRIALS)
    last = ""
    refused = False
    for number, line in enumerate(lines):
        reason, record = _parsed(line, fault_of)
        if reason:
            note = {_TAKEN_OUT: line[:_MOST_KEPT].decode(errors="replace"), "because": reason}
            record = {**note, _HASH: _hash(last, note)}
            lines[number] = json.dumps(record).encode()
            refused = True
        last = record.get(_HASH, last)
    if refused:
        replace_file(
            folder / TRIALS, lambda file: file.write(b"".join(line + b"\n" for line in lines))
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors of a disk that is full, or may not be written to, in words.

    Raises:
        LoaderError: If there is one.
    """
    try:
        yield
    except OSError as error:
        raise LoaderError(
            f"{path} cannot be written: {error.strerror or error}. Trials that have ended are "
            "kept, and the same call goes on. Try: make room, or check folder and rights."
        ) from None


def _hash(before: str, record: Entry) -> str:
    """The hash of a line and, through the hash before it, of all lines before."""
    return hashlib.sha256(f"{before}{json.dumps(record)}".encode()).hexdigest()[:16]


def plain(line: str | bytes) -> Entry:
    """A line with None for NaN and infinity, which JSON lacks: there training diverged."""
    record: Entry = json.loads(line, parse_constant=lambda name: None)
    return record


def as_json(value: Any) -> Any:
    """A number of numpy or of torch as Python's, for JSON: 64 is 64, whichever library made it."""
    if getattr(value, "shape", None) != ():
        raise TypeError(f"{type(value).__name__} is nothing that JSON holds")
    return value.item()


def fault_of(record: Any) -> str:
    """The reason why a line is no trial; empty if it is one."""
    if not isinstance(record, dict):
        return "no trial"
    names = _OF_TRIAL if record.get("state") == "failed" else (*_OF_TRIAL, *_OF_RESULT)
    if "r2" not in record and names != _OF_TRIAL:
        names = (*names, "accuracy", "bits")
    missing = [name for name in names if name not in record]
    if missing:
        return f"no trial, without {missing[0]!r}"
    if record["state"] not in ("done", "capped", "failed"):
        return f"no trial: its state must be done, capped or failed, got {shown(record['state'])}"
    if not isinstance(record.get("error", ""), str):
        return f"no trial: its error must be text, got {shown(record['error'])}"
    for name, (low, high) in _RANGES.items():
        value = record.get(name)
        if value is None:
            continue
        if type(value) not in (int, float) or not low <= value <= high:
            return f"no trial: its {name} must be from {low:g} to {high:g}, got {shown(value)}"
    return ""


def read_plan(folder: Path) -> Entry | None:
    """The plan that a study wrote before its first trial; None where none was started.

    Raises:
        LoaderError: If it is no plan of a study.
    """
    path = folder / PLAN
    if not path.exists():
        return None
    plan: Any = None
    with suppress(ValueError, RecursionError):
        plan = json.loads(path.read_bytes())
    if not isinstance(plan, dict) or plan.pop(_HASH, None) != _hash(_PLAN_FORM, plan):
        raise fault(
            path,
            "a plan of a study as it was written",
            "one that was changed or cut off, or is of another version",
            "get the file back, or remove it; the trials beside it stay, and the same call "
            "plans them again, with all claims marked as late",
        )
    return plan


def write_plan(folder: Path, plan: Entry) -> None:
    """Put it in place whole, with a hash of itself."""
    plan = json.loads(json.dumps(plan, allow_nan=False, default=as_json))
    text = json.dumps({**plan, _HASH: _hash(_PLAN_FORM, plan)}, indent=1)
    replace_file(folder / PLAN, lambda file: file.write(text.encode()))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder that one study at a time writes to.

    Raises:
        OptionError: If another process is at it.
    """
    with writing(folder / LOCK):
        (folder / LOCK).touch()
    with locked(folder / LOCK, f"out: another process runs a study in {folder}; wait for it"):
        yield
