"""The cache of derivations of a graph, which live as long as the graph."""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar

import torch

from ..graph import AttentionGraph

T = TypeVar("T")

CPU = torch.device("cpu")
_MOST_KNOWN = 256


def cached(graph: AttentionGraph, key: Hashable, make: Callable[[], T]) -> T:
    """``make()``, cached for this graph under ``key``."""
    kept: T = graph._remember(key, make)
    return kept


def known(graph: Any, kind: str, key: Hashable, make: Callable[[], T]) -> T:
    """``make()``, cached for this graph among its last keys of a kind, such as shapes of calls."""
    results: dict[Hashable, T] = graph._memo.setdefault(kind, {})
    if key not in results:
        result = make()
        if len(results) >= _MOST_KNOWN:
            results.clear()
        results[key] = result
        return result
    return results[key]


def on_devices(make: Callable[[AttentionGraph], T]) -> Callable[..., T]:
    """A decorator: the plan of a graph is made once, on the CPU, and moved once to each device that is asked for."""

    @wraps(make)
    def plan(graph: AttentionGraph, device: torch.device = CPU) -> T:
        if device.type != "cpu":
            return cached(graph, (make, device), lambda: moved(plan(graph), device))
        return cached(graph, make, lambda: make(graph))

    return plan


def moved(plan: Any, device: torch.device) -> Any:
    """A plan, a nested tuple of tensors and numbers, with its tensors on a device."""
    if isinstance(plan, torch.Tensor):
        return plan.to(device)
    if not isinstance(plan, tuple):
        return plan
    parts = [moved(part, device) for part in plan]
    return type(plan)(*parts) if hasattr(plan, "_fields") else tuple(parts)
