"""Receptive fields, path counts and leaks of schedules, judged by matrix products, Jacobians and
brute force.
"""

from itertools import product

import pytest
import torch
from graph_table import GRAPHS
from judges import layers_multiplied

import graphattn as ga
from graphattn import GraphAttnError, graphs
from graphattn.graph import PerHead

MILLION = 1_000_000
SCHEDULES = {
    "wavenet": [graphs.sliding_window(23, 2, causal=True, dilation=d) for d in (1, 2, 4, 8)],
    "window and strided": [
        graphs.sliding_window(17, 3, causal=False),
        graphs.sliding_window(17, 4, causal=True, dilation=4),
    ],
    "listed": [GRAPHS["listed_random"](), GRAPHS["rule_or_listed"](), GRAPHS["listed_random"]()],
    "bipartite": [GRAPHS["listed_bipartite"](), GRAPHS["listed_bipartite"]().reverse()],
    "pooling": [graphs.cross(5, 11), graphs.causal(5), graphs.cross(11, 5)],
    "intervals": [graphs.sliding_window(19, 5, causal=False), graphs.causal(19), graphs.full(19)],
    "no loops": [graphs.causal(13) - graphs.self_loops(13)] * 2,
    "isolated": [GRAPHS["isolated_targets"]()],
    "repeated": [GRAPHS["repeated_edges"](), GRAPHS["repeated_edges"]().reverse()],
    "grid": [
        graphs.window_partition((6, 10), (3, 5)),
        graphs.window_partition((6, 10), (3, 5), shift=(1, 2)),
    ],
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("residual", [False, True])
def test_fields_and_counts_are_the_products_of_the_masks(name, residual):
    layers = SCHEDULES[name]
    every = layers_multiplied(layers, residual)
    found = ga.analysis.receptive_field(layers, residual=residual)
    assert len(found.graphs) == len(layers)
    for graph, size, expected in zip(found.graphs, found.sizes, every, strict=True):
        assert torch.equal(graph.mask(), expected > 0)
        assert torch.equal(size, (expected > 0).sum(1))
    assert torch.equal(ga.analysis.path_counts(layers, residual=residual), every[-1])
    few = [layers[-1].num_targets - 1, 1]
    assert torch.equal(ga.analysis.path_counts(layers, few, residual=residual), every[-1][few])
    assert torch.equal(
        ga.analysis.receptive_field(layers, few, residual=residual).graphs[-1].mask(),
        every[-1][few] > 0,
    )


def test_receptive_field_is_the_support_of_the_jacobian():
    layers = SCHEDULES["window and strided"]
    x = torch.randn(17, 1, 2, dtype=torch.float64, requires_grad=True)

    def stack(x):
        for layer in layers:
            x = ga.attention(x, x, torch.sin(x), layer)
        return x.sum((1, 2))

    jacobian = torch.autograd.functional.jacobian(stack, x).abs().sum((2, 3))
    assert torch.equal(ga.analysis.receptive_field(layers).graphs[-1].mask(), jacobian > 0)
    assert not torch.equal(ga.analysis.receptive_field(layers[:1]).graphs[-1].mask(), jacobian > 0)


@pytest.mark.slow
def test_wavenet_sees_sixteen_at_any_length():
    layers = [graphs.sliding_window(MILLION, 2, causal=True, dilation=d) for d in (1, 2, 4, 8)]
    found = ga.analysis.receptive_field(layers, targets=[MILLION - 1])
    assert [int(size) for size in found.sizes] == [2, 4, 8, 16]
    assert found.graphs[-1].source.tolist() == list(range(MILLION - 16, MILLION))
    assert int(ga.analysis.path_counts(layers, targets=[MILLION - 1]).sum()) == 16
    windows = ga.analysis.receptive_field([graphs.sliding_window(MILLION, 257, causal=True)] * 3)
    assert int(windows.sizes[-1].max()) == 3 * 256 + 1
    assert "after layer 2: 1 to 769" in str(windows)
    assert windows.to_dict()["layers"][0]["most"] == 257


def test_heads_of_their_own_count_as_one_layer():
    rows, columns = graphs.window_partition((4, 6), (1, 6)), graphs.window_partition((4, 6), (4, 1))
    found = ga.analysis.receptive_field([PerHead((rows, columns))])
    assert torch.equal(found.graphs[0].mask(), rows.mask() | columns.mask())
    assert torch.equal(ga.analysis.receptive_field(rows).graphs[0].mask(), rows.mask())


def test_too_much_is_refused_with_its_cost():
    with pytest.raises(GraphAttnError, match="fewer targets"):
        ga.analysis.receptive_field([graphs.logsparse(20_000)] * 2, budget=10_000)
    with pytest.raises(GraphAttnError, match="fewer targets"):
        ga.analysis.path_counts(graphs.causal(MILLION))
    with pytest.raises(GraphAttnError, match="fewer layers"):
        ga.analysis.path_counts([graphs.full(1000)] * 8, targets=[0])
    with pytest.raises(GraphAttnError, match=r"targets must be in \[0, 5\), the nodes, got 5 to 5"):
        ga.analysis.receptive_field(graphs.causal(5), targets=[5])
    with pytest.raises(GraphAttnError, match="layer 1 reads 5 sources"):
        ga.leaks([graphs.causal(7), graphs.causal(5)])


def brute_force_leak(layers, order, residual):
    """Fewest edges of a way from a later node to an earlier one, or None: every walk, layer by
    layer.
    """
    size = layers[0].num_sources
    best = None
    for start in range(size):
        fewest = {start: 0}
        for layer in layers:
            step = dict(fewest) if residual and layer.is_square else {}
            for s, t in layer.edge_index.t().tolist():
                if s in fewest:
                    step[t] = min(step.get(t, 99), fewest[s] + 1)
            fewest = step
        for end, edges in fewest.items():
            if order[start] > order[end] and (best is None or edges < best):
                best = edges
    return best


ORDERS = {
    "numbers": None,
    "backwards": lambda n: list(range(n))[::-1],
    "pairs": lambda n: [i // 2 for i in range(n)],
}


@pytest.mark.parametrize(
    ("name", "residual", "order"), list(product(SCHEDULES, (False, True), ORDERS))
)
def test_the_shortest_leak_is_that_of_brute_force(name, residual, order):
    layers = SCHEDULES[name]
    if layers[0].num_sources != layers[-1].num_targets:
        return
    size = layers[0].num_sources
    place = list(range(size)) if ORDERS[order] is None else ORDERS[order](size)
    found = ga.leaks(layers, None if order == "numbers" else place, residual=residual)
    expected = brute_force_leak(layers, place, residual)
    assert found.ok == (expected is None) == (not found)
    assert len(found.path) == (expected or 0)
    if found.path:
        first, last = found.path[0][1], found.path[-1][2]
        assert found.gap == place[first] - place[last] > 0
        assert f"{last} depends on {first}" in str(found)
    node = found.path[0][1] if found.path else 0
    for layer, source, target in found.path:  # a chain of real edges
        assert source == node
        assert bool(layers[layer].contains(target, source))
        node = target
    assert [layer for layer, _, _ in found.path] == sorted({layer for layer, _, _ in found.path})
    for layer, count in zip(layers, found.edges, strict=True):
        if layer.is_square and layer.num_targets == size:
            assert count == sum(place[s] > place[t] for s, t in layer.edge_index.t().tolist())
        else:
            assert count is None


def test_a_future_leak_through_window_and_strided_layers_is_named():
    found = ga.leaks(SCHEDULES["window and strided"], residual=False)
    assert [layer for layer, _, _ in found.path] == [0, 1]
    assert found.edges == (16, 0)
    causal = [
        graphs.sliding_window(17, 3, causal=True),
        graphs.sliding_window(17, 4, causal=True, dilation=4),
    ]
    assert ga.leaks(causal).ok
    assert "no leak" in str(ga.leaks(causal))
    # causal nowhere, though no layer has an order
    latents = ga.leaks([graphs.cross(3, 8), graphs.cross(8, 3)])
    assert latents.gap == 7
    assert latents.to_dict()["edges"] == [None, None]


@pytest.mark.parametrize(("name", "order"), list(product(SCHEDULES, ORDERS)))
def test_a_leak_through_residual_connections_only_says_so(name, order):
    layers = SCHEDULES[name]
    size = layers[0].num_sources
    place = list(range(size)) if ORDERS[order] is None else ORDERS[order](size)
    if layers[-1].num_targets != size:
        return
    found = ga.leaks(layers, place, residual=True)
    expected = bool(found) and brute_force_leak(layers, place, False) is None
    assert found.only_residual == found.to_dict()["only_residual"] == expected
    assert ("only through residual connections" in str(found)) == expected
    assert not ga.leaks(layers, place, residual=False).only_residual


def test_the_future_kept_by_a_residual_connection():
    one_ahead = graphs.sliding_window(9, 2, causal=True).reverse() - graphs.self_loops(9)
    one_back = one_ahead.reverse()
    # t reads t + 1, which it keeps; without, t reads t alone
    found = ga.leaks([one_ahead, one_back])
    assert found.only_residual
    assert not ga.leaks([one_ahead, one_back], residual=False)
    assert not ga.leaks([one_ahead.with_self_loops(), one_back.with_self_loops()]).only_residual


def test_leaks_of_long_rules():
    size = MILLION // 5
    layers = [graphs.causal(size), graphs.sliding_window(size, 257, causal=True)]
    assert ga.leaks(layers).ok
    found = ga.leaks([*layers, graphs.sliding_window(size, 3, causal=False)])
    assert found.path == ((2, 1, 0),)
    assert found.edges == (0, 0, size - 1)


def test_orders_may_be_as_far_apart_as_integers_are():
    assert ga.leaks(graphs.causal(2), [-(2**63), 2**63 - 1]).ok
    found = ga.leaks(graphs.full(2), [-(2**63), 2**63 - 1])
    assert (found.path, found.gap) == (((0, 1, 0),), 2**64 - 1)


def test_orders_are_checked():
    for order in ([0, 1], [0.0] * 13, torch.zeros(13, 1, dtype=torch.int64)):
        with pytest.raises(
            GraphAttnError, match=r"order must (have shape|be integers \(int64\)) \(13,\)"
        ):
            ga.leaks(graphs.causal(13), order)
    with pytest.raises(GraphAttnError, match="13 sources and 7 targets"):
        ga.leaks(GRAPHS["cross"]())


@pytest.mark.parametrize(
    "make",
    [
        lambda: graphs.sliding_window(23, 5, causal=False),
        lambda: graphs.causal(17),
        lambda: graphs.full(11),
        lambda: graphs.sliding_window(31, 5, causal=True, dilation=3),
        lambda: graphs.self_loops(7),
        lambda: ~graphs.full(5),
        lambda: graphs.sliding_window(29, 4, causal=True) | graphs.global_tokens(29, [0, 13]),
    ],
)
@pytest.mark.parametrize("ties", [False, True])
def test_an_order_counts_the_edges_of_a_rule_without_listing_them(make, ties, monkeypatch):
    graph = make()
    generator = torch.Generator().manual_seed(graph.num_nodes)
    order = torch.randperm(graph.num_nodes, generator=generator)
    if ties:
        order = order // 3
    expected = int((order[graph.source] > order[graph.target]).sum())
    monkeypatch.setattr(ga.AttentionGraph, "_listed", lambda self: pytest.fail("listed"))
    assert ga.leaks(make(), order).edges == (expected,)


def test_an_order_of_many_nodes_is_counted_by_intervals():
    size = 1 << 18
    order = torch.arange(size) ^ 1  # two neighbours change their places
    found = ga.leaks(graphs.causal(size), order, budget=1 << 40)
    assert (found.edges, found.gap) == ((size // 2,), 1)
