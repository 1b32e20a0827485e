"""Random graphs: what was asked for, exactly; the right distribution; the same for the same
seed.
"""

import networkx
import pytest
import torch
from scipy import stats

from graphattn import from_networkx, graphs


@pytest.mark.parametrize(
    ("targets", "sources", "k"),
    [(0, 5, 2), (5, 0, 0), (1, 1, 1), (13, 7, 3), (7, 13, 13), (17, 17, 0)],
)
def test_random_sources_are_k_different_ones(targets, sources, k):
    graph = graphs.random_neighbours(targets, k, 3, num_sources=sources)
    assert (graph.num_targets, graph.num_sources) == (targets, sources)
    assert graph.in_degree.tolist() == [k] * targets
    assert not graph.has_repeated_edges
    pairs = graph.target * sources + graph.source
    assert bool((pairs[1:] > pairs[:-1]).all())
    assert graph.equals(graphs.random_neighbours(targets, k, 3, num_sources=sources))


def test_every_choice_of_sources_is_as_likely_as_another():
    graph = graphs.random_neighbours(14_000, 3, 5, num_sources=7)
    chosen = (graph.source.view(-1, 3) * torch.tensor([49, 7, 1])).sum(1)
    times = torch.unique(chosen, return_counts=True)[1]
    assert times.numel() == 35  # 7 choose 3
    assert stats.chisquare(times.numpy()).pvalue > 1e-4
    assert not graph.equals(graphs.random_neighbours(14_000, 3, 6, num_sources=7))


@pytest.mark.parametrize("n", [1, 5, 13, 101])
def test_random_sources_avoid_a_graph(n):
    near = graphs.sliding_window(n, 3, causal=False) | graphs.global_tokens(
        n, (0, n - 1) if n > 1 else (0,)
    )
    graph = graphs.random_neighbours(n, 4, 7, avoid=near)
    assert (graph & near).num_edges == 0
    assert graph.in_degree.tolist() == [min(4, n - int(d)) for d in near.in_degree]
    if n == 101:  # all that is free is drawn alike
        far = graphs.random_neighbours(n, 4, 7, avoid=graphs.self_loops(n))
        pulls = sum(
            graphs.random_neighbours(5, 1, seed, avoid=graphs.causal(5)).mask().int()
            for seed in range(300)
        )
        assert (far & graphs.self_loops(n)).num_edges == 0
        assert pulls.tril().sum() == 0
        assert stats.chisquare(pulls[0, 1:].numpy()).pvalue > 1e-4


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("probability", [0.0, 0.01, 0.4, 1.0, 1])
def test_erdos_renyi_has_the_degrees_of_networkx(listed, probability):
    n = 211
    graph = graphs.erdos_renyi(n, probability, 5, listed=listed).without_self_loops()
    peer = from_networkx(networkx.gnp_random_graph(n, probability, seed=5, directed=True))
    spread = (n * (n - 1) * probability * (1 - probability)) ** 0.5
    for found in (graph, peer):
        assert abs(found.num_edges - n * (n - 1) * probability) <= 5 * spread
    if 0 < probability < 1:
        for mine, theirs in (
            (graph.in_degree, peer.in_degree),
            (graph.out_degree, peer.out_degree),
        ):
            assert stats.ks_2samp(mine.numpy(), theirs.numpy()).pvalue > 1e-4
        # a standard deviation: the test can fail
        moved = peer.in_degree.numpy() + int(spread / n**0.5) + 1
        assert stats.ks_2samp(graph.in_degree.numpy(), moved).pvalue < 1e-4


@pytest.mark.parametrize("listed", [True, False])
def test_erdos_renyi(listed):
    for targets, sources in ((0, 5), (5, 0), (1, 1), (13, 29)):
        graph = graphs.erdos_renyi(targets, 0.5, 2, num_sources=sources, listed=listed)
        assert (graph.num_targets, graph.num_sources, graph.is_rule) == (
            targets,
            sources,
            not listed,
        )
        assert graph.equals(graphs.erdos_renyi(targets, 0.5, 2, num_sources=sources, listed=listed))
        assert torch.equal(graph.materialise().mask(), graph.mask())
    assert not graph.equals(graphs.erdos_renyi(13, 0.5, 3, num_sources=29, listed=listed))
    # loops
    assert bool(
        graphs.erdos_renyi(50, 0.5, listed=listed)
        .contains(torch.arange(50), torch.arange(50))
        .any()
    )


def test_rare_edges_among_many_pairs_are_listed_and_a_rule_stores_none():
    graph = graphs.erdos_renyi(10**6, 1e-7)
    assert abs(graph.num_edges - 100_000) < 2_000
    pairs = graph.target * 10**6 + graph.source
    assert bool((pairs[1:] > pairs[:-1]).all())
    rule = graphs.erdos_renyi(10**9, 0.25, listed=False)
    nodes = torch.arange(10**9 - 4000, 10**9)
    assert 800 < int(rule.contains(nodes, nodes.flip(0)).sum()) < 1200
