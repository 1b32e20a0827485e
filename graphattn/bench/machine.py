"""Where and with what it was measured."""

import os
import platform
from datetime import UTC, datetime
from typing import Any

import torch

from ..backends.rates import processor
from ..versions import version_of
from .clock import is_cuda

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
    if is_cuda(device):
        properties = torch.cuda.get_device_properties(device)
        facts |= {"gpu": properties.name, "gpu_bytes": properties.total_memory, "cuda": torch.version.cuda}
    return facts
