"""Every named pattern of grids is its written rule, pair by pair."""

import math

import pytest
import torch
from written_rules import mask_of

from graphattn.graphs import zoo
from graphattn.graphs.catalogue import grid


def cells(*sides, shift=0):
    return lambda t, s: all(
        (a - shift) // m == (b - shift) // m for a, b, m in zip(t, s, sides, strict=True)
    )


def same(*axes):
    return lambda t, s: all(t[axis] == s[axis] for axis in axes)


def every(t, s):
    return True


def nearest(*kernels, step=1):
    """Of the nodes ``step`` apart, those within ``kernel // 2`` of a centre moved away from the
    border.
    """

    def axis(length, kernel, a, b):
        last, half = (length - 1 - a % step) // step, kernel // 2
        return (
            a % step == b % step and abs(b // step - min(max(a // step, half), last - half)) <= half
        )

    return lambda t, s: all(axis(8, k, a, b) for k, a, b in zip(kernels, t, s, strict=True))


def near(r, p):
    def norm(steps):
        return max(steps) if p == math.inf else sum(x**p for x in steps) ** (1 / p)

    return lambda t, s: norm([abs(a - b) for a, b in zip(t, s, strict=True)]) <= r


def causal_video(t, s):
    """Two frames, this one and the one before, and three nodes each way moved away from the
    border.
    """
    space = all(abs(b - min(max(a, 1), 2)) <= 1 for a, b in zip(t[1:], s[1:], strict=True))
    return 0 <= t[0] - s[0] < 2 and space


def leaders(t, s):
    """Two neighbours share the window of four that begins one before the first of them, moved away
    from the border.
    """
    return all(0 <= b - min(max(a // 2 * 2 - 1, 0), 4) < 4 for a, b in zip(t, s, strict=True))


def tiles(t, s):
    """Of four tiles of two nodes, the three nearest."""
    return all(abs(b // 2 - min(max(a // 2, 1), 2)) <= 1 for a, b in zip(t, s, strict=True))


def haloed(side, halo, padding=0):
    return lambda t, s: all(
        -halo <= b - padding - a // side * side < side + halo for a, b in zip(t, s, strict=True)
    )


def behind(number, width, rule):
    """``number`` tokens in front of a grid of that width."""

    def read(t, s):
        (t,), (s,) = t, s
        return (
            t < number or s < number or rule(divmod(t - number, width), divmod(s - number, width))
        )

    return read


RULES = {  # name: targets, sources (None: the same nodes), rule
    "Swin": ((8, 8), None, cells(4, 4)),
    "Swin, shifted": ((8, 8), None, cells(4, 4, shift=2)),
    "Swin, padded": ((6, 7), (8, 8), cells(4, 4, shift=2)),
    "Swin V2": ((8, 8), None, cells(4, 4)),
    "Video Swin": ((4, 4, 4), None, cells(2, 2, 2, shift=1)),
    "neighborhood attention (NATTEN)": ((8, 8), None, nearest(3, 3)),
    "dilated neighborhood (DiNA)": ((8, 8), None, nearest(3, 3, step=2)),
    "causal neighborhood": ((4, 4, 4), None, causal_video),
    "strided neighborhood (GNA)": ((8, 8), None, leaders),
    "sliding tile (STA)": ((8, 8), None, tiles),
    "SASA": ((8, 8), None, near(1, math.inf)),
    "HaloNet": ((8, 8), None, haloed(4, 1)),
    "HaloNet, padded": ((6, 6), (8, 8), haloed(3, 1, padding=1)),
    "convolution, one head": ((6, 8), None, lambda t, s: s == (t[0], t[1] + 1)),
    "convolution, strided": ((24,), (48,), lambda t, s: abs(s[0] - 2 * t[0]) <= 1),
    "MaxViT, block": ((8, 8), None, cells(4, 4)),
    "MaxViT, grid": ((8, 8), None, lambda t, s: all((a - b) % (8 // 4) == 0 for a, b in zip(t, s, strict=True))),
    "axial, rows": ((6, 8), None, same(0)),
    "axial, columns": ((6, 8), None, same(1)),
    "criss-cross (CCNet)": ((6, 8), None, lambda t, s: t[0] == s[0] or t[1] == s[1]),
    "CSWin, horizontal": ((8, 8), None, lambda t, s: t[0] // 2 == s[0] // 2),
    "CSWin, vertical": ((8, 8), None, lambda t, s: t[1] // 2 == s[1] // 2),
    "Twins, local": ((8, 8), None, cells(4, 4)),
    "Twins, global": ((8, 8), (2, 2), every),
    "PVT, SegFormer": ((8, 8), (4, 4), every),
    "pooling": ((4, 4), (8, 8), lambda t, s: t == (s[0] // 2, s[1] // 2)),
    "unpooling": ((8, 8), (4, 4), lambda t, s: s == (t[0] // 2, t[1] // 2)),
    "TimeSformer, time": ((4, 3, 3), None, same(1, 2)),
    "TimeSformer, space": ((4, 1 + 3 * 3), None, same(0)),
    "ViViT, VideoMAE": ((3, 4, 4), None, every),
    "block-causal video": ((4, 3, 4), None, lambda t, s: s[0] <= t[0]),
    "Segment Anything, windows": ((7, 7), (8, 8), cells(4, 4)),
    "Segment Anything, global": ((7, 7), None, every),
    "Hiera mask units": ((48,), None, lambda t, s: t[0] % 4 == s[0] % 4),
    "local, L1": ((8, 8), None, near(2, 1)),
    "local, L2": ((8, 8), None, near(2.3, 2)),
    "local, Linf": ((8, 8), None, near(2, math.inf)),
    "class token": ((49,), None, behind(1, 8, cells(3, 4))),
    "registers": ((53,), None, behind(4, 7, lambda t, s: all(
        abs(b - min(max(a, 1), 5)) <= 1 for a, b in zip(t, s, strict=True)
    ))),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("named", grid.NAMED, ids=lambda named: named.name)
def test_named_patterns_follow_their_rules(named):
    targets, sources, rule = RULES[named.name]
    graph = zoo()[named.name].graph()
    assert torch.equal(graph.mask(), mask_of(targets, sources or targets, rule))
    assert graph.is_rule
    assert 16 <= graph.num_targets <= 64
