"""Grid builders against their written rules, a Swin of rolls and masks, and NATTEN."""

import math

import pytest
import torch
from written_rules import assert_is, assert_mask, natten_reads

from graphattn import graphs
from graphattn.errors import GraphError

CELLS = [  # size, cell, shift, pad
    ((12,), (3,), None, False),
    ((6, 10), (3, 5), None, False),
    ((6, 10), (3, 5), (1, 2), False),
    ((4, 6), (2, 3), (1, 0), False),
    ((7, 11), (3, 5), (2, 1), True),
    ((10, 7), (7, 7), (3, 3), True),
    ((2, 13), (5, 3), (2, 2), True),
    ((4, 6, 3), (2, 3, 3), (1, 1, 1), False),
    ((3, 2, 5), (2, 2, 3), (1, 1, 2), True),
    ((1,), (1,), None, False),
    ((0, 6), (2, 3), (1, 1), False),
]


def rolled_swin(size, cell, shift):
    """Liu et al.'s own construction: pad, roll, cut windows, and mask pairs from different sides of
    the seam.
    """
    padded = [-(-length // side) * side for length, side in zip(size, cell, strict=True)]
    shift = [
        0 if side >= length else moved
        for length, side, moved in zip(padded, cell, shift, strict=True)
    ]
    nodes = torch.full(padded, -1)
    nodes[tuple(slice(0, length) for length in size)] = torch.arange(math.prod(size)).view(size)
    region = torch.zeros(padded, dtype=torch.int64)
    for axis, (length, side, moved) in enumerate(zip(padded, cell, shift, strict=True)):
        label = torch.zeros(length, dtype=torch.int64)
        if moved:
            label[-side:-moved] = 1
            label[-moved:] = 2
        label = label * length + torch.arange(length) // side
        region = region * 10_000 + label.view([-1 if a == axis else 1 for a in range(len(size))])
    nodes = torch.roll(nodes, [-moved for moved in shift], tuple(range(len(size)))).flatten()
    region, mask = region.flatten(), torch.zeros(math.prod(size), math.prod(size), dtype=torch.bool)
    same = (region[:, None] == region[None, :]) & (nodes[:, None] >= 0) & (nodes[None, :] >= 0)
    row, column = torch.nonzero(same, as_tuple=True)
    mask[nodes[row], nodes[column]] = True
    return mask


@pytest.mark.sample(3)
@pytest.mark.parametrize(("size", "cell", "shift", "pad"), CELLS)
def test_cells_are_swins_rolled_and_masked_windows(size, cell, shift, pad):
    wanted = rolled_swin(size, cell, shift or (0,) * len(size))
    assert_mask(graphs.window_partition(size, cell, shift, pad=pad), wanted)


def test_cells_that_do_not_divide_the_grid():
    with pytest.raises(GraphError, match=r"got size=10 and cell=7 on axis 0; pass pad=True"):
        graphs.window_partition((10, 14), (7, 7))
    graph = graphs.window_partition((10, 14), (7, 7), pad=True)
    assert graph.in_degree.view(10, 14)[:, 0].tolist() == [49] * 7 + [21] * 3


def test_one_number_is_for_all_axes():
    assert graphs.window_partition((6, 9), 3, 1).equals(
        graphs.window_partition((6, 9), (3, 3), (1, 1))
    )
    assert graphs.window_partition(6, 3).equals(graphs.window_partition((6,), (3,)))
    one = graphs.grid_neighbourhood((7, 11), 3, dilation=2, causal=True)
    assert one.equals(
        graphs.grid_neighbourhood((7, 11), (3, 3), dilation=(2, 2), causal=(True, True))
    )


NEIGHBOURHOODS = [  # size, kernel, dilation, causal
    ((1,), (1,), (1,), (False,)),
    ((2,), (2,), (1,), (False,)),
    ((11,), (5,), (1,), (False,)),
    ((11,), (4,), (1,), (False,)),
    ((13,), (3,), (4,), (False,)),
    ((13,), (4,), (3,), (False,)),
    ((11,), (5,), (1,), (True,)),
    ((13,), (4,), (3,), (True,)),
    ((5, 7), (3, 5), (1, 1), (False, False)),
    ((7, 5), (2, 4), (1, 1), (False, False)),
    ((7, 11), (3, 2), (2, 5), (False, False)),
    ((5, 7), (3, 3), (1, 2), (True, False)),
    ((5, 7), (2, 3), (2, 1), (True, True)),
    ((3, 5, 7), (3, 2, 3), (1, 2, 1), (False, False, False)),
    ((3, 5, 4), (2, 3, 2), (1, 1, 2), (False, True, False)),
]


def natten_axis(length, kernel, step, causal, t, s):
    """NATTEN's rule on one axis, written out (stride 1)."""
    if t % step != s % step:
        return False
    group = -(-(length - t % step) // step)
    p, q, left, right = t // step, s // step, kernel // 2, kernel // 2 - 1 + kernel % 2
    if causal:
        return 0 <= p - q < kernel
    centre = min(max(p, left), group - 1 - right)
    return centre - left <= q <= centre + right


@pytest.mark.sample(4)
@pytest.mark.parametrize(("size", "kernel", "dilation", "causal"), NEIGHBOURHOODS)
def test_neighbourhood_follows_the_written_rule(size, kernel, dilation, causal):
    def clamped(t, s):
        return all(map(natten_axis, size, kernel, dilation, causal, t, s))

    def cut(t, s):
        for k, d, back, a, b in zip(kernel, dilation, causal, t, s, strict=True):
            before, after = (k - 1, 0) if back else (k // 2, (k - 1) // 2)
            if (a - b) % d or not -after * d <= a - b <= before * d:
                return False
        return True

    options = {"dilation": dilation, "causal": causal}
    assert_is(graphs.grid_neighbourhood(size, kernel, **options), size, size, clamped)
    assert_is(graphs.grid_neighbourhood(size, kernel, **options, clamp=False), size, size, cut)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "kernel", "dilation", "causal"), [c for c in NEIGHBOURHOODS if min(c[1]) > 1]
)
def test_neighbourhood_is_nattens(size, kernel, dilation, causal):
    graph = graphs.grid_neighbourhood(size, kernel, dilation=dilation, causal=causal)
    assert torch.equal(natten_reads(size, kernel, dilation, causal), graph.mask())


def test_a_window_larger_than_the_grid():
    with pytest.raises(GraphError, match=r"got 5 \* 2 on an axis of 7; .* clamp=False"):
        graphs.grid_neighbourhood((11, 7), 5, dilation=2, causal=False)
    assert graphs.grid_neighbourhood((3, 5), 11, causal=False, clamp=False).num_edges == 15**2
    assert graphs.grid_neighbourhood((0, 5), 3, causal=False).num_edges == 0
    assert graphs.grid_neighbourhood((5,), 11, causal=True).equals(graphs.causal(5))


@pytest.mark.parametrize(
    ("size", "kernel", "tile"), [((8, 15), (3, 1), (2, 3)), ((6, 4, 5), (3, 1, 3), (2, 2, 1))]
)
def test_sliding_tiles_are_those_of_fast_video(size, kernel, tile):
    """Its kernel counts tiles, and is centred on the query's tile or on the nearest that fits."""

    def reads(t, s):
        for length, width, reach, query, key in zip(size, tile, kernel, t, s, strict=True):
            last = length // width - 1 - reach // 2
            centre = min(max(query // width, reach // 2), last)
            if abs(centre - key // width) > reach // 2:
                return False
        return True

    nodes = tuple(reach * width for reach, width in zip(kernel, tile, strict=True))
    assert_is(graphs.grid_neighbourhood(size, nodes, stride=tile, causal=False), size, size, reads)
