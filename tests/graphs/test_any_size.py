"""Sizes that nobody can hold: a builder works in bounded memory, or says what it would cost."""

import pytest

import graphattn as ga
from graphattn.errors import GraphError

HUGE = 2**63 - 1

REFUSED = {
    "block_diffusion": (lambda: ga.graphs.block_diffusion(HUGE, 2), "num_nodes"),
    "with_global_tokens": (lambda: ga.graphs.full(HUGE).with_global_tokens(1), "number"),
    "disjoint_union": (lambda: ga.disjoint_union([ga.graphs.full(HUGE)] * 2), "targets of all parts"),
    "composite": (lambda: ga.graphs.composite([[ga.graphs.full(HUGE), None], [None, ga.graphs.full(3)]]), "all rows"),
    "random_sources": (lambda: ga.graphs.random_sources(100_000_000, 5), "would take 48,000,000,000 bytes"),
    "random_sources of many": (lambda: ga.graphs.random_sources(100_000, 1000), "would take 9,600,000,000 bytes"),
    "block_sparse": (lambda: ga.graphs.block_sparse(ga.graphs.full(HUGE), 2), "num_nodes|block"),
}


@pytest.mark.parametrize(("build", "words"), REFUSED.values(), ids=REFUSED)
def test_a_size_that_cannot_be_is_refused_by_name(build, words):
    with pytest.raises(GraphError, match=words):
        build()


def test_a_product_of_too_many_pairs_is_refused_with_its_cost():
    many = ga.graphs.random_sources(60_000, 300)
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


@pytest.mark.parametrize("size", [2**31, 2**40, 2**62, HUGE])
@pytest.mark.parametrize(
    "build",
    [
        lambda n: ga.graphs.full(n),
        lambda n: ga.graphs.causal(n),
        lambda n: ga.graphs.prefix(n, n // 2),
        lambda n: ga.graphs.sliding_window(n, n // 3),
        lambda n: ga.graphs.sinks(n, n // 3),
        lambda n: ga.graphs.asymmetric_window(n, n // 3, 5),
        lambda n: ga.graphs.block_local(n, n // 3, look_ahead=2),
        lambda n: ga.graphs.block_causal(n, n // 3),
        lambda n: ga.graphs.strided(n, 1000),
        lambda n: ga.graphs.global_tokens(n, (0, n - 1)),
        lambda n: ga.graphs.cross(n, 5),
        lambda n: ga.graphs.self_loops(n),
    ],
)
def test_a_rule_of_any_size_is_made_at_once(build, size):
    graph = build(size)
    assert graph.num_targets == size
    assert graph.contains(size - 1, 0).dtype is not None
    assert f"{size}" in repr(graph)
