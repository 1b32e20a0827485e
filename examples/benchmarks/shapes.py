"""The table of shapes that are timed; each can be made at any size."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphattn import AttentionGraph, from_edge_index
from graphattn.graphs import (
    causal,
    full,
    global_tokens,
    knn,
    mesh_vertices,
    sliding_window,
    window_partition,
)
from graphattn.graphs.points.curve_keys import curve_key
from graphattn.shapes import icosphere_mesh


@dataclass(frozen=True)
class Shape:
    """A graph of about ``num_nodes`` nodes, and the peers that come closest."""

    make: Callable[[int], AttentionGraph]
    num_nodes: int
    rivals: tuple[str, ...] = ()
    heads: int = 4
    head_dim: int = 32
    batch: int = 1
    only_ours: bool = False  # where the intermediate results of the others do not fit in memory


def points(num_nodes: int, *, along_curve: bool = True) -> Tensor:
    """(N, 3) uniform in the unit cube, along a Morton curve of 1,024 cells a side or in random
    order.
    """
    pos = torch.rand(num_nodes, 3, generator=torch.Generator().manual_seed(0))
    return pos[curve_key((pos * 1024).long(), "z", 10).argsort(stable=True)] if along_curve else pos


def near_points(num_nodes: int, k: int, *, along_curve: bool = True) -> AttentionGraph:
    """The k nearest neighbours of uniform points."""
    return knn(points(num_nodes, along_curve=along_curve), min(k, num_nodes - 1))


def sphere_rings(num_nodes: int) -> AttentionGraph:
    """1-rings and self-loops on the icosphere of about that many vertices (42, 162, 642, ...
    40,962, ...).
    """
    level = max(0, round(float(np.log(max(1, num_nodes - 2) / 10) / np.log(4))))
    return mesh_vertices(icosphere_mesh(level).faces).with_self_loops()


def power_law(num_nodes: int, edges_per_node: int = 20, exponent: float = 0.75) -> AttentionGraph:
    """Distinct random edges whose ends are drawn like rank ** -exponent: few hubs, and a long tail.

    Sources and targets have their hubs at different places. Degrees then follow a power law of
    index 1 + 1 / exponent.
    """
    draw = np.random.default_rng(0)
    total = np.cumsum(np.arange(1, num_nodes + 1) ** -exponent)
    node = [draw.permutation(num_nodes) for _ in range(2)]
    wanted = min(num_nodes * edges_per_node, num_nodes * num_nodes // 4)
    keys = np.empty(0, np.int64)
    while len(keys) < wanted:
        rank = [
            np.searchsorted(total, draw.random(wanted) * total[-1], side="right") for _ in range(2)
        ]
        keys = np.unique(np.concatenate((keys, node[0][rank[0]] * num_nodes + node[1][rank[1]])))
    keys = draw.permutation(keys)[:wanted]
    index = torch.from_numpy(np.stack((keys % num_nodes, keys // num_nodes)))
    return from_edge_index(index, num_nodes=num_nodes, name=f"power_law({num_nodes})")


def big_bird(num_nodes: int, block: int = 64, random_blocks: int = 3) -> AttentionGraph:
    """Blocks of tokens read the blocks beside them, three random others, and the first and the
    last, which read all.

    Source: Zaheer et al. 2020 (Big Bird), section 2 and appendix D. *What differs:* nothing wraps
    around.
    """
    draw, count = np.random.default_rng(0), -(-num_nodes // block)
    near = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) <= 1
    for row in near[1:-1]:  # the first and the last read all
        far = np.flatnonzero(~row[1:-1]) + 1
        row[draw.choice(far, min(random_blocks, len(far)), replace=False)] = True
    wide = torch.from_numpy(np.stack(np.nonzero(near)))  # (2, blocks): target, source
    inside = torch.cartesian_prod(torch.arange(block), torch.arange(block)).T  # (2, block * block)
    pair = (wide[:, :, None] * block + inside[:, None, :]).flatten(1)
    pair = pair[:, (pair < num_nodes).all(0)]
    local = from_edge_index(pair.flip(0), num_nodes=num_nodes, name=f"blocks of {block}")
    ends = (*range(min(block, num_nodes)), *range(max(block, num_nodes - block), num_nodes))
    return local | global_tokens(num_nodes, ends)


def window(num_nodes: int) -> AttentionGraph:
    """Both ways, 257 wide."""
    return sliding_window(num_nodes, 257, causal=False)


def longformer(num_nodes: int) -> AttentionGraph:
    """The same and 16 global tokens."""
    return window(num_nodes) | global_tokens(num_nodes, tuple(range(min(num_nodes, 16))))


def swin(num_nodes: int) -> AttentionGraph:
    """Shifted cells of 7 x 7 of a square image."""
    side = 7 * max(1, round(num_nodes**0.5 / 7))
    return window_partition((side, side), (7, 7), (3, 3))


_PYG = ("PyG", "PyG compiled", "DGL")
_HAND = (*_PYG, "gather by hand")
#: Shapes by name, in the order in which they are run.
SHAPES = {
    "knn16": Shape(lambda n: near_points(n, 16), 16_384, _HAND),
    "knn16_shuffled": Shape(lambda n: near_points(n, 16, along_curve=False), 16_384),
    "knn64": Shape(lambda n: near_points(n, 64), 16_384, _HAND),
    "mesh": Shape(sphere_rings, 40_962, _PYG),
    "mesh_relabelled": Shape(lambda n: sphere_rings(n).reordered()[0], 40_962, _PYG),
    "window": Shape(window, 8_192, ("SDPA",)),
    "longformer": Shape(longformer, 8_192, ("SDPA",)),
    "bigbird": Shape(big_bird, 8_192),
    "swin": Shape(swin, 56 * 56, ("Swin by hand", "SDPA"), heads=3, batch=8),
    "full": Shape(full, 2_048, ("SDPA",)),
    "causal": Shape(causal, 2_048, ("SDPA",)),
    "power_law": Shape(power_law, 100_000, _PYG),
    "knn16_million": Shape(lambda n: near_points(n, 16), 1_000_000, head_dim=16, only_ours=True),
}
