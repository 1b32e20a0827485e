"""``graphattn doctor``: versions, extras, devices, and the exactness of every backend."""

import os
import platform
import re
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import OptionError
from ..versions import VERSION, version_of
from .options import Debug, Json
from .output import Document, document, rendered, say, step, table

_ALWAYS = ("torch", "torch-geometric", "llvmlite", "numba")  # requirements of attention
Versions = dict[str, str | None]
"""Of packages by name; None where one is missing."""
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*?)\s*(?:;.*extra == ['\"](\w+)['\"])?")


def doctor(
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Measure this machine for the choice of backends, and keep the result.",
        ),
    ] = False,
    device: Annotated[
        str, typer.Option("--device", help="What --calibrate measures: cpu or cuda.")
    ] = "cpu",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check this installation, or measure this machine.

    Versions, optional extras, devices, and every backend against plain dense attention. Exit status
    0 if all is well, 1 if not. With --calibrate, some seconds of measurements instead, which the
    choice of backends uses from then on.
    """
    if calibrate:
        _calibrate(json, device)
        return
    if device != "cpu":
        raise OptionError(
            "device is what --calibrate measures; without it, doctor looks at every device"
        )
    with step("checking every backend"):
        checks = _self_check()
    needed, extras = _packages()
    state: Document = {
        "command": "doctor",
        "ok": all(check["ok"] for check in checks) and None not in needed.values(),
        "versions": {"graphattn": VERSION, "python": platform.python_version(), **needed},
        "extras": extras,
        "platform": {"system": platform.platform(), "executable": sys.executable, **_threads()},
        "devices": _devices(),
        "self_check": checks,
        "cache": _cache(),
        "rates": _rates(),
        "advice": _advice(needed, extras),
    }
    if json:
        document(state)
    else:
        _print(state)
    if not state["ok"]:
        raise typer.Exit(1)
    raise typer.Exit(0)


def _calibrate(json: bool, device: str) -> None:
    """Measure the rates of a device, keep them, and print them."""
    from ..arguments import device as available
    from ..backends import BACKENDS
    from ..backends.rates import keep, machine
    from ..bench.calibrate import calibrate

    kind = available(device, numbers=True).type
    with step("measuring this machine; leave it alone for some seconds") as progress:
        measurements = calibrate(progress, device)
    where = keep(measurements, datetime.now(UTC).isoformat(timespec="seconds"), kind)
    if json:
        document(
            {
                "command": "doctor",
                "rates": measurements,
                "machine": machine(kind),
                "path": str(where),
            }
        )
        return
    say(
        "rates: ns per number (a pair or an edge, times heads, times D + D_v); ms per call; "
        "training over forward"
    )
    built_in = {name: backend.built_in(kind) for name, backend in BACKENDS.items()}
    rows = [
        (f"  {backend} {name}", f"{value:.3g}", f"built in {built_in[backend].get(name, 1.0):.3g}")
        for backend, rates in measurements.items()
        for name, value in rates.items()
    ]
    rendered(table(rows))
    say(f"\nkept in {where}, for the same {', '.join(machine(kind))}")
    if hasattr(os, "getloadavg"):
        busy = os.getloadavg()[0]
    else:
        busy = 0.0
    if busy > 0.6 * (os.cpu_count() or 1):
        say(f"the machine was busy (load {busy:.1f}): measure again when it is not")


def _rates() -> Document:
    """The rates of this machine that the choice of backends uses."""
    from ..backends.rates import measured, path

    if measured():
        words = f"measured here, in {path()}"
    else:
        words = "built in; graphattn doctor --calibrate measures this machine"
    return {"measured": measured(), "path": str(path()), "source": words}


def _packages() -> tuple[Versions, dict[str, Versions]]:
    """Versions of what is required, and of each extra's own packages; ``None`` where missing."""
    needed: Versions = {}
    extras: dict[str, Versions] = {}
    try:
        lines = metadata.requires("graphattn") or ()
    except metadata.PackageNotFoundError:  # a working tree, not installed
        return {name: version_of(name) for name in _ALWAYS}, {}
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        if match is None or match[1].lower() == "graphattn":  # an extra that only gathers others
            continue
        if match[3] is None:
            where = needed
        else:
            where = extras.setdefault(match[3], {})
        where[match[1]] = version_of(match[1])
    # the metadata of a working tree are those of its installation, and may lack later requirements
    return {**{name: version_of(name) for name in _ALWAYS}, **needed}, extras


def _cache() -> Document:
    """Folder of Numba's code, with its bytes and number of functions."""
    try:
        from ..compiled import folder
    except ModuleNotFoundError:
        return {"path": None, "functions": 0, "bytes": 0}

    path = folder()
    files: list[Path] = []
    if path is not None:
        files += path.glob("*.nbc")
    return {
        "path": None if path is None else str(path),
        "functions": len(files),
        "bytes": sum(file.stat().st_size for file in files),
    }


