"""A model of the bytes that the edge kernels of a GPU load and store for a graph of some size.

Bytes count once per load, for any number of threads; caches serve part of them, and all of the
projection of edge features, which does not count. The model ignores that hubs are cut and that
edges may be removed.
"""

from typing import NamedTuple

from .row_work import heads_at_once

INDEX = 4  # bytes of the index of a node or an edge
ROW = INDEX + 2 * 8  # of a row's node, start and stop


class Sizes(NamedTuple):
    """Sizes of a call; ``number`` and ``sum_itemsize``: bytes per number of nodes and of sums."""

    batch: int
    targets: int
    sources: int
    edges: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    number: int
    sum_itemsize: int
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


def forward(sizes: Sizes, *, lse: bool = False, keeps_weights: bool = False) -> Moved:
    """The softmax over each row and the weighted sum; weights, if kept, overwrite the scores.

    Edge features join scores and sums: a first kernel reads the query and writes its projection,
    and the sums of features are read again by the program that wrote them.
    """
    B = sizes.batch
    T = sizes.targets
    E = sizes.edges
    H = sizes.heads
    w = sizes.sum_itemsize
    F = sizes.features
    per_program = heads_at_once(H, sizes.head_dim, sizes.value_dim, F)
    starts = range(0, H, per_program)
    blocks = len(starts)  # programs that share a row
    heads_read = sum(  # heads of keys that they read together
        len({h // sizes.group for h in range(at, min(at + per_program, H))}) for at in starts
    )
    loaded = blocks * (T * ROW + E * 2 * INDEX) + T * H * sizes.head_dim * sizes.number
    loaded += E * heads_read * (sizes.head_dim + sizes.value_dim) * sizes.number
    loaded += E * H * sizes.number * sizes.bias + E * H * w * keeps_weights
    stored = T * H * (sizes.value_dim * sizes.number + w * lse) + 2 * E * H * w * keeps_weights
    if F:
        loaded += E * blocks * F * sizes.number + T * H * (
            sizes.head_dim * sizes.number + 2 * F * w
        )
        stored += T * H * 2 * F * w
    return Moved(B * loaded, B * stored)


def bytes_kept(sizes: Sizes, softcap: bool) -> tuple[int, int]:
    """Bytes that a forward keeps for its backward: of query, key and value, and of weights.

    Weights larger than these and another query are recomputed, and so are those behind the slope of
    a softcap.
    """
    query = sizes.batch * sizes.targets * sizes.heads * sizes.head_dim * sizes.number
    row = sizes.kv_heads * (sizes.head_dim + sizes.value_dim)
    nodes = query + sizes.batch * sizes.sources * row * sizes.number
    weights = sizes.batch * sizes.edges * sizes.heads * sizes.sum_itemsize
    if softcap or weights > nodes + query:
        return nodes, 0
    return nodes, weights
