"""The file of this machine's rates: the measured speed of each backend at each kind of work."""

import json
import os
import platform
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ..errors import OptionError
from ..graph.modes import lru_cache

#: Rates by backend: its ``call_ms``, ``training_factor`` and the kinds of its ``ns``.
Rates = dict[str, dict[str, float]]
_changes: list[str] = []
"""Changes of the rates in this process: dates of files written, and kinds of work tried."""
_tried: Rates = {}
"""Rates that :func:`tried` sets in place of measured ones."""


def path(device: str = "cpu") -> Path:
    """The file of measured rates: below ``GRAPHATTN_CACHE``, ``XDG_CACHE_HOME`` or ``~/.cache``."""
    if device == "cpu":
        name = "rates.json"
    else:
        name = f"rates-{device}.json"
    folder = os.environ.get("GRAPHATTN_CACHE")
    if folder:
        return Path(folder) / name
    return _user_cache() / "graphattn" / name


def _user_cache() -> Path:
    """The folder of the user's caches."""
    folder = os.environ.get("XDG_CACHE_HOME")
    if folder:
        return Path(folder)
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # a user without a home directory, as in some containers
        return Path(os.devnull)


def processor() -> str:
    """The model name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next(
                line.partition(":")[2].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine(device: str = "cpu") -> dict[str, str | int | None]:
    """The properties on which rates depend: rates measured under others are not used."""
    if device == "cpu":
        return {"cpu": processor(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_name()
    else:
        gpu = None
    return {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda}


def measured_rates(device: str = "cpu") -> Rates:
    """The rates measured on this machine; empty if there are none."""
    folders = map(os.environ.get, ("GRAPHATTN_CACHE", "XDG_CACHE_HOME", "HOME"))
    rates = _read_rates(torch.get_num_threads(), device, *folders)
    if not any(_tried.values()):
        return rates
    return {name: {**rates.get(name, {}), **_tried.get(name, {})} for name in {*rates, *_tried}}


@contextmanager
def tried(backend: str, kind: str, ns: float = 1e-30) -> Iterator[None]:
    """A context in which a kind of a backend's work costs nothing, or ``inf`` to avoid it."""
    before = _tried.get(backend, {})
    _changes.append(kind)
    _tried[backend] = {**before, kind: ns}
    try:
        yield
    finally:
        _changes.append(kind)
        _tried[backend] = before


def measured(device: str = "cpu") -> bool:
    """True if backends use rates measured on this machine."""
    return bool(measured_rates(device))


def revision() -> tuple[Hashable, ...]:
    """A value that changes whenever the rates may have changed; much cheaper than reading them."""
    return torch.get_num_threads(), len(_changes)


@lru_cache(8)
def _read_rates(threads: int, device: str, *folders: str | None) -> Rates:
    try:
        content = json.loads(path(device).read_text(encoding="utf-8"))
        values = {
            name: {k: float(v) for k, v in rate.items()} for name, rate in content["rates"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    positive = all(0 < v < float("inf") for rates in values.values() for v in rates.values())
    if positive and content.get("machine") == machine(device):
        return values
    return {}


def keep(rates: Rates, date: str, device: str = "cpu") -> Path:
    """Write the rates of this machine, or of its first GPU, and use them from now on."""
    file = path(device)
    text = json.dumps({"machine": machine(device), "date": date, "rates": rates}, indent=1)
    partial = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise OptionError(
            f"cannot write {file}: {error.strerror or error}; set GRAPHATTN_CACHE to a folder "
            "that can be written to"
        ) from error
    _read_rates.cache_clear()
    _changes.append(date)
    return file
