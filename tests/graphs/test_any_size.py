"""Sizes that nobody can hold: a builder works in bounded memory, or says what it would cost."""

import inspect
import resource
import signal
from contextlib import suppress

import pytest
import torch
from test_catalogue import SMALL

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
    assert (ga.graphs.full(100_000) @ ga.graphs.random_neighbours(100_000, 3)).is_rule


def test_blocks_beyond_the_first_and_last_are_not_counted():
    far = ga.graphs.block_local(HUGE, 3, look_back=HUGE, causal=False)
    assert far.contains(HUGE - 1, 0)
    assert not far.contains(0, 3)
    small = ga.graphs.block_local(10, 3, look_back=HUGE, look_ahead=HUGE, causal=False)
    assert small.equals(ga.graphs.full(10))
    assert ga.graphs.block_local(10, 3, look_back=HUGE, causal=False).equals(
        ga.graphs.block_causal(10, 3)
    )


G = ga.graphs
SIZES = {
    "num_nodes",
    "num_targets",
    "num_sources",
    "size",
    "lengths",
    "num_clusters",
    "num_vertices",
}
ALGEBRA = {
    "union": lambda n: G.sliding_window(n, 9, causal=True) | G.sinks(n, 4),
    "product": lambda n: G.full(n) @ G.sparse_strided(n, 10),
    "complement": lambda n: ~G.coarse_to_fine(n, 2, causal=False).reverse(),
    "hops": lambda n: G.sparse_strided(n, 10).k_hop(3),
    "rows": lambda n: G.coarse_to_fine(n, 2, causal=False).subgraph(targets=[1, 2, 3]),
    "tokens in front": lambda n: G.window_partition((n, 7), 4, 2, pad=True).with_global_tokens(1),
    "side by side": lambda n: ga.disjoint_union(
        [G.circulant(n, (1,)).with_self_loops(), G.full(3)]
    ),
    "predicate": lambda n: ga.from_rule(lambda t, s: t > s, n, n),
    "blocks": lambda n: G.block_sparse(G.causal(n // 4 + 1), 4, n // 4 * 4 + 3),
    "parts": lambda n: G.composite([[G.full(n), None], [None, G.full(3)]]),
    "documents": lambda n: G.documents(lengths=(5, n), causal=True),
    "rare edges": lambda n: G.erdos_renyi(n, 1e-19),
    "wide window": lambda n: G.sliding_window(n, (n // 3, 5), num_sources=n // 2),
    "large blocks": lambda n: G.block_local(n, n // 4, look_back=1, causal=False, wrap=True),
}


def sized(name, argument):
    """The builder's call in the zoo, one of its sizes another, or each side of its grid in turn."""
    build, small = G.BUILDERS[name], SMALL[name]
    if argument not in ("size", "lengths"):
        return [lambda n: build(**small | {argument: n})]
    sides = small.get(argument, (3, 3))
    return [
        lambda n, i=i: build(**small | {argument: (*sides[:i], n, *sides[i + 1 :])})
        for i in range(len(sides))
    ]


SIZED = {
    f"{name}, {argument}": sized(name, argument)
    for name, make in G.BUILDERS.items()
    for argument in inspect.signature(make).parameters
    if argument in SIZES
    if (name, argument) != ("documents", "lengths")
} | {name: [make] for name, make in ALGEBRA.items()}


RULES = (
    "full",
    "causal",
    "prefix",
    "sliding_window",
    "sinks",
    "sparse_strided",
    "block_causal",
    "self_loops",
    "cross",
)


@pytest.mark.parametrize("size", [2**40, HUGE])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_any_size_is_made_at_once(name, size):
    (build,) = SIZED.get(f"{name}, num_nodes") or SIZED[f"{name}, num_targets"]
    graph = build(size)
    assert graph.num_targets == size
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
        except (GraphError, ValueError, OverflowError):
            continue
        assert "AttentionGraph(" in str(graph)
        for ask in (
            lambda g: g.num_edges,
            lambda g: g.density,
            lambda g: ga.facts(g, budget=1000),
            ga.analysis.hops,
        ):
            with suppress(GraphError):
                ask(graph)


def test_a_band_is_counted_at_any_size():
    assert f"{2**32} nodes, {2**64} edges, density 1" in repr(ga.graphs.full(2**32))
    assert ga.graphs.causal(10**10).num_edges == 10**10 * (10**10 + 1) // 2
    with pytest.raises(
        GraphError, match=r"walk over about 17,179,869,184 intervals .* ask contains\(\)"
    ):
        _ = ga.graphs.prefix(2**33, 3).num_edges


@pytest.mark.parametrize("sizes", [(0, 5), (1, 1), (5, 11), (11, 5), (7, 7)])
def test_the_count_of_a_band_is_that_of_a_walk(sizes):
    for lo in (-9, -3, 0, 2):
        for hi in (-2, 0, 3, 12):
            for step in (1, 2, 5):
                for offset in (0, 3, -4):
                    edges = band(*sizes, lo, hi, step, offset)
                    assert edges.count() == edges.degrees().sum()
