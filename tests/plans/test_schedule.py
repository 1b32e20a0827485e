"""Rows taken in an order in which neighbours stand together."""

import pytest
import torch

import graphattn as ga
from graphattn.backends.edges import constant_layout
from graphattn.errors import GraphError
from graphattn.plans import grouped


def shuffled_ring(size, seed=0):
    """A ring of ``size`` nodes numbered at random, each reading two neighbours on either side."""
    node = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    edges = torch.cat([torch.stack([node.roll(step), node]) for step in (-2, -1, 0, 1, 2)], 1)
    return ga.from_edge_index(edges, num_nodes=size)


def test_an_order_is_found_where_neighbours_stand_far_apart_and_can_come_near():
    size = 2 * grouped.FAR + 5
    bad = shuffled_ring(4 * size)
    order = grouped.order(bad)
    assert torch.equal(order.sort().values, torch.arange(4 * size))
    assert grouped.distance(bad) > grouped.FAR > 100 * grouped.distance(bad, order.argsort())
    for graph in (
        ga.graphs.sliding_window(4 * size, 5, causal=True).materialise(),
        shuffled_ring(grouped.FAR),
    ):
        assert grouped.order(graph) is None  # in order already; small enough for the caches
    step = torch.randint(4 * size, (2, 16 * size), generator=torch.Generator().manual_seed(0))
    # no order helps
    assert grouped.order(ga.from_edge_index(step.unique(dim=1), num_nodes=4 * size)) is None


def test_a_relabelled_graph_is_the_same_graph_with_neighbours_near():
    graph = shuffled_ring(300)
    near, order = graph.reordered()
    assert grouped.distance(near) < 5 < 50 < grouped.distance(graph)
    # edge by edge, so that biases stay as they are
    assert torch.equal(order[near.edge_index], graph.edge_index)
    bias, x = torch.randn(graph.num_edges, 2), torch.randn(300, 2, 8, dtype=torch.float64)
    there = ga.attention(*[x[order]] * 3, near, score_bias=bias)
    assert (
        there[order.argsort()] - ga.attention(x, x, x, graph, score_bias=bias)
    ).abs().max() < 1e-13
    with pytest.raises(GraphError, match="reordered"):
        ga.graphs.cross(3, 4).reordered()


def test_explain_says_where_relabelling_pays(monkeypatch):
    monkeypatch.setattr(grouped, "FAR", 100)
    graph = shuffled_ring(700)
    assert "after graph.reordered()" in str(ga.explain(graph))
    assert "reordered" not in str(ga.explain(graph.reordered()[0]))


@pytest.mark.parametrize("options", [{}, {"score_bias": True, "softcap": 2.0}, {"dropout_p": 0.4}])
def test_the_bits_do_not_depend_on_the_order_of_the_rows(options, monkeypatch):
    monkeypatch.setattr(grouped, "FAR", 100)
    graph = shuffled_ring(700)
    leaves = [torch.randn(700, 4, 8, requires_grad=True) for _ in range(3)]
    if options.get("score_bias"):
        bias = torch.randn(graph.num_edges, 4)
        bias[::7] = -torch.inf
        options = {**options, "score_bias": bias}

    def run():
        torch.manual_seed(5)
        output = ga.attention(*leaves, graph, backend="edges", **options)
        return [output.detach(), *torch.autograd.grad(output.sin().sum(), leaves)]

    first, second = run(), run()
    order = constant_layout(graph, torch.device("cpu"), True)[3]
    assert not torch.equal(order, torch.arange(700, dtype=order.dtype))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
