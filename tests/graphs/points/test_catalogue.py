"""Named patterns of points: each mask from its written rule, by tables of distances and loops over
pairs.
"""

import math

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.graphs.catalogue.inputs import cells, sphere, square, two_clouds
from graphattn.graphs.catalogue.points import NAMED


def squares(points, queries):
    return sum((q[:, None] - p[None, :]) ** 2 for p, q in zip(points.T, queries.T, strict=True))


def nearest(points, queries, ranks, drop_self=False):
    """bool (T, S): sources whose place in the order of (distance, index) is one of ``ranks``."""
    rows = []
    for t, row in enumerate(squares(points, queries).tolist()):
        order = sorted((d, s) for s, d in enumerate(row) if not (drop_self and s == t))
        chosen = {order[i][1] for i in ranks if i < len(order)}
        rows.append([s in chosen for s in range(len(row))])
    return torch.tensor(rows)


def sampled(points, count):
    """Greedy farthest points from point 0; the most distant of lowest index."""
    chosen = [0]
    while len(chosen) < count:
        least = squares(points[chosen], points).amin(1).tolist()
        chosen.append(max((d, -s) for s, d in enumerate(least) if s not in chosen)[1] * -1)
    return chosen


def boxes(points, side, shift=0.0):
    return [tuple(math.floor((x - shift) / side) for x in p) for p in points.tolist()]


def same(labels, others=None):
    others = labels if others is None else others
    return torch.tensor([[a == b for b in others] for a in labels])


def pooled(side):
    own = boxes(square, side)
    return same(sorted(set(own)), own)


def z_key(cell, bits):
    return int("".join(f"{x >> k & 1}" for k in reversed(range(bits)) for x in cell), 2)


def loop_key(x, y, n=8):
    """Place on Hilbert's loop in the plane, the textbook's recursion."""
    total, s = 0, n // 2
    while s:
        right, up = int(x & s > 0), int(y & s > 0)
        total += s * s * (3 * right ^ up)
        if not up:
            x, y = (n - 1 - y, n - 1 - x) if right else (y, x)
        s //= 2
    return total


def patches(keys, size):
    """PTv3's rule on the rank of each key."""
    n, rank = (
        len(keys),
        {i: r for r, i in enumerate(sorted(range(len(keys)), key=lambda i: (keys[i], i)))},
    )
    rows = []
    for t in range(n):
        b = rank[t] // size
        first, last = (b * size, b * size + size) if (b + 1) * size <= n else (n - size, n)
        rows.append([first <= rank[s] < last for s in range(n)])
    return torch.tensor(rows)


def z_keys_of_square(swap):
    low, span = square.amin(0), (square.amax(0) - square.amin(0)).amax()
    fine = ((square - low) / span * (2.0**31 - 1)).floor().long().tolist()
    return [z_key(c[::-1] if swap else c, 31) for c in fine]


def octree(size, step):
    keys = [z_key(c, 3) for c in cells.tolist()]
    rank = [sorted(keys).index(k) for k in keys]
    return same([(r // (size * step), r % step) for r in rank])


def stratified():
    few = torch.zeros(48, dtype=torch.bool)
    few[sampled(square, 12)] = True
    return same(boxes(square, 0.25)) | (same(boxes(square, 0.5)) & few)


def superpoints():
    pool = pooled(0.2).double()
    return pool @ nearest(square, square, range(4), True).double() @ pool.T > 0


def ones(targets, sources):
    return torch.ones(targets, sources, dtype=torch.bool)


NEAR = nearest(sphere, sphere, range(6), True)
FEW = sphere[sampled(sphere, 12)]
FEATURES = torch.cos(sphere @ torch.tensor([[3.0, 1, 2], [1, 4, 1], [2, 1, 5]]).double())
WANTED = {
    "kNN": lambda: NEAR,
    "mutual kNN": lambda: NEAR & NEAR.T,
    "symmetric kNN": lambda: NEAR | NEAR.T,
    "dilated kNN": lambda: nearest(sphere, sphere, range(0, 12, 2)),
    "DGCNN": lambda: nearest(FEATURES, FEATURES, range(6), drop_self=True),
    "kNN in a batch": lambda: torch.block_diag(
        *(nearest(square[two_clouds == i], square[two_clouds == i], range(4), True) for i in (0, 1))
    ),
    "radius": lambda: squares(sphere, sphere) <= 0.7 * 0.7,
    "ball query": lambda: squares(sphere, sphere) <= 0.7 * 0.7,
    "PointNet++ grouping": lambda: squares(sphere, FEW) <= 0.7 * 0.7,
    "PointNet++ interpolation": lambda: nearest(FEW, sphere, range(3)),
    "Point Transformer": lambda: nearest(sphere, sphere, range(16)),
    "Point Transformer, down": lambda: nearest(sphere, FEW, range(16)),
    "Point Transformer V2, pooling": lambda: pooled(0.25),
    "Point Transformer V2, unpooling": lambda: pooled(0.25).T,
    "Point Transformer V3, z": lambda: patches(z_keys_of_square(False), 10),
    "Point Transformer V3, z-trans": lambda: patches(z_keys_of_square(True), 10),
    "Point Transformer V3, hilbert": lambda: patches(
        [loop_key(x, y) for x, y in cells.tolist()], 12
    ),
    "Point Transformer V3, hilbert-trans": lambda: patches(
        [loop_key(y, x) for x, y in cells.tolist()], 12
    ),
    "OctFormer": lambda: octree(8, 1),
    "OctFormer, dilated": lambda: octree(8, 4),
    "Stratified Transformer": stratified,
    "Swin3D": lambda: same(boxes(square, 0.25)),
    "Swin3D, shifted": lambda: same(boxes(square, 0.25, 0.125)),
    "PCT": lambda: ones(48, 48),
    "ISAB, first layer": lambda: ones(8, 48),
    "ISAB, second layer": lambda: ones(48, 8),
    "PMA": lambda: ones(4, 48),
    "Perceiver, encoding": lambda: ones(16, 48),
    "Perceiver, processing": lambda: ones(16, 16),
    "Perceiver, decoding": lambda: ones(24, 16),
    "superpoints": lambda: same(boxes(square, 0.3)),
    "superpoint graph": superpoints,
}


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.name)
def test_named_pattern_is_its_written_rule(named):
    graph = named.graph()
    assert torch.equal(graph.mask(), WANTED[named.name]())
    assert graph.has_repeated_edges == (named.name == "ball query")


def test_dgcnn_is_no_knn_of_positions():
    assert not graphs.zoo()["DGCNN"].graph().equals(graphs.knn(sphere, 6))


def test_no_two_neighbouring_patterns_look_alike():
    """The control: shifts, dilations and transposed curves show at the size of the example."""
    seen = [named.graph() for named in NAMED if not named.code.startswith(("full", "cross"))]
    alike = {(a.name, b.name) for i, a in enumerate(seen) for b in seen[:i] if a.equals(b)}
    assert alike == set()


def test_layers_of_ptv3_take_turns_with_the_curves():
    """Wu et al. 2024 shuffle the four orders over the layers; what one order parts, another
    joins.
    """
    pos = torch.rand(61, 3, generator=torch.Generator().manual_seed(71))
    layers = [
        graphs.curve_patches(pos, 16, curve)
        for curve in ("z", "z-trans", "hilbert", "hilbert-trans")
    ]
    assert ga.analysis.reach(layers).num_edges > ga.analysis.reach([layers[0]] * 4).num_edges
