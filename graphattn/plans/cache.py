"""The cache of derivations of a graph, which live as long as the graph."""

from collections.abc import Callable, Hashable
from functools import partial, wraps
from typing import Any, TypeVar

import torch

from ..graph import AttentionGraph
from ..graph.modes import Memo, constant_result, keep

T = TypeVar("T")

CPU = torch.device("cpu")
_MOST_KNOWN = 256


def cached(graph: AttentionGraph, key: Hashable, make: Callable[[], T]) -> T:
    """``make()``, cached for this graph under ``key``."""
    return keep(graph._memo, key, make)


def known(graph: Any, kind: str, key: Hashable, make: Callable[[], T]) -> T:
    """``make()``, cached for this graph under a kind of key: the last 256 of a kind."""
    results: Memo = keep(graph._memo, kind, Memo)
    return keep(results, key, make, _MOST_KNOWN)


def planned(make: Callable[[AttentionGraph, torch.device], T]) -> Callable[..., T]:
    """A decorator: a plan, cached in its graph for each device; a constant under torch.compile.

    Its key is the decorated function, which a pickle can name: :mod:`graphattn.plans.transfer`.
    """

    @constant_result
    @wraps(make)
    def plan(graph: AttentionGraph, device: torch.device = CPU) -> T:
        return keep(graph._memo, (plan, device), partial(make, graph, device))

    return plan


def on_devices(make: Callable[[AttentionGraph], T]) -> Callable[..., T]:
    """A decorator: a plan that is made on the CPU and moved to other devices, cached for each."""

    @planned
    @wraps(make)
    def plan(graph: AttentionGraph, device: torch.device) -> T:
        if device.type == "cpu":
            return make(graph)
        return moved(plan(graph), device)

    return plan


def moved(plan: Any, device: torch.device) -> Any:
    """A plan, a nested tuple of tensors and numbers, with its tensors on a device."""
    if isinstance(plan, torch.Tensor):
        return plan.to(device)
    if not isinstance(plan, tuple):
        return plan
    parts = [moved(part, device) for part in plan]
    if hasattr(plan, "_fields"):
        return type(plan)(*parts)
    return tuple(parts)
