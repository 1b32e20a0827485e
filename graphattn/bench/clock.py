"""Time and memory as a user has them: wall time with the device idle before and after, and peak memory of a process."""

import ctypes
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

STREAM_NUMBERS = 1 << 25  # float32; three arrays of 128 MiB, beyond any cache


def is_cuda(device: str) -> bool:
    """Whether it is a CUDA device."""
    return torch.device(device).type == "cuda"


def timed(call: Callable[[], Any], count: int, device: str) -> float:
    """Seconds of one of ``count`` calls in a row; results are dropped at once."""
    if is_cuda(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize(device)
        return begin.elapsed_time(end) / 1e3 / count
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def stream_gb_per_s(device: str, repeats: int = 15) -> float:
    """Bandwidth of ``a = b + 2 c`` on arrays beyond any cache, in GB/s: 12 bytes a number, the best of several.

    As STREAM (McCalpin 1995) counts: what a cache reads before it writes is not counted.
    """
    a, b, c = (torch.ones(STREAM_NUMBERS, device=device) for _ in range(3))
    best = min(timed(lambda: torch.add(b, c, alpha=2.0, out=a), 1, device) for _ in range(repeats))
    return 12 * STREAM_NUMBERS / best / 1e9


class MemoryWatch:
    """Peak memory from here on, beyond what is held now: of the process on a CPU, of the allocator on CUDA.

    A CPU's is read from Linux, which counts pages not what they are for; elsewhere it is ``None``.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        gc.collect()
        self.before: int | None = None
        if is_cuda(device):
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
        elif sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back, so that taking it again is seen
            self.before = _reset_peak()

    def peak_bytes(self) -> int | None:
        """The most that was held at once, above what was held before."""
        if self.before is None:
            return None
        if is_cuda(self.device):
            torch.cuda.synchronize(self.device)
            return torch.cuda.max_memory_allocated(self.device) - self.before
        return max(0, _status("VmHWM") - self.before)


def _reset_peak() -> int | None:
    """Make the peak start from now; what is resident now, or ``None`` where that is not allowed."""
    try:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
        return _status("VmRSS")
    except OSError:
        return None


def _status(name: str) -> int:
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def limit_memory(device: str) -> None:
    """Let an allocation that cannot be met fail in this process, before the system ends some other one."""
    if sys.platform != "linux" or is_cuda(device):
        return
    import resource

    from .peers.base import memory_bytes

    free, (soft, hard) = memory_bytes(device), resource.getrlimit(resource.RLIMIT_DATA)
    if free is not None and soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (free * 4 // 5, hard))


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile, of one value or more.

    Example:
        >>> quartiles([4.0, 1.0, 2.0, 3.0, 5.0])
        (2.0, 3.0, 4.0)
    """
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
