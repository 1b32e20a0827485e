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


def forward(sizes: Sizes, *, lse: bool = False, kept: bool = False) -> Moved:
    """The softmax over each row and the weighted sum; ``kept`` weights lie where scores lay before."""
    B, T, E, H, w, F = sizes.batch, sizes.targets, sizes.edges, sizes.heads, sizes.wide, sizes.features
    blocks, read = _blocks(H, sizes.group, sizes.head_dim, sizes.value_dim, F)
    loaded = blocks * (T * _row() + E * 2 * INDEX) + T * H * sizes.head_dim * sizes.number
    loaded += E * read * (sizes.head_dim + sizes.value_dim) * sizes.number
    loaded += E * H * w * sizes.bias + F * w * (E * blocks + T * H)
    loaded += E * H * w * kept
    stored = T * H * (sizes.value_dim * sizes.number + F * w + w * lse) + 2 * E * H * w * kept
    return Moved(B * loaded, B * stored)


def _row() -> int:
    return INDEX + 2 * POINTER


def _blocks(heads: int, group: int, *widths: int) -> tuple[int, int]:
    """Programs that share a row, and the heads of keys that they read together."""
    each = heads_at_once(heads, *widths)
    starts = range(0, heads, each)
    return len(starts), sum(len({h // group for h in range(at, min(at + each, heads))}) for at in starts)
