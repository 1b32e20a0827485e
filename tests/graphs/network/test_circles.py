"""Circles, butterflies and hierarchies of means against their written rules and networkx."""

import math

import networkx
import pytest
import torch
from written_rules import assert_is

from graphattn import attention, graphs


@pytest.mark.sample(4)
@pytest.mark.parametrize("N", [0, 1, 2, 5, 13, 16])
@pytest.mark.parametrize("offsets", [(), (0,), (-1, 0, 1), (1, 2, 4, 8), (3, -7, 16, 3)])
def test_circulant(N, offsets):
    read = [{(t + o) % N for o in offsets} for t in range(N)]
    assert_is(graphs.circulant(N, offsets), N, N, lambda t, s: s in read[t])


def test_circulant_is_networkxs():
    graph = graphs.circulant(23, (-5, -2, 2, 5))
    assert torch.equal(
        graph.mask(),
        torch.tensor(networkx.to_numpy_array(networkx.circulant_graph(23, [2, 5]))).bool(),
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("N", "block"), [(0, 1), (1, 1), (2, 1), (7, 1), (16, 1), (11, 2), (29, 3), (64, 4), (3, 5)]
)
@pytest.mark.parametrize("strides", [None, (), (1,), (2, 8)])
def test_butterfly(N, block, strides):
    def reads(t, s):
        apart = (t // block) ^ (s // block)
        return apart == 0 or (apart in strides if strides is not None else apart & (apart - 1) == 0)

    assert_is(graphs.butterfly(N, block, strides=strides), N, N, reads)


def test_butterfly_of_single_nodes_is_networkxs_hypercube():
    cube = networkx.hypercube_graph(5)
    graph = graphs.butterfly(32).without_self_loops()
    mask = networkx.to_numpy_array(cube, nodelist=sorted(cube))
    assert torch.equal(graph.mask(), torch.tensor(mask).bool())


def test_diameters():
    """Every node depends on all after log2(n) layers, and not before; the product of butterfly
    factors is full.
    """
    cube = graphs.butterfly(32)
    assert graphs.full(32).equals(cube.k_hop(5))
    assert not graphs.full(32).equals(cube.k_hop(4))
    product = graphs.self_loops(12)
    for stride in (1, 2):
        product = graphs.butterfly(12, 3, strides=(stride,)) @ product
    assert product.equals(graphs.full(12))
    assert graphs.circulant(32, (0, 1, 2, 4, 8, 16)).k_hop(5).equals(graphs.full(32))


def tree_nodes(N, block):
    """(level, number, tokens) of every source."""
    level, size = 0, N
    while True:
        yield from ((level, j, range(j << level, min(N, (j + 1) << level))) for j in range(size))
        if math.ceil(size / block) <= 2:
            return
        level, size = level + 1, math.ceil(size / 2)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("N", "block"), [(0, 2), (1, 2), (5, 2), (8, 2), (29, 2), (37, 4), (64, 4), (101, 6)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_hierarchical(N, block, causal):
    nodes = list(tree_nodes(N, block))

    def reads(t, level, j, tokens):
        if causal and tokens[-1] > t:
            return False
        near = abs(t // (block << level) - j // block) <= 1
        return near and not (level and abs(t // (block << level - 1) - 2 * j // block) <= 1)

    graph = graphs.coarse_to_fine(N, block, causal=causal)
    assert graph.num_sources == len(nodes)
    assert_is(graph, N, len(nodes), lambda t, s: reads(t, *nodes[s]))
    mask = graph.mask()
    for t in range(N):  # every token is read once, itself or in one mean
        read = [token for s, node in enumerate(nodes) if mask[t, s] for token in node[2]]
        assert sorted(read) == list(range(t + 1 if causal else N))


def test_hierarchical_with_log_counts_is_full_attention_where_blocks_are_constant():
    """Means lose nothing if the tokens of a mean are the same; without the bias they would."""
    N, nodes = 32, list(tree_nodes(32, 2))
    graph = graphs.coarse_to_fine(N, 2, causal=False)
    x = torch.randn(
        N // 8, 1, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).repeat_interleave(8, 0)
    sources = torch.stack([x[list(node[2])].mean(0) for node in nodes])
    bias = torch.tensor([float(len(node[2])) for node in nodes], dtype=torch.float64).log()[
        graph.source
    ]
    wanted = attention(x, x, x, graphs.full(N))
    assert max(len(node[2]) for node in nodes) == 8
    assert torch.allclose(attention(x, sources, sources, graph, score_bias=bias), wanted)
    assert not torch.allclose(attention(x, sources, sources, graph), wanted)
