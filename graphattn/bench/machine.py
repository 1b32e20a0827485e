"""Where and with what it was measured."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

from ..errors import OptionError
from .clock import is_cuda

PACKAGES = ("graphattn", "torch", "torch-geometric", "numba", "triton", "numpy")


def check_device(device: str) -> str:
    """``device`` as torch spells it.

    Raises:
        OptionError: If it is neither a CPU nor a CUDA device that is there.
    """
    try:
        where = torch.device(device)
    except RuntimeError:
        where = torch.device("meta")
    if where.type not in ("cpu", "cuda"):
        raise OptionError(f"device must be cpu, cuda, cuda:1 or the like, got {device!r}")
    if where.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (where.index or 0) >= count:
            raise OptionError(
                f"device is {device!r}, and torch {torch.__version__} finds {count or 'no'} CUDA devices here; "
                "use cpu, or a torch with CUDA on a machine with a GPU"
            )
    return str(where)


def machine(device: str) -> dict[str, Any]:
    """Processor, cores, system, versions, date, and how busy it is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "processor": _processor(),
        "cores": cores,
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
    }
    if is_cuda(device):
        properties = torch.cuda.get_device_properties(device)
        found |= {"gpu": properties.name, "gpu_bytes": properties.total_memory, "cuda": torch.version.cuda}
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