def _threads() -> Document:
    import torch

    from ..bench.machine import machine
    from ..kernels.llvm.threads import kind_of_threads

    return {
        "cores": machine("cpu")["cores"],
        "torch_threads": torch.get_num_threads(),
        "kernels_run_on": kind_of_threads(),
    }


def _devices() -> list[Document]:
    import torch

    if not torch.cuda.is_available():
        return []
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [
        {
            "name": f"cuda:{i}",
            "model": p.name,
            "bytes": p.total_memory,
            "capability": f"{p.major}.{p.minor}",
        }
        for i, p in enumerate(properties)
    ]


def _self_check() -> list[Document]:
    """Every backend on a graph with an isolated target, a self-loop and a hub, on every device."""
    import torch

    from ..backends import BACKENDS
    from ..convert import from_edge_index
    from ..exactness import verify

    graph = from_edge_index(
        [[0, 1, 2, 3, 4, 1, 3], [0, 0, 0, 0, 0, 2, 3]], num_sources=5, num_targets=5, name="tiny"
    )
    places = ["cpu", *(device["name"] for device in _devices())]
    checks = []
    for place in places:
        for backend in BACKENDS:
            try:
                report = verify(
                    graph.to(place), backends=(backend,), dtypes=(torch.float64, torch.float32)
                )
                checks.append({"backend": backend, "device": place, **_judged(report)})
            except Exception as error:
                message = f"{type(error).__name__}: {error}"
                checks.append({"backend": backend, "device": place, "ok": False, "detail": message})
    return checks


def _judged(report: Any) -> Document:
    """The verdict on a backend; one that gives a reason not to run on this device is not wrong."""
    if report.worst is None and not any(refusal.fault for refusal in report.refusals):
        detail = "not run"
        if report.refusals:
            detail += f": {report.refusals[0].reasons[0]}"
        return {"ok": True, "detail": detail}
    detail = str(report)
    if report.ok:
        detail = f"largest error {report.worst.error:.1e}"
    return {"ok": report.ok, "detail": detail}


def _advice(needed: Versions, extras: dict[str, Versions]) -> list[str]:
    missing = [name for name, version in needed.items() if version is None]
    if missing:
        lines = [f"pip install {' '.join(missing)}"]
    else:
        lines = []
    for extra, packages in extras.items():
        absent = [name for name, version in packages.items() if version is None]
        if absent:
            lines.append(f"pip install 'graphattn[{extra}]' brings {', '.join(absent)}")
    return lines


def _compiled(cache: Document) -> str:
    held = f"{cache['functions']} functions, {cache['bytes'] / 2**20:.0f} MiB, in {cache['path']}"
    if cache["path"] is None:
        held = "nothing is kept on disk, every process compiles anew"
    return (
        f"{held} (set by NUMBA_CACHE_DIR): curvature, farthest points, hidden surfaces. The "
        "edges backend compiles in memory, at its first call with a dtype, 0.3 s forward and 0.4 s "
        "backward, and a head width that is new 0.1 s more"
    )


def _print(state: Document) -> None:
    say("versions")
    rendered(
        table([(f"  {name}", version or "MISSING") for name, version in state["versions"].items()])
    )
    say("\noptional")
    rows = [
        (f"  {name}", version or "missing", f"graphattn[{extra}]")
        for extra, packages in state["extras"].items()
        for name, version in packages.items()
    ]
    rendered(table(rows))
    system = state["platform"]
    say("\nmachine")
    devices = [
        (f"  {d['name']}", f"{d['model']}, {d['bytes'] / 2**30:.0f} GiB, {d['capability']}")
        for d in state["devices"]
    ]
    rendered(
        table(
            [
                ("  system", system["system"]),
                ("  python", system["executable"]),
                ("  cores", f"{system['cores']}, torch uses {system['torch_threads']} threads"),
                ("  kernels", f"run on {system['kernels_run_on']}"),
                *(devices or [("  cuda", "none")]),
                ("  compiled", _compiled(state["cache"])),
                ("  rates", state["rates"]["source"]),
            ]
        )
    )
    say("\nevery backend against its dense twin")
    checks: list[tuple[str, ...]] = []
    for c in state["self_check"]:
        verdict = "exact"
        if not c["ok"]:
            verdict = "WRONG"
        elif c["detail"].startswith("not run"):
            verdict = ""
        checks.append((f"  {c['backend']}", c["device"], verdict, c["detail"]))
    rendered(table(checks))
    for line in state["advice"]:
        say(f"\nto get what is missing: {line}")
    if state["ok"]:
        say("\nall is well")
    else:
        say("\nsomething is wrong: see above")
