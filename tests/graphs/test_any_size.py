"""Sizes that nobody can hold: a builder works in bounded memory, or says what it would cost."""

import inspect
import resource
import signal
from contextlib import suppress

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError
from graphattn.graph.forms import band

HUGE = 2**63 - 1


def test_a_product_of_too_many_pairs_is_refused_with_its_cost():
    others = torch.arange(1, 70_001)
    hub = torch.stack((torch.cat((others, 0 * others)), torch.cat((0 * others, others))))
    many = ga.from_edge_index(hub, num_nodes=70_001)  # 4.9e9 ways over node 0
    with pytest.raises(GraphError, match=r"@ of up to [\d,]+ pairs would take [\d,]+ bytes"):
        _ = many @ many


def test_a_full_layer_over_random_edges_is_a_closed_form():
    assert (ga.graphs.full(100_000) @ ga.graphs.random_sources(100_000, 3)).is_rule


def test_blocks_beyond_the_first_and_last_are_not_counted():
    far = ga.graphs.block_local(HUGE, 3, look_back=HUGE)
    assert far.contains(HUGE - 1, 0)
    assert not far.contains(0, 3)
    small = ga.graphs.block_local(10, 3, look_back=HUGE, look_ahead=HUGE)
    assert small.equals(ga.graphs.full(10))
    assert ga.graphs.block_local(10, 3, look_back=HUGE).equals(ga.graphs.block_causal(10, 3))


