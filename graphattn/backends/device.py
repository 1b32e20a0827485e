"""Availability of devices, kernels and memory, so that a lack is refused before anything runs."""

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

from ..graph.modes import lru_cache

OLDEST = (8, 0)  # compute capability that Triton supports
_MEMORY, _GROUPS = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
_UNKNOWN = 8 << 30  # free bytes assumed where the system does not report them


def ran_out_of_memory(error: Exception) -> bool:
    """True if a device, or this machine, ran out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "t allocate memory" in str(error)


def free_bytes(device: torch.device) -> int:
    """Free memory of a device in bytes; on Linux at most that of the control group."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        available = re.search(r"MemAvailable:\s+(\d+)", _MEMORY.read_text())
        if available:
            free = 1024 * int(available[1])
        else:
            free = _UNKNOWN
    except OSError:
        free = _UNKNOWN
    for limit_file, usage_file in (
        ("memory.max", "memory.current"),  # control groups, version 2 and 1
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            limit = int((_GROUPS / limit_file).read_text())
            used = int((_GROUPS / usage_file).read_text())
            free = min(free, max(0, limit - used))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return free


def has_amx() -> bool:
    """True if torch's products of bfloat16 run on tiles of Intel's AMX."""
    return torch.cpu._is_amx_tile_supported()


def without_kernels(device: torch.device) -> list[str]:
    """Reasons why no kernel runs on a device in this process, if any."""
    if device.type == "cuda":
        return list(_triton_refuses(device))
    if device.type != "cpu":
        return [f"its kernels run on the CPU and on CUDA, and the tensors are on {device}"]
    return without_compiler()


@lru_cache(None)
def _triton_refuses(device: torch.device) -> tuple[str, ...]:
    """Reasons Triton cannot run on a device; the first call tries a kernel there."""
    if find_spec("triton") is None:
        return (
            "its kernels on CUDA need triton, which is not installed: pip install 'graphattn[gpu]'",
        )
    try:
        capability = torch.cuda.get_device_capability(device)
        if capability < OLDEST:
            required = ".".join(map(str, OLDEST))
            present = ".".join(map(str, capability))
            return (
                f"Triton's kernels are for compute capability {required} or later, and {device} "
                f"has {present}",
            )
        from ..kernels.softmax.passes import probe

        probe(device)
    except Exception as error:  # from Triton, the driver, or the compiler of its launchers
        message = next(iter(str(error).strip().splitlines()), "")
        return (
            f"triton {version('triton')} runs nothing on {device}: {type(error).__name__}: "
            f"{message[:200]}",
        )
    return ()


def without_compiler() -> list[str]:
    """The reasons why no kernel can be compiled in this process, if any."""
    if find_spec("llvmlite") is None:
        return ["llvmlite is not installed"]
    return list(_llvm_refuses())


@lru_cache(None)
def _llvm_refuses() -> tuple[str, ...]:
    try:
        from ..kernels.llvm.native import probe

        probe()
    except Exception as error:  # such as a release that is too old, or memory that must not run
        return (f"llvmlite {version('llvmlite')} cannot be used: {error}",)
    return ()
