"""The machine of a measurement: processor, versions, load, and free memory."""

import os
import platform
import sys
from datetime import UTC, datetime
from typing import Any

import torch

from ..backends.device import free_bytes
from ..backends.rates import processor
from ..versions import version_of

PACKAGES = ("graphattn", "torch", "torch-geometric", "llvmlite", "triton", "numpy")


def machine(device: str) -> dict[str, Any]:
    """Processor, cores, system, versions, date, and how busy it is."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    facts: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "processor": processor(),
        "cores": cores,
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {
            "python": platform.python_version(),
            **{name: version_of(name) for name in PACKAGES},
        },
    }
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "gpu": properties.name,
            "gpu_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
        }
    return facts


def heading(facts: dict[str, Any]) -> str:
    """The machine in one line, and a second one if it was busy."""
    versions = ", ".join(
        f"{name} {version}" for name, version in facts["versions"].items() if version
    )
    line = (
        f"{facts['date']}, {facts.get('gpu') or facts['processor']}, {facts['cores']} cores, "
        f"{versions}"
    )
    if facts["load_before"] > 0.5 * facts["cores"]:
        line += (
            f"\nthe machine was busy: load {facts['load_before']} on {facts['cores']} cores "
            "before the run"
        )
    return line


def too_large(subject: str, needed: int, device: str) -> list[str]:
    """The reason against ``needed`` bytes, if that is more than half of the free memory."""
    free = free_bytes(torch.device(device))
    if needed <= free // 2:
        return []
    return [
        f"{subject} would take about {needed / 1e9:,.1f} GB, and half of what is free is "
        f"{free / 2e9:,.1f} GB"
    ]


def limit_memory(device: str) -> None:
    """Limit the memory of this process, so that it fails before the system ends another one."""
    if sys.platform != "linux" or torch.device(device).type == "cuda":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (free_bytes(torch.device(device)) * 4 // 5, hard))
