"""Memory that measuring a backend takes, and memory that is free."""

import re
from collections.abc import Callable
from pathlib import Path

import torch

from ..backends import BACKENDS
from ..graph import AttentionGraph
from .report import Refusal
from .subject import Case, Subject

_UNKNOWN = 8 << 30
_GROUPS = Path("/sys/fs/cgroup")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
PASSES_HELD = 2  # a backward pass beside a forward one, in bytes of the forward one: 1.2 to 1.7 measured
LISTED = 96  # bytes for each edge of a rule that is listed and grouped by target and by source, at the peak


def too_large(
    subject: Subject,
    case: Case,
    dtype: torch.dtype,
    backend: str,
    gradients: bool = True,
    most_bytes: Callable[[], int] | None = None,
) -> list[Refusal]:
    """The refusal of a backend that would hold more than ``most_bytes()``; none if it fits or nobody asks."""
    request = subject.request(case, dtype)
    if (
        request is None
        or most_bytes is None
        or backend not in BACKENDS
        or BACKENDS[backend].reasons_against(subject.graph, request)
    ):
        return []
    passes = PASSES_HELD if gradients else 1
    needed = passes * BACKENDS[backend].bytes_needed(subject.graph, request) + _listing(subject.graph, backend)
    allowed = most_bytes()
    if needed <= allowed:
        return []
    reason = f"measuring it takes about {needed:,} bytes, {allowed:,} may be taken; name it in backends= to insist"
    return [Refusal(backend, case.name, (reason,))]


def _listing(graph: AttentionGraph, backend: str) -> int:
    """What the edges of a rule take once listed, for the backends that walk them."""
    return LISTED * graph.num_edges if graph.is_rule and BACKENDS[backend].lists_edges else 0


def free_bytes(device: torch.device) -> int:
    """Memory that may still be taken on a device, in bytes: of the machine, and of the control group on Linux."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        available = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
        free = 1024 * int(available[1]) if available else _UNKNOWN
    except OSError:
        free = _UNKNOWN
    return min([free, *(max(0, most - held) for most, held in _group_limits())])


def _group_limits() -> list[tuple[int, int]]:
    """Limit and use of this process's control group, where one is set (version 2, then 1)."""
    limits = []
    for folder, most, held in (("", "memory.max", "memory.current"), ("memory", *_VERSION_1)):
        try:
            limits.append(tuple(int((_GROUPS / folder / name).read_text()) for name in (most, held)))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return limits  # type: ignore[return-value]