G = ga.graphs
SIZED = {  # every builder that takes a size, in ways that cost differently
    "full": [lambda n: G.full(n)],
    "self_loops": [lambda n: G.self_loops(n)],
    "causal": [lambda n: G.causal(n), lambda n: G.causal(n, 5), lambda n: G.causal(n, 5, align="start")],
    "prefix": [lambda n: G.prefix(n, n // 2)],
    "sliding_window": [
        lambda n: G.sliding_window(n, n // 3, dilation=2),
        lambda n: G.sliding_window(n, 7, causal=False, dilation=2),
    ],
    "asymmetric_window": [lambda n: G.asymmetric_window(n, n // 3, 5, num_sources=n // 2)],
    "sinks": [lambda n: G.sinks(n, n // 3)],
    "logsparse": [lambda n: G.logsparse(n)],
    "strided": [lambda n: G.strided(n, 1), lambda n: G.strided(n, 1000), lambda n: G.strided(n, n // 2)],
    "fixed": [lambda n: G.fixed(n, 1000), lambda n: G.fixed(n, n // 2, n // 4)],
    "block_local": [
        lambda n: G.block_local(n, 3, look_back=n, look_ahead=n),
        lambda n: G.block_local(n, 7, look_back=1, causal=True),
        lambda n: G.block_local(n, n // 4, look_back=1, wrap=True),
    ],
    "block_causal": [lambda n: G.block_causal(n, 3)],
    "block_diffusion": [lambda n: G.block_diffusion(n, 3)],
    "documents": [lambda n: G.documents(lengths=(5, n), causal=True)],
    "global_tokens": [lambda n: G.global_tokens(n, (0, n - 1))],
    "random_sources": [
        lambda n: G.random_sources(n, 3),
        lambda n: G.random_sources(5, n // 2, num_sources=n),
        lambda n: G.random_sources(5, 3, num_sources=n, avoid=G.cross(5, n)),
    ],
    "erdos_renyi": [
        lambda n: G.erdos_renyi(n, 1e-19),
        lambda n: G.erdos_renyi(n, 0.1, listed=False),
        lambda n: G.erdos_renyi(5, 0.5, num_sources=n, listed=False),
    ],
    "cross": [lambda n: G.cross(n, 5), lambda n: G.cross(5, n)],
    "window_partition": [
        lambda n: G.window_partition((n, 7), 4, 2, read_padding=True),
        lambda n: G.window_partition((7, n), 4, 2, pad=True),
    ],
    "cell_pooling": [lambda n: G.cell_pooling((n, 7), 4, pad=True)],
    "halo": [lambda n: G.halo((n, 7), 4, 1, pad=True), lambda n: G.halo((8, n), 4, n // 2, read_padding=True)],
    "grid_neighbourhood": [
        lambda n: G.grid_neighbourhood((n, 8), 5, stride=2, causal=True),
        lambda n: G.grid_neighbourhood((8, n), 3, stride=2, clamp=False),
        lambda n: G.grid_neighbourhood((n,), n // 4, dilation=2),
    ],
    "grid_ball": [lambda n: G.grid_ball((n,), 5), lambda n: G.grid_ball((n, 7), 2.5), lambda n: G.grid_ball((n, 7), n)],
    "clusters": [lambda n: G.clusters([0, 0, 1], n)],
    "mesh_vertices": [lambda n: G.mesh_vertices([[0, 1, 2]], n), lambda n: G.mesh_vertices([[0, 1, 2]], 3, n)],
    "circulant": [lambda n: G.circulant(n, (-1, 0, 1))],
    "butterfly": [lambda n: G.butterfly(n), lambda n: G.butterfly(n, strides=(1, 2))],
    "hierarchical": [lambda n: G.hierarchical(n, 2), lambda n: G.hierarchical(n, 16, causal=True)],
    "expander": [lambda n: G.expander(n)],
    "random_regular": [lambda n: G.random_regular(n, 4), lambda n: G.random_regular(10, n)],
    "small_world": [lambda n: G.small_world(n, 4, 0.1)],
    "hypergraph": [lambda n: G.hypergraph([0, 1], [0, 1], n, 4), lambda n: G.hypergraph([0, 1], [0, 1], 4, n)],
    "block_sparse": [lambda n: G.block_sparse(G.causal(n // 4 + 1), 4, n // 4 * 4 + 3)],
    "composite": [lambda n: G.composite([[G.full(n), None], [None, G.full(3)]])],
    "algebra": [
        lambda n: G.sliding_window(n, 9) | G.sinks(n, 4),
        lambda n: G.full(n) @ G.strided(n, 10),
        lambda n: ~G.hierarchical(n, 2).reverse(),
        lambda n: G.strided(n, 10).k_hop(3),
        lambda n: G.hierarchical(n, 2).subgraph(targets=[1, 2, 3]),
        lambda n: G.window_partition((n, 7), 4, 2, pad=True).with_global_tokens(1),
        lambda n: ga.disjoint_union([G.circulant(n, (1,)).with_self_loops(), G.full(3)]),
        lambda n: ga.from_rule(lambda t, s: t > s, n, n),
    ],
}
SIZES = {"num_nodes", "num_targets", "size", "lengths", "num_clusters", "num_vertices"}


def test_every_builder_that_takes_a_size_is_in_the_table():
    sized = {name for name, make in G.BUILDERS.items() if SIZES & set(inspect.signature(make).parameters)}
    assert sized <= set(SIZED)


RULES = "full", "causal", "prefix", "asymmetric_window", "sinks", "strided", "block_causal", "global_tokens", "cross"


@pytest.mark.parametrize("size", [2**31, 2**40, 2**62, HUGE])
@pytest.mark.parametrize("name", [*RULES, "self_loops"])
def test_a_rule_of_any_size_is_made_at_once(name, size):
    graph = SIZED[name][-1](size)
    assert graph.num_targets in (size, 5)
    assert graph.contains(graph.num_targets - 1, 0).dtype is not None
    assert f"{size}" in repr(graph)


@pytest.fixture
def bounded():
    """20 s of this process's own time and 8 GiB more of its memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()

    def stop(*_):
        raise AssertionError("it takes more than 20 s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 20)
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("size", [2**32, HUGE])
@pytest.mark.parametrize("builder", SIZED)
def test_a_huge_graph_is_printed_and_asked_at_once_or_refused(builder, size, bounded):
    for build in SIZED[builder]:
        try:
            graph = build(size)
        except GraphError:
            continue
        assert "AttentionGraph(" in str(graph)
        for ask in (lambda g: g.num_edges, lambda g: g.density, lambda g: ga.facts(g, budget=1000), ga.analyse.hops):
            with suppress(GraphError):
                ask(graph)


def test_a_band_is_counted_at_any_size():
    assert f"{2**32} nodes, {2**64} edges, density 1" in repr(ga.graphs.full(2**32))
    assert ga.graphs.causal(10**10).num_edges == 10**10 * (10**10 + 1) // 2
    with pytest.raises(GraphError, match=r"walk over about 17,179,869,184 intervals .* ask contains\(\)"):
        _ = ga.graphs.prefix(2**33, 3).num_edges


@pytest.mark.parametrize("sizes", [(0, 5), (1, 1), (5, 11), (11, 5), (7, 7)])
def test_the_count_of_a_band_is_that_of_a_walk(sizes):
    for lo in (-9, -3, 0, 2):
        for hi in (-2, 0, 3, 12):
            for step in (1, 2, 5):
                for offset in (0, 3, -4):
                    edges = band(*sizes, lo, hi, step, offset)
                    assert edges.count() == edges.degrees().sum()
