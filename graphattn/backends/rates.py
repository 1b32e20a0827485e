"""How fast this machine does each kind of work: what the chooser predicts with. Measured once, kept in a file."""

import functools
import json
import os
import platform
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from ..errors import OptionError


@dataclass(frozen=True)
class Rates:
    """Nanoseconds per number: a pair or an edge, times heads, times D + D_v. The defaults are two cores of a server.

    ``call`` is what a call takes on a graph of a few nodes, in milliseconds; ``training`` is forward and backward
    together over the forward pass.
    """

    full: float = 0.015  # dense, every pair
    masked: float = 0.02  # dense, with a mask
    written: float = 0.08  # dense or tiles, with the scores written out
    tiles: float = 0.016  # a pair of a large tile
    edges: float = 0.027
    message_passing: float = 3.0
    dense_call: float = 0.1
    tiles_call: float = 0.4
    edges_call: float = 0.2
    message_passing_call: float = 1.0
    dense_training: float = 3.3
    tiles_training: float = 3.5
    edges_training: float = 5.0
    message_passing_training: float = 2.2


def path() -> Path:
    """Where the measured rates are kept: below ``GRAPHATTN_CACHE``, ``XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get("GRAPHATTN_CACHE")
    if own:
        return Path(own) / "rates.json"
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home, as in some containers
        folder = Path(os.devnull)
    return folder / "graphattn" / "rates.json"


def processor() -> str:
    """The processor's model, as the system names it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine() -> dict[str, str | int]:
    """What rates depend on; those of another machine, torch or number of threads are not used."""
    return {"cpu": processor(), "torch": torch.__version__, "threads": torch.get_num_threads()}


def rates() -> Rates:
    """This machine's rates if they were measured, else the defaults."""
    return _found() or Rates()


def measured() -> bool:
    """Whether :func:`rates` are this machine's own."""
    return _found() is not None


def _found() -> Rates | None:
    return _kept(torch.get_num_threads(), *map(os.environ.get, ("GRAPHATTN_CACHE", "XDG_CACHE_HOME", "HOME")))


@functools.lru_cache(maxsize=8)
def _kept(threads: int, *folders: str | None) -> Rates | None:
    """What the file says of this machine; None if it says nothing that can be used."""
    try:
        found = json.loads(path().read_text(encoding="utf-8"))
        values = {field.name: float(found["rates"][field.name]) for field in fields(Rates)}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    sound = found.get("machine") == machine() and all(0 < value < float("inf") for value in values.values())
    return Rates(**values) if sound else None


def keep(found: Rates, date: str) -> Path:
    """Write the rates of this machine, and use them from now on."""
    where = path()
    text = json.dumps({"machine": machine(), "date": date, "rates": asdict(found)}, indent=1)
    partial = where.with_suffix(f".{os.getpid()}")
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(where)
    except OSError as error:
        raise OptionError(
            f"cannot write {where}: {error.strerror or error}; set GRAPHATTN_CACHE to a folder that can be written to"
        ) from error
    _kept.cache_clear()
    return where


def training(backend: str) -> float:
    """Forward and backward together, over the forward pass of a backend; parts are bound by their edges."""
    return float(getattr(rates(), f"{'edges' if backend == 'parts' else backend}_training"))
