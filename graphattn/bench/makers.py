"""Graphs to measure on that the catalogue of builders does not have: surfaces, hubs, sorted points, BigBird."""

import numpy as np
import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graphs import global_tokens, knn, mesh_vertices
from ..interop import from_edge_index


def points(num_nodes: int, *, sorted_along_curve: bool, seed: int = 0) -> Tensor:
    """(N, 3) uniform in the unit cube, in random order or along a Morton (Z-order) curve of 1,024 cells a side."""
    pos = torch.rand(num_nodes, 3, generator=torch.Generator().manual_seed(seed))
    return pos[torch.argsort(morton_code(pos), stable=True)] if sorted_along_curve else pos


def morton_code(pos: Tensor) -> Tensor:
    """int64 (N,): the ten leading bits of x, y and z in [0, 1), interleaved.

    Example:
        >>> morton_code(torch.tensor([[0.0, 0.0, 0.9999], [0.5, 0.0, 0.0]])).tolist() == [0o1111111111, 1 << 29]
        True
    """
    cell = (pos * 1024).long().clamp(0, 1023)
    code = torch.zeros(len(pos), dtype=torch.int64)
    for bit in range(10):
        for axis in range(3):
            code |= ((cell[:, axis] >> bit) & 1) << (3 * bit + 2 - axis)
    return code


def near_points(num_nodes: int, k: int, *, shuffled: bool = False) -> AttentionGraph:
    """k nearest neighbours of uniform points, sorted along a Morton curve unless ``shuffled``."""
    return knn(points(num_nodes, sorted_along_curve=not shuffled), min(k, num_nodes - 1))


def icosphere(level: int) -> tuple[int, Tensor]:
    """Vertices, 10 * 4 ** level + 2, and faces (F, 3) of an icosahedron, each triangle cut in four ``level`` times.

    Example:
        >>> count, faces = icosphere(2)
        >>> count, len(faces)
        (162, 320)
    """
    upper = [(0, 1 + i, 1 + (i + 1) % 5) for i in range(5)]
    middle = [(1 + i, 6 + i, 1 + (i + 1) % 5) for i in range(5)] + [
        (6 + i, 6 + (i + 1) % 5, 1 + (i + 1) % 5) for i in range(5)
    ]
    lower = [(11, 6 + (i + 1) % 5, 6 + i) for i in range(5)]
    faces, count = np.array(upper + middle + lower), 12
    for _ in range(level):
        sides = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]], -1)  # (F, 3, 2)
        _, which = np.unique(sides[..., 0] * count + sides[..., 1], return_inverse=True)
        ab, bc, ca = which.reshape(-1, 3).T + count  # the new vertex on each side
        a, b, c = faces.T
        count += int(which.max()) + 1
        parts = ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))
        faces = np.stack([np.stack(part, -1) for part in parts], 1).reshape(-1, 3)  # children stay together
    return count, torch.from_numpy(faces)


def sphere_rings(num_nodes: int) -> AttentionGraph:
    """1-rings and self-loops on the icosphere of about that many vertices (42, 162, 642, ... 40,962, ...)."""
    level = max(0, round(float(np.log(max(1, num_nodes - 2) / 10) / np.log(4))))
    count, faces = icosphere(level)
    return mesh_vertices(faces, count).with_self_loops()


def power_law(num_nodes: int, edges_per_node: int = 20, exponent: float = 0.75, seed: int = 0) -> AttentionGraph:
    """Distinct random edges whose ends are drawn like rank ** -exponent: few hubs, and a long tail.

    Sources and targets have their hubs at different places. Degrees then follow a power law of index
    1 + 1 / exponent.
    """
    draw = np.random.default_rng(seed)
    total = np.cumsum(np.arange(1, num_nodes + 1) ** -exponent)
    name = [draw.permutation(num_nodes) for _ in range(2)]
    wanted = min(num_nodes * edges_per_node, num_nodes * num_nodes // 4)
    keys = np.empty(0, np.int64)
    while len(keys) < wanted:
        rank = [np.searchsorted(total, draw.random(wanted) * total[-1], side="right") for _ in range(2)]
        keys = np.unique(np.concatenate((keys, name[0][rank[0]] * num_nodes + name[1][rank[1]])))
    keys = draw.permutation(keys)[:wanted]
    index = torch.from_numpy(np.stack((keys % num_nodes, keys // num_nodes)))
    return from_edge_index(index, num_nodes=num_nodes, name=f"power_law({num_nodes})")


def big_bird(num_nodes: int, block: int = 64, random_blocks: int = 3, seed: int = 0) -> AttentionGraph:
    """Blocks of tokens read the blocks beside them, three random others, and the first and the last, which read all.

    Source: Zaheer et al. 2020 (Big Bird), section 2 and appendix D. *What differs:* nothing wraps around.
    """
    draw, count = np.random.default_rng(seed), -(-num_nodes // block)
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
