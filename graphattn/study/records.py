"""Results on disk: one line of JSON for each trial, appended, never rewritten."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..arguments import shown
from ..errors import LoaderError, OptionError
from ..interop.files._replace import replace_file

TRIALS, PLAN, LOCK = "trials.jsonl", "plan.json", ".lock"
_OF_TRIAL = ("key", "comparison", "arm", "positions", "seed", "state")  # what every line has; one with a number also:
_OF_RESULT = ("accuracy", "bits", "answers", "initial", "parameters", "position_parameters")
_HASH = "hash"


def _is_number(value: Any, low: float, high: float = math.inf) -> bool:
    return type(value) in (int, float) and low <= value <= high


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


#: What a value of a line must be, and how to tell.
_MUST: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("key", "comparison", "arm", "positions", "initial", "error"), ("text", _is_text)),
    **dict.fromkeys(("seed", "answers", "parameters", "position_parameters"), ("a number of things", _is_count)),
    "state": ("done, capped or failed", lambda value: value in ("done", "capped", "failed")),
    "accuracy": ("from 0 to 1", lambda value: value is None or _is_number(value, 0, 1)),  # None where it diverged
    "bits": ("0 or more", lambda value: value is None or _is_number(value, 0)),
    "cpu_s": ("seconds", lambda value: _is_number(value, 0)),
    "rate": ("a learning rate", lambda value: _is_number(value, 0)),
    "validation": ("scores by rate", lambda value: isinstance(value, dict)),
    "probes": ("numbers by name", lambda value: isinstance(value, dict) and all(map(_is_probe, value.values()))),
}


def _is_probe(value: Any) -> bool:
    return all(one is None or _is_number(one, -math.inf) for one in (value if isinstance(value, list) else [value]))


_OF_PLAN: dict[str, tuple[str, ...]] = {
    "": ("study", "command", "identity", "seeds", "registered", "comparisons", "machine", "trials"),
    "registered": ("at", "trials_on_disk", "claims"),
    "trials": ("comparison", "arm", "positions", "examples", "budget", "steps", "seed", "draw", "key"),
    "comparisons": (
        *("arms", "checks", "warnings", "readout", "metric", "chance", "samples", "held", "nodes", "positions"),
        *("model", "training", "budgets", "costs", "baselines"),
    ),
    "arms": (
        *("kind", "of", "nodes", "edges", "degree_least", "degree_most", "depends_on_least", "depends_on_most"),
        *("layers_needed", "spectral_gap", "roots", "strong_components", "universal", "homophily", "operations"),
        *("reached", "ceiling", "bag"),
    ),
}
"""What a page is made of, by where it stands in a plan."""


class Records:
    """The trials of a folder by key; the latest line of a key counts, and a line cut off by a crash does not.

    Each line has a hash of itself and of the hash before, so that a line that was changed, added or removed by hand
    is known: ``broken`` are the numbers of lines whose hash is another.

    Args:
        folder: Where they are.
        fault_of: Why a line is no trial; empty if it is one.
    """

    def __init__(self, folder: Path, fault_of: Callable[[Any], str] | None = None) -> None:
        self.path, self._fault_of = folder / TRIALS, fault_of or _fault_of
        self.of_key: dict[str, dict[str, Any]] = {}
        self.failures = self.lines = 0
        self.last, self.broken = "", list[int]()
        for line in self._lines():
            self.of_key[line["key"]] = line
            self.failures += line["state"] == "failed"

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        *lines, _ = self.path.read_bytes().split(b"\n")  # what follows the last newline was cut off, and is run again
        for number, line in enumerate(lines, 1):
            if line.strip():
                reason, record = "no JSON", {}
                with suppress(ValueError, RecursionError):
                    record = plain(line)
                    reason = self._fault_of(record)
                if reason:
                    raise LoaderError(
                        f"{self.path}: line {number} is {reason}; it was written by something else. Try: another "
                        "folder, or remove the line: its trial is then run again."
                    )
                self.lines, found = number, record.pop(_HASH, None)
                if found != _hash(self.last, record):
                    self.broken.append(number)
                self.last = found if isinstance(found, str) else self.last
                yield record

    def done(self, key: str) -> bool:
        """Whether a trial need not run: it has a number. One that failed is tried again."""
        return key in self.of_key and self.of_key[key]["state"] != "failed"

    def append(self, record: dict[str, Any]) -> None:
        """Write a line and bring it to the disk; a line that was cut off is removed first."""
        record = plain(json.dumps(record, default=as_json))
        record.pop(_HASH, None)
        sealed = {**record, _HASH: _hash(self.last, record)}
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(handle).st_size
            cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            if cut:
                last = self.path.read_bytes().rfind(b"\n") + 1
                os.ftruncate(handle, last)
            line = memoryview(f"{json.dumps(sealed)}\n".encode())
            while line:  # a disk that is nearly full takes a part, and the next time refuses
                line = line[os.write(handle, line) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        self.last, self.lines = sealed[_HASH], self.lines + 1
        self.of_key[record["key"]] = record
        self.failures += record["state"] == "failed"


def _hash(before: str, record: dict[str, Any]) -> str:
    """Of a line, and through the hash before it of all lines before."""
    return hashlib.sha256(f"{before}{json.dumps(record)}".encode()).hexdigest()[:16]


def plain(line: str | bytes) -> dict[str, Any]:
    """What a line holds, with None for NaN and infinity, which JSON lacks: where training diverged."""
    found: dict[str, Any] = json.loads(line, parse_constant=lambda name: None)
    return found


def as_json(value: Any) -> Any:
    """A number of numpy or of torch as Python's, for JSON: 64 is 64, whichever library made it."""
    if getattr(value, "shape", None) != ():
        raise TypeError(f"{type(value).__name__} is nothing that JSON holds")
    return value.item()


