"""Masks of rules on grids, pair by pair in two loops."""

import itertools
import math

import pytest
import torch


def mask_of(targets, sources, rule):
    """``rule(t, s)`` on the coordinates of two row-major grids; bool (T, S)."""
    nodes = list(itertools.product(*map(range, sources)))
    rows = [[bool(rule(t, s)) for s in nodes] for t in itertools.product(*map(range, targets))]
    return torch.tensor(rows, dtype=torch.bool).reshape(math.prod(targets), len(nodes))


def assert_follows(graph, size, rule):
    """The rule on one grid, by every way to ask."""
    wanted = mask_of(size, size, rule)
    assert torch.equal(graph.mask(), wanted)
    assert torch.equal(graph.edge_index, wanted.nonzero().T.flip(0))
    assert graph.num_edges == wanted.sum()
    assert graph.is_rule


def natten_reads(size, kernel, dilation, causal, stride=1):
    """What NATTEN's neighbourhood attention reads; bool (N, N). Skips without it."""
    natten = pytest.importorskip("natten")
    attend = (natten.na1d, natten.na2d, natten.na3d)[len(size) - 1]
    nodes = math.prod(size)
    width = max(16, 1 << (nodes - 1).bit_length())  # its head dims: powers of two, the same for keys and values
    query, key = torch.randn(2, 1, *size, 1, width)
    identity = torch.eye(nodes, width).view(1, *size, 1, width)
    options = {"kernel_size": kernel, "dilation": dilation, "stride": stride, "is_causal": causal}
    return attend(query, key, identity, **options).view(nodes, width)[:, :nodes] > 0
