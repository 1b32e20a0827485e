"""Masks of written rules, pair by pair in two loops, and what a graph of them must answer."""

import itertools
import math

import pytest
import torch


def mask_of(targets, sources, rule):
    """``rule(t, s)`` of all nodes of two sizes, or of coordinates on two row-major grids; bool (T,
    S).
    """
    T, S = (
        range(n) if isinstance(n, int) else list(itertools.product(*map(range, n)))
        for n in (targets, sources)
    )
    return torch.tensor([[bool(rule(t, s)) for s in S] for t in T], dtype=torch.bool).reshape(
        len(T), len(S)
    )


def assert_mask(graph, mask, is_rule=True):
    """The edges are those of ``mask``, by every way to ask."""
    assert graph.is_rule == is_rule
    assert torch.equal(graph.mask(), mask), graph
    assert torch.equal(graph.edge_index.flip(0).T, mask.nonzero())  # by target, then by source
    assert graph.num_edges == int(mask.sum())
    assert torch.equal(graph.in_degree, mask.sum(1))
    assert torch.equal(graph.out_degree, mask.sum(0))
    assert torch.equal(graph.reverse().mask(), mask.T)
    assert int(graph.block_counts((3, 5)).sum()) == graph.num_edges


def assert_is(graph, targets, sources, rule):
    """The edges are those of ``rule(t, s)``."""
    assert_mask(graph, mask_of(targets, sources, rule))


def natten_reads(size, kernel, dilation, causal, stride=1):
    """What NATTEN's neighbourhood attention reads; bool (N, N). Skips without it."""
    natten = pytest.importorskip("natten")
    attend = (natten.na1d, natten.na2d, natten.na3d)[len(size) - 1]
    nodes = math.prod(size)
    # its head dims: powers of two, the same for keys and values
    width = max(16, 1 << (nodes - 1).bit_length())
    query, key = torch.randn(2, 1, *size, 1, width)
    identity = torch.eye(nodes, width).view(1, *size, 1, width)
    options = {"kernel_size": kernel, "dilation": dilation, "stride": stride, "is_causal": causal}
    return attend(query, key, identity, **options).view(nodes, width)[:, :nodes] > 0
