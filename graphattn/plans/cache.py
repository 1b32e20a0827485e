"""The cache of derivations of a graph, which live as long as the graph."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from ..graph import AttentionGraph

T = TypeVar("T")

CPU = torch.device("cpu")


def cached(graph: AttentionGraph, key: Hashable, make: Callable[[], T]) -> T:
    """``make()``, cached for this graph under ``key``."""
    kept: T = graph._remember(key, make)
    return kept


def moved(plan: Any, device: torch.device) -> Any:
    """A plan, a nested tuple of tensors and numbers, with its tensors on a device."""
    if isinstance(plan, torch.Tensor):
        return plan.to(device)
    if not isinstance(plan, tuple):
        return plan
    parts = [moved(part, device) for part in plan]
    return type(plan)(*parts) if hasattr(plan, "_fields") else tuple(parts)
