"""The state of an installation: versions, extras, devices, and whether every backend is exact here."""

import os
import platform
import re
import sys
from importlib import metadata
from typing import Any

import typer

from .. import __version__
from .output import document, rendered, say, step, table

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*?)\s*(?:;.*extra == ['\"](\w+)['\"])?")


def doctor(json: bool) -> None:
    """Look, print, and exit with 1 if something is wrong."""
    with step("checking every backend"):
        checks = _self_check()
    needed, extras = _packages()
    found: dict[str, Any] = {
        "command": "doctor",
        "ok": all(check["ok"] for check in checks) and None not in needed.values(),
        "versions": {"graphattn": __version__, "python": platform.python_version(), **needed},
        "extras": extras,
        "platform": {"system": platform.platform(), "executable": sys.executable, **_threads()},
        "devices": _devices(),
        "self_check": checks,
        "cache": None,
        "advice": _advice(needed, extras),
    }
    if json:
        document(found)
    else:
        _print(found)
    raise typer.Exit(0 if found["ok"] else 1)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> tuple[dict[str, str | None], dict[str, dict[str, str | None]]]:
    """Versions of what is required, and of each extra's own packages; ``None`` where missing."""
    needed: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    try:
        lines = metadata.requires("graphattn") or ()
    except metadata.PackageNotFoundError:  # a working tree that nobody installed
        return {name: _version(name) for name in ("torch", "torch-geometric", "numba")}, {}
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        if match is None or match[1].lower() == "graphattn":  # an extra that only gathers others
            continue
        where = needed if match[3] is None else extras.setdefault(match[3], {})
        where[match[1]] = _version(match[1])
    return needed, extras


def _threads() -> dict[str, int]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"cores": cores, "torch_threads": torch.get_num_threads()}


def _devices() -> list[dict[str, Any]]:
    import torch

    if not torch.cuda.is_available():
        return []
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [
        {"name": f"cuda:{i}", "model": p.name, "bytes": p.total_memory, "capability": f"{p.major}.{p.minor}"}
        for i, p in enumerate(properties)
    ]


def _self_check() -> list[dict[str, Any]]:
    """Every backend on a graph with an isolated target, a self-loop and a hub, on every device."""
    import torch

    from ..backends import BACKENDS
    from ..interop import from_edge_index
    from ..verify import verify

    graph = from_edge_index([[0, 1, 2, 3, 4, 1, 3], [0, 0, 0, 0, 0, 2, 3]], num_sources=5, num_targets=5, name="tiny")
    places = ["cpu", *(device["name"] for device in _devices())]
    checks = []
    for place in places:
        for backend in BACKENDS:
            try:
                report = verify(graph.to(place), backends=(backend,), dtypes=(torch.float64, torch.float32))
                worst = report.worst
                detail = str(report) if not report.ok else f"largest error {worst.error:.1e}" if worst else ""
                checks.append({"backend": backend, "device": place, "ok": report.ok, "detail": detail})
            except Exception as error:
                message = f"{type(error).__name__}: {error}"
                checks.append({"backend": backend, "device": place, "ok": False, "detail": message})
    return checks


def _advice(needed: dict[str, str | None], extras: dict[str, dict[str, str | None]]) -> list[str]:
    lacking = [name for name, version in needed.items() if version is None]
    lines = [f"pip install {' '.join(lacking)}"] if lacking else []
    for extra, packages in extras.items():
        absent = [name for name, version in packages.items() if version is None]
        if absent:
            lines.append(f"pip install 'graphattn[{extra}]' brings {', '.join(absent)}")
    return lines


def _print(found: dict[str, Any]) -> None:
    say("versions")
    rendered(table([(f"  {name}", version or "MISSING") for name, version in found["versions"].items()]))
    say("\noptional")
    rows = [
        (f"  {name}", version or "missing", f"graphattn[{extra}]")
        for extra, packages in found["extras"].items()
        for name, version in packages.items()
    ]
    rendered(table(rows))
    here = found["platform"]
    say("\nmachine")
    devices = [
        (f"  {d['name']}", f"{d['model']}, {d['bytes'] / 2**30:.0f} GiB, {d['capability']}") for d in found["devices"]
    ]
    rendered(
        table(
            [
                ("  system", here["system"]),
                ("  python", here["executable"]),
                ("  cores", f"{here['cores']}, torch uses {here['torch_threads']} threads"),
                *(devices or [("  cuda", "none")]),
                ("  cache", "nothing is kept on disk"),
            ]
        )
    )
    say("\nevery backend against its dense twin")
    rendered(
        table(
            [
                (f"  {c['backend']}", c["device"], "exact" if c["ok"] else "WRONG", c["detail"])
                for c in found["self_check"]
            ]
        )
    )
    for line in found["advice"]:
        say(f"\nto get what is missing: {line}")
    say("\nall is well" if found["ok"] else "\nsomething is wrong: see above")
