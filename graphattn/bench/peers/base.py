"""One way to compute attention on a graph: what the benchmark asks of ours and of everyone else's."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..problem import Problem

Forward = Callable[[], Tensor]


class Peer:
    """A way to run. Tensors are handed over in its own layout, which nobody's clock counts."""

    name: str
    about: str  # one line: what exactly is run
    ours = False

    def reasons_against(self, problem: Problem) -> list[str]:
        """Why it cannot run this, or is not what anybody would run; empty if it can."""
        return []

    def no_backward(self, problem: Problem) -> str:
        """Why there is no backward pass; empty if there is one."""
        return ""

    def lay_out(self, x: Tensor) -> Tensor:
        """Its own layout from (..., N, H, D)."""
        return x.clone()

    def put_back(self, x: Tensor, like: Tensor) -> Tensor:
        """(..., N, H, D), the shape of ``like``, from its own layout."""
        return x.reshape(like.shape)

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        """All that depends on the graph alone (masks, layouts), and then the call to measure."""
        raise NotImplementedError


class HeadsFirst(Peer):
    """A peer on (B, H, N, D), as torch's SDPA and FlexAttention have it."""

    def lay_out(self, x: Tensor) -> Tensor:
        return x.reshape(-1, *x.shape[-3:]).transpose(1, 2).contiguous()

    def put_back(self, x: Tensor, like: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(like.shape)


def memory_bytes(device: str) -> int | None:
    """Bytes that can still be had; ``None`` where the system does not tell."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def too_large(what: str, needed: int, device: str) -> list[str]:
    """The reason against holding ``needed`` bytes, if that is more than half of what can be had."""
    have = memory_bytes(device)
    if have is None or needed <= have // 2:
        return []
    return [f"{what} would take about {needed / 1e9:,.1f} GB, and half of what is free is {have / 2e9:,.1f} GB"]
