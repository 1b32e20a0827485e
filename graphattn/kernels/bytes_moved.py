"""Bytes that the edge kernels of a GPU ask for, a model: what each loads and stores for a graph of some size.

Each load counts what it wants of memory once, however many threads want it; caches answer for part of that. Hubs are
taken for whole rows, and no edge for removed.
"""

from typing import NamedTuple

from .row_work import heads_at_once

INDEX, POINTER = 4, 8  # bytes of a node's or an edge's number, and of where a row begins


class Sizes(NamedTuple):
    """What a call is made of: ``number`` and ``wide`` are bytes of a number of nodes and of one of sums."""

    batch: int
    targets: int
    sources: int
    edges: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    number: int
    wide: int
    features: int = 0
    bias: bool = False

    @property
    def group(self) -> int:
        """Heads of the query that share one of the key."""
        return self.heads // max(1, self.kv_heads)


class Moved(NamedTuple):
    """Bytes loaded and stored."""

    loaded: float
    stored: float

    def __add__(self, other: "Moved") -> "Moved":  # type: ignore[override]
        return Moved(self.loaded + other.loaded, self.stored + other.stored)


def forward(sizes: Sizes, *, lse: bool = False, kept: bool = False, sums: bool = True) -> Moved:
    """The softmax over each row, and where ``sums`` the weighted sum; ``kept`` weights lie where scores lay before."""
    B, T, E, H, w, F = sizes.batch, sizes.targets, sizes.edges, sizes.heads, sizes.wide, sizes.features
    value_dim = sizes.value_dim if sums else 0
    blocks, read = _blocks(H, sizes.group, sizes.head_dim, value_dim, F)
    loaded = blocks * (T * _row() + E * 2 * INDEX) + T * H * sizes.head_dim * sizes.number
    loaded += E * read * (sizes.head_dim + value_dim) * sizes.number
    loaded += E * H * w * sizes.bias + F * w * (E * blocks + T * H)
    loaded += E * H * w * kept
    stored = T * H * (value_dim * sizes.number + (F * w if sums else 0) + w * lse) + 2 * E * H * w * kept
    return Moved(B * loaded, B * stored)


def backward(sizes: Sizes, *, kept: bool = True, lse: bool = False) -> Moved:
    """The gradients of nodes, features and bias; weights that were not kept are made again."""
    B, T, E, H, w, F = sizes.batch, sizes.targets, sizes.edges, sizes.heads, sizes.wide, sizes.features
    blocks, read = _blocks(H, sizes.group, sizes.head_dim, sizes.value_dim, F)
    loaded = blocks * (T * _row() + E * 4 * INDEX)
    loaded += T * H * (sizes.head_dim + sizes.value_dim) * sizes.number + T * H * w * lse
    loaded += E * read * (sizes.head_dim + sizes.value_dim) * sizes.number
    loaded += E * H * w * (3 + 2 * sizes.bias) + F * w * (2 * E * blocks + 2 * T * H)
    stored = T * H * (sizes.head_dim * sizes.number + F * w) + E * H * w * (2 + sizes.bias) + E * blocks * F * w
    total = Moved(B * loaded, B * stored) + _sum(sizes, sizes.head_dim) + _sum(sizes, sizes.value_dim)
    return total if kept else total + forward(sizes, kept=True, sums=False)


def _sum(sizes: Sizes, width: int) -> Moved:
    """The weighted sum over the edges out of each source and the heads of a group."""
    B, S, E, H, kv = sizes.batch, sizes.sources, sizes.edges, sizes.heads, sizes.kv_heads
    blocks, _ = _blocks(kv, 1, width)
    loaded = blocks * (S * _row() + E * 2 * INDEX * sizes.group) + E * H * (sizes.wide + width * sizes.number)
    loaded += E * H * sizes.bias  # which edges are removed
    return Moved(B * loaded, B * S * kv * width * sizes.number)


def _row() -> int:
    return INDEX + 2 * POINTER


def _blocks(heads: int, group: int, *widths: int) -> tuple[int, int]:
    """Programs that share a row, and the heads of keys that they read together."""
    each = heads_at_once(heads, *widths)
    starts = range(0, heads, each)
    return len(starts), sum(len({h // group for h in range(at, min(at + each, heads))}) for at in starts)