def _fault_of(record: Any) -> str:
    """Why it is no trial; empty if it is one."""
    if not isinstance(record, dict):
        return "no trial"
    names = _OF_TRIAL if record.get("state") == "failed" else (*_OF_TRIAL, *_OF_RESULT)
    missing = [name for name in names if name not in record]
    if missing:
        return f"no trial, without {missing[0]!r}"
    for name, (what, holds) in _MUST.items():
        if name in record and not holds(record[name]):
            return f"no trial: its {name} must be {what}, got {shown(record[name])}"
    return ""


def read_plan(folder: Path) -> dict[str, Any] | None:
    """What a study wrote before its first trial; None where none was started.

    Raises:
        LoaderError: If it is no plan of a study.
    """
    path = folder / PLAN
    if not path.exists():
        return None
    try:
        plan: dict[str, Any] = json.loads(path.read_text(), parse_constant=lambda name: None)
        _check_plan(plan)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LoaderError(f"{path}: expected a plan of a study, got {error!r}. Try: another folder.") from None
    return plan


def _check_plan(plan: dict[str, Any]) -> None:
    """Refuse, with the error of what reads it, a plan from which no page could be made."""
    abouts = list(plan["comparisons"].values())
    arms = [arm for about in abouts for arm in about["arms"].values()]
    parts = {
        "": [plan],
        "registered": plan["registered"],
        "trials": plan["trials"],
        "comparisons": abouts,
        "arms": arms,
    }
    for where, names in _OF_PLAN.items():
        for part in parts[where]:
            itemgetter(*names)(part)
    for one in plan["trials"]:
        told = plan["comparisons"][one["comparison"]]["arms"][one["arm"]]
        if told["kind"] == "rewired" and told["ceiling"] is not None:
            told["ceilings"][one["seed"]][one["draw"]]
    if not plan["registered"]:
        raise ValueError("nothing was registered")


def write_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Put it in place whole."""
    text = json.dumps(plan, indent=1, allow_nan=False, default=as_json)
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
