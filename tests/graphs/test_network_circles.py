"""Circles, butterflies and hierarchies of means against their written rules and networkx."""

import math

import networkx
import pytest
import torch

from graphattn import attention, graphs
from graphattn.errors import GraphError


def assert_is(graph, mask):
    """The same by pairs, by rows, by counts and turned round."""
    mask = torch.tensor(mask, dtype=torch.bool).reshape(graph.num_targets, graph.num_sources)
    target, source = torch.nonzero(mask, as_tuple=True)
    assert graph.is_rule
    assert torch.equal(graph.mask(), mask)
    assert graph.edge_index.tolist() == [source.tolist(), target.tolist()]
    assert graph.num_edges == int(mask.sum())
    assert torch.equal(graph.in_degree, mask.sum(1))
    assert torch.equal(graph.out_degree, mask.sum(0))
    assert torch.equal(graph.reverse().mask(), mask.T)
    assert int(graph.tile_counts((3, 5)).sum()) == graph.num_edges


@pytest.mark.parametrize("N", [0, 1, 2, 5, 13, 16])
@pytest.mark.parametrize("offsets", [(), (0,), (-1, 0, 1), (1, 2, 4, 8), (3, -7, 16, 3)])
def test_circulant(N, offsets):
    read = [{(t + o) % N for o in offsets} for t in range(N)]
    assert_is(graphs.circulant(N, offsets), [[s in read[t] for s in range(N)] for t in range(N)])


def test_circulant_is_networkxs():
    graph = graphs.circulant(23, (-5, -2, 2, 5))
    assert torch.equal(graph.mask(), torch.tensor(networkx.to_numpy_array(networkx.circulant_graph(23, [2, 5]))).bool())


def test_two_layers_of_a_circulant_are_one():
    chord, ring = graphs.circulant(29, (0, 1, 2, 4)), graphs.circulant(29, (-1, 0, 1))
    assert (chord @ ring).is_rule
    assert torch.equal((chord @ ring).mask(), (chord.mask().long() @ ring.mask().long()) > 0)


@pytest.mark.parametrize(("N", "block"), [(0, 1), (1, 1), (2, 1), (7, 1), (16, 1), (11, 2), (29, 3), (64, 4), (3, 5)])
@pytest.mark.parametrize("strides", [None, (), (1,), (2, 8)])
def test_butterfly(N, block, strides):
    def reads(t, s):
        apart = (t // block) ^ (s // block)
        return apart == 0 or (apart in strides if strides is not None else apart & (apart - 1) == 0)

    mask = [[reads(t, s) for s in range(N)] for t in range(N)]
    assert_is(graphs.butterfly(N, block, strides=strides), mask)


def test_butterfly_of_single_nodes_is_networkxs_hypercube():
    cube = networkx.hypercube_graph(5)
    graph = graphs.butterfly(32).without_self_loops()
    mask = networkx.to_numpy_array(cube, nodelist=sorted(cube))
    assert torch.equal(graph.mask(), torch.tensor(mask).bool())


def test_diameters():
    """Every node depends on all after log2(n) layers, and not before; the product of butterfly factors is full."""
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


@pytest.mark.parametrize(("N", "block"), [(0, 2), (1, 2), (5, 2), (8, 2), (29, 2), (37, 4), (64, 4), (101, 6)])
@pytest.mark.parametrize("causal", [False, True])
def test_hierarchical(N, block, causal):
    nodes = list(tree_nodes(N, block))

    def reads(t, level, j, tokens):
        if causal and tokens[-1] > t:
            return False
        near = abs(t // (block << level) - j // block) <= 1
        return near and not (level and abs(t // (block << level - 1) - 2 * j // block) <= 1)

    graph = graphs.hierarchical(N, block, causal=causal)
    assert graph.num_sources == len(nodes)
    assert_is(graph, [[reads(t, *node) for node in nodes] for t in range(N)])
    mask = graph.mask()
    for t in range(N):  # every token is read once, itself or in one mean
        read = [token for s, node in enumerate(nodes) if mask[t, s] for token in node[2]]
        assert sorted(read) == list(range(t + 1 if causal else N))


def test_hierarchical_with_log_counts_is_full_attention_where_blocks_are_constant():
    """Means lose nothing if the tokens of a mean are the same; without the bias they would."""
    N, nodes = 32, list(tree_nodes(32, 2))
    graph = graphs.hierarchical(N, 2)
    x = torch.randn(N // 8, 1, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).repeat_interleave(
        8, 0
    )
    sources = torch.stack([x[list(node[2])].mean(0) for node in nodes])
    bias = torch.tensor([float(len(node[2])) for node in nodes], dtype=torch.float64).log()[graph.source]
    wanted = attention(x, x, x, graphs.full(N))
    assert max(len(node[2]) for node in nodes) == 8
    assert torch.allclose(attention(x, sources, sources, graph, score_bias=bias), wanted)
    assert not torch.allclose(attention(x, sources, sources, graph), wanted)


def test_rules_of_a_million_nodes_store_nothing():
    N = 1 << 20
    assert graphs.circulant(N, (-1, 0, 1)).num_edges == 3 * N
    assert graphs.butterfly(N, 16).contains(5, (5 ^ (1 << 15)) + 3)
    assert graphs.hierarchical(N, 32).contains(5, 63)
    assert not graphs.hierarchical(N, 32).contains(5, 64)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: graphs.butterfly(8, strides=(3,)), "strides must be powers of two such as 1, 2, 4, got 3"),
        (lambda: graphs.butterfly(8, strides=(0,)), "strides must be powers of two .* got 0"),
        (lambda: graphs.butterfly(8, 0), "block must be a whole number >= 1, got 0"),
        (lambda: graphs.hierarchical(8, 3), "block must be even.* got 3"),
        (lambda: graphs.hierarchical(8, 0), "block must be a whole number >= 2, got 0"),
        (lambda: graphs.circulant(8, (0.5,)), "offsets must be integers .* got float32"),
        (lambda: graphs.circulant(-1, (1,)), "num_nodes must be a whole number >= 0, got -1"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(GraphError, match=words):
        make()
