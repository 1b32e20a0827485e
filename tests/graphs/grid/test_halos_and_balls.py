"""Strides, halos, padding that is read, pooling, balls and tokens in front, against their written
rules and NATTEN.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from written_rules import assert_is, mask_of, natten_reads

from graphattn import graphs

STRIDED = [  # size, kernel, dilation, stride, causal
    ((13,), (5,), (1,), (3,), (False,)),
    ((13,), (4,), (1,), (4,), (False,)),
    ((23,), (6,), (2,), (5,), (False,)),
    ((17,), (4,), (3,), (2,), (False,)),
    ((13,), (5,), (1,), (4,), (True,)),
    ((17,), (4,), (3,), (3,), (True,)),
    ((5, 11), (4, 7), (1, 1), (2, 7), (False, False)),
    ((11, 7), (3, 2), (2, 3), (3, 2), (False, False)),
    ((7, 11), (4, 5), (1, 2), (3, 2), (True, False)),
    ((2, 7, 9), (2, 4, 3), (1, 1, 2), (2, 3, 3), (False, False, True)),
]


def leader_axis(length, kernel, step, stride, causal, t, s):
    """NATTEN's rule on one axis with its stride, written out."""
    if t % step != s % step:
        return False
    group = -(-(length - t % step) // step)
    p, q, left, right = t // step, s // step, kernel // 2, kernel // 2 - 1 + kernel % 2
    if causal:
        leader = min(p // stride * stride + stride - 1, group - 1)
        return q <= p and leader - q < kernel
    leader = min(p // stride * stride + stride // 2, group - 1)
    centre = min(max(leader, left), group - 1 - right)
    return centre - left <= q <= centre + right


def cut_axis(length, kernel, step, stride, causal, t, s):
    """The same window, cut at the borders."""
    if causal:
        return leader_axis(length, kernel, step, stride, causal, t, s)
    leader = t // step // stride * stride + stride // 2
    return t % step == s % step and leader - kernel // 2 <= s // step <= leader + (kernel - 1) // 2


@pytest.mark.sample(3)
@pytest.mark.parametrize(("size", "kernel", "dilation", "stride", "causal"), STRIDED)
def test_strided_neighbourhoods(size, kernel, dilation, stride, causal):
    options = {"dilation": dilation, "stride": stride, "causal": causal}
    graph = graphs.grid_neighbourhood(size, kernel, **options)
    assert_is(
        graph,
        size,
        size,
        lambda t, s: all(map(leader_axis, size, kernel, dilation, stride, causal, t, s)),
    )
    cut = graphs.grid_neighbourhood(size, kernel, clamp=False, **options)
    assert_is(
        cut,
        size,
        size,
        lambda t, s: all(map(cut_axis, size, kernel, dilation, stride, causal, t, s)),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "kernel", "dilation", "stride", "causal"), [STRIDED[3], *STRIDED[8:]]
)
def test_strided_neighbourhoods_are_nattens(size, kernel, dilation, stride, causal):
    reads = natten_reads(size, kernel, dilation, causal, stride)
    plain = graphs.grid_neighbourhood(size, kernel, causal=causal, dilation=dilation)
    strided = graphs.grid_neighbourhood(
        size, kernel, causal=causal, dilation=dilation, stride=stride
    )
    assert torch.equal(reads, strided.mask())
    assert not torch.equal(reads, plain.mask())


HALOS = [  # size, cell, halo
    ((12,), (3,), (1,)),
    ((13,), (4,), (2,)),
    ((5,), (1,), (2,)),
    ((6, 10), (3, 5), (1, 0)),
    ((5, 7), (2, 3), (3, 1)),
    ((3, 4, 5), (2, 4, 2), (1, 1, 1)),
    ((2, 1), (5, 3), (1, 2)),
    ((0, 6), (2, 3), (1, 1)),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("size", "cell", "halo"), HALOS)
def test_halos(size, cell, halo):
    def near(t, s):  # in the coordinates of the grid
        return all(
            -h <= b - a // m * m < m + h for a, b, m, h in zip(t, s, cell, halo, strict=True)
        )

    graph = graphs.halo(size, cell, halo, pad=True)
    assert_is(graph, size, size, near)
    kernel = tuple(m + 2 * h for m, h in zip(cell, halo, strict=True))
    assert graph.equals(
        graphs.grid_neighbourhood(size, kernel, stride=cell, causal=False, clamp=False)
    )
    padded = tuple(-(-n // m) * m + 2 * h for n, m, h in zip(size, cell, halo, strict=True))
    read = graphs.halo(size, cell, halo, read_padding=True)
    inside = mask_of(
        size, padded, lambda t, s: near(t, tuple(b - h for b, h in zip(s, halo, strict=True)))
    )
    assert torch.equal(read.mask(), inside)
    # the padding never leaves the softmax
    assert set(read.in_degree.tolist()) <= {math.prod(kernel)}
    assert torch.equal(read.reverse().materialise().mask(), inside.T)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("size", "cell"), [((6, 10), (3, 5)), ((7, 5), (2, 3)), ((5,), (7,)), ((2, 3, 5), (1, 2, 2))]
)
def test_cells_become_nodes(size, cell):
    coarse = tuple(-(-n // r) for n, r in zip(size, cell, strict=True))
    wanted = mask_of(
        coarse, size, lambda t, s: all(b // r == a for a, b, r in zip(t, s, cell, strict=True))
    )
    down = graphs.cell_pooling(size, cell, pad=True)
    assert torch.equal(down.mask(), wanted)
    assert torch.equal(down.reverse().mask(), wanted.T)
    assert down.reverse().out_degree.sum() == math.prod(size)
    assert (down.reverse() @ down).equals(graphs.window_partition(size, cell, pad=True))


@pytest.mark.sample(3)
@pytest.mark.parametrize("size", [(11,), (5, 7), (7, 1), (3, 4, 2), (0, 3), (1,)])
def test_balls(size):
    place = np.indices(size).reshape(len(size), -1).T.astype(float)
    norms = {
        1: ("cityblock", {}),
        2: ("euclidean", {}),
        np.inf: ("chebyshev", {}),
        3: ("minkowski", {"p": 3}),
    }
    for (p, (metric, options)), r, strict in itertools.product(
        norms.items(), (0, 2, 5**0.5, 40), (True, False)
    ):
        distance = cdist(place, place, metric, **options) if len(place) else np.zeros((0, 0))
        if p == 3:
            distance = distance.round(9)  # scipy's cube root of a cube is not whole
        graph = graphs.grid_ball(size, r, p=p, strict=strict)
        wanted = torch.from_numpy(distance < r if strict else distance <= r)
        assert torch.equal(graph.mask(), wanted), (p, r, strict)
        assert torch.equal(graph.materialise().mask(), wanted)
        assert graph.num_edges == wanted.sum()
    assert graphs.grid_ball(size, 2, p=np.inf).equals(
        graphs.grid_neighbourhood(size, 5, causal=False, clamp=False)
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "base", [graphs.window_partition((3, 4), (3, 2)), graphs.causal(5), graphs.full(0)]
)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_global_tokens_in_front(base, number):
    N = base.num_nodes + number
    wanted = torch.ones(N, N, dtype=torch.bool)
    wanted[number:, number:] = base.mask()
    for graph in (base.with_global_tokens(number), base.materialise().with_global_tokens(number)):
        assert torch.equal(graph.mask(), wanted)
        assert graph.name == f"{base.name}.with_global_tokens({number})"
    assert base.with_global_tokens(number).is_rule
    index = base.materialise().with_global_tokens(number).edge_index
    # the caller's order is kept
    assert torch.equal(index[:, : base.num_edges], base.edge_index + number)
