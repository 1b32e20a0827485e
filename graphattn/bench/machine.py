"""Where and with what it was measured, and the memory that is left there."""

import os
import platform
import sys
from datetime import UTC, datetime
from typing import Any

import torch

from ..backends.rates import processor
from ..versions import version_of

PACKAGES = ("graphattn", "torch", "torch-geometric", "numba", "triton", "numpy")


def machine(device: str) -> dict[str, Any]:
    """Processor, cores, system, versions, date, and how busy it is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    facts: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "processor": processor(),
        "cores": cores,
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}},
    }
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {"gpu": properties.name, "gpu_bytes": properties.total_memory, "cuda": torch.version.cuda}
    return facts


def heading(facts: dict[str, Any]) -> str:
    """The machine in one line, and a second one if it was busy."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
    line = f"{facts['date']}, {facts.get('gpu') or facts['processor']}, {facts['cores']} cores, {versions}"
    if facts["load_before"] > 0.5 * facts["cores"]:
        line += f"\nthe machine was busy: load {facts['load_before']} on {facts['cores']} cores before the run"
    return line


def memory_bytes(device: str) -> int | None:
    """Bytes that can still be allocated; ``None`` where the system does not say."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def too_large(what: str, needed: int, device: str) -> list[str]:
    """The reason against ``needed`` bytes, if that is more than half of the free memory."""
    free = memory_bytes(device)
    if free is None or needed <= free // 2:
        return []
    return [f"{what} would take about {needed / 1e9:,.1f} GB, and half of what is free is {free / 2e9:,.1f} GB"]


def limit_memory(device: str) -> None:
    """Make an allocation that is too large fail in this process, before the system ends another one."""
    if sys.platform != "linux" or torch.device(device).type == "cuda":
        return
    import resource

    free, (soft, hard) = memory_bytes(device), resource.getrlimit(resource.RLIMIT_DATA)
    if free is not None and soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (free * 4 // 5, hard))
