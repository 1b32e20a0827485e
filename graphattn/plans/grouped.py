"""Edges grouped by target and by source: what the edge kernels walk."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.listed import Listed
from .cache import cached


class ByTarget(NamedTuple):
    """``ptr`` int64 (T + 1,); the ``source`` of each edge (E,) and its place ``edge`` in the caller's order (E,)."""

    ptr: Tensor
    source: Tensor
    edge: Tensor


class BySource(NamedTuple):
    """``ptr`` int64 (S + 1,); the ``target`` of each edge (E,) and its place by target ``place`` (E,)."""

    ptr: Tensor
    target: Tensor
    place: Tensor


def by_target(graph: AttentionGraph) -> ByTarget:
    """The edges by target, then by source, on the CPU; int32 where that is enough."""
    return cached(graph, "by_target", lambda: _by_target(graph))


def by_source(graph: AttentionGraph) -> BySource:
    """The edges by source, then by target; made only when a gradient is wanted."""
    return cached(graph, "by_source", lambda: _by_source(graph))


def _ptr(degrees: Tensor) -> Tensor:
    ptr = torch.zeros(degrees.numel() + 1, dtype=torch.int64)
    torch.cumsum(degrees, 0, out=ptr[1:])
    return ptr


def _small(size: int) -> torch.dtype:
    return torch.int32 if size <= 2**31 - 1 else torch.int64


def _by_target(graph: AttentionGraph) -> ByTarget:
    if isinstance(graph.edges, Listed):
        key, edge = graph.edges.key.cpu(), graph.edges.order.cpu()
        source = key % max(1, graph.num_sources)
    else:
        source = graph.source.cpu()
        edge = torch.arange(source.numel())
    ptr = _ptr(graph.in_degree.cpu())
    return ByTarget(ptr, source.to(_small(graph.num_sources)), edge.to(_small(edge.numel())))


def _by_source(graph: AttentionGraph) -> BySource:
    ptr, source, _ = by_target(graph)
    degrees = torch.bincount(source, minlength=graph.num_sources)
    target = torch.repeat_interleave(torch.arange(graph.num_targets), ptr[1:] - ptr[:-1])
    place = torch.from_numpy(stable_order(source.numpy(), graph.num_sources))
    return BySource(_ptr(degrees), target[place].to(_small(graph.num_targets)), place.to(_small(place.numel())))


def stable_order(key: np.ndarray, size: int) -> np.ndarray:
    """The stable order of keys in ``[0, size)``: key and place share one word, which numpy sorts with SIMD."""
    bits = max(1, len(key) - 1).bit_length()
    if bits + max(1, size - 1).bit_length() > 64:
        return np.argsort(key, kind="stable")
    packed = (key.astype(np.uint64) << np.uint64(bits)) | np.arange(len(key), dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << bits) - 1)).astype(np.int64)
