"""Rollout is the dense product of Abnar and Zuidema (2020), whatever the layers' graphs."""

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, GraphIndexError, OptionError, ShapeError
from graphattn.viz import plot, rollout


def random_layer(
    num_targets: int, num_sources: int, seed: int, density: float = 0.4, heads: int = 3
):
    generator = torch.Generator().manual_seed(seed)
    graph = ga.from_mask(torch.rand(num_targets, num_sources, generator=generator) < density)
    # alpha follows the caller's order
    shuffle = torch.randperm(graph.num_edges, generator=generator)
    graph = ga.from_edge_index(graph.edge_index[:, shuffle], num_sources, num_targets)
    query = torch.randn(num_targets, heads, 5, generator=generator)
    key = torch.randn(num_sources, heads, 5, generator=generator)
    return ga.attention(query, key, key, graph, return_weights=True).weights


def as_in_the_paper(layers, residual: float = 0.5) -> torch.Tensor:
    """Equation 1 and its normalised rows, on dense matrices; a bipartite layer is its weights
    alone.
    """
    product = None
    for layer in layers:
        step = layer.dense().double().mean(0)
        if step.shape[0] == step.shape[1]:
            step = residual * torch.eye(len(step), dtype=torch.float64) + (1 - residual) * step
            step = step / step.sum(1, keepdim=True)
        product = step if product is None else step @ product
    return product


SCHEDULES = {
    "one layer": [(11, 11)],
    "three square layers": [(11, 11)] * 3,
    "pooled": [(13, 13), (7, 13), (7, 7)],
    "latents and back": [(3, 17), (3, 3), (17, 3)],
    "one node": [(1, 1)] * 2,
}


@pytest.mark.parametrize("residual", [0.5, 0.3, 1.0])
@pytest.mark.parametrize("name", SCHEDULES)
def test_it_is_the_dense_product(name, residual):
    layers = [random_layer(t, s, seed) for seed, (t, s) in enumerate(SCHEDULES[name])]
    found = rollout(layers, residual)
    wanted = as_in_the_paper(layers, residual)
    assert wanted.abs().sum() > 0
    torch.testing.assert_close(found.dense()[0], wanted, rtol=1e-6, atol=1e-7)
    if name == "three square layers" and residual < 1:  # and the order of the layers matters
        assert (found.dense()[0] - as_in_the_paper(layers[::-1], residual)).abs().max() > 0.01


def test_shifted_cells_mix_across_the_border_of_cells():
    plain = ga.graphs.window_partition((6, 10), (3, 5))
    shifted = ga.graphs.window_partition((6, 10), (3, 5), shift=(1, 2))
    x = torch.randn(60, 2, 3, generator=torch.Generator().manual_seed(0))
    layers = [
        ga.attention(x, x, x, graph, return_weights=True).weights for graph in (plain, shifted)
    ]
    found = rollout(layers)
    torch.testing.assert_close(found.dense()[0], as_in_the_paper(layers), rtol=1e-6, atol=1e-7)
    assert found.graph.equals(
        (shifted | ga.graphs.self_loops(60)) @ (plain | ga.graphs.self_loops(60))
    )
    assert found.graph.num_edges > plain.num_edges


def test_without_a_residual_it_is_the_product_of_the_weights():
    layers = [random_layer(9, 9, seed) for seed in range(3)]
    wanted = (
        layers[2].dense().double().mean(0)
        @ layers[1].dense().double().mean(0)
        @ layers[0].dense().double().mean(0)
    )
    torch.testing.assert_close(rollout(layers, 0).dense()[0], wanted, rtol=1e-6, atol=1e-9)


def test_a_residual_for_each_layer_tells_square_cross_attention_apart():
    layers = [random_layer(9, 9, seed) for seed in range(2)]
    identity = torch.eye(9, dtype=torch.float64)
    last = 0.25 * identity + 0.75 * layers[1].dense().double().mean(0)
    last = last / last.sum(1, keepdim=True)
    wanted = last @ layers[0].dense().double().mean(0)
    torch.testing.assert_close(rollout(layers, [0, 0.25]).dense()[0], wanted, rtol=1e-6, atol=1e-9)


def test_an_isolated_target_keeps_itself():
    graph = ga.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 3, 3)
    layer = ga.EdgeWeights(graph, torch.tensor([[0.25], [0.75]]))
    found = rollout([layer, layer])
    assert found.dense()[0, 2].tolist() == [0, 0, 1]
    torch.testing.assert_close(found.dense()[0].sum(1), torch.ones(3, dtype=torch.float64))
    assert rollout([layer], 0).dense()[0, 2].tolist() == [0, 0, 0]


def test_copies_of_an_edge_add_up():
    graph = ga.from_edge_index(torch.tensor([[0, 1, 0], [1, 1, 1]]), 2, 2, duplicates="keep")
    layer = ga.EdgeWeights(graph, torch.tensor([[0.25], [0.5], [0.25]]))
    assert rollout([layer], 0).dense()[0].tolist() == [[0, 0], [0.5, 0.5]]


def test_some_targets_are_rows_of_all():
    layers = [random_layer(11, 11, seed) for seed in range(3)]
    every, some = rollout(layers).dense()[0], rollout(layers, targets=[7, 2]).dense()[0]
    torch.testing.assert_close(some[[2, 7]], every[[2, 7]])
    assert some.count_nonzero(1).nonzero().flatten().tolist() == [2, 7]


def test_pictures_take_it():
    layers = [random_layer(11, 11, seed) for seed in range(2)]
    assert "target 4 reads" in plot(rollout(layers, targets=4), target=4).get_suptitle()


def test_a_long_sequence_stays_sparse():
    graph = ga.graphs.sliding_window(20_011, window=3, causal=True)
    layer = ga.EdgeWeights(graph, 1 / graph.in_degree[graph.target][:, None].double())
    found = rollout([layer] * 3)
    assert (
        found.graph.num_edges == ga.graphs.sliding_window(20_011, window=7, causal=True).num_edges
    )
    there, back = ga.graphs.cross(2, 60_000), ga.graphs.cross(60_000, 2)  # targets, sources
    layers = [ga.EdgeWeights(g, 1 / g.in_degree[g.target][:, None].double()) for g in (there, back)]
    with pytest.raises(GraphError, match="ask for some targets="):
        rollout(layers)
    assert rollout(layers, targets=5).graph.num_edges == 60_000


@pytest.mark.parametrize(
    ("sizes", "options", "error", "words"),
    [
        ([], {}, OptionError, "one layer or more"),
        ([(5, 5)], {"residual": 1.5}, OptionError, r"a number in \[0, 1\]"),
        ([(5, 5)], {"residual": [0.5, 0.5]}, OptionError, "one for each layer"),
        ([(5, 5)], {"residual": "a"}, OptionError, "one for each layer; got .a."),
        ([(5, 5)], {"residual": [[0.5]]}, OptionError, "one for each layer"),
        ([(5, 7)], {"residual": [0.5]}, OptionError, "residual of layer 0 must be 0"),
        (
            [(5, 7), (7, 5), (3, 5)],
            {},
            ShapeError,
            "layer 1 has 7 targets, and layer 2 reads 5 sources",
        ),
        (
            [(5, 5)],
            {"targets": 5},
            GraphIndexError,
            r"targets must be in \[0, 5\), the targets, got 5 to 5",
        ),
    ],
)
def test_refusals(sizes, options, error, words):
    with pytest.raises(error, match=words):
        rollout([random_layer(t, s, 0) for t, s in sizes], **options)


def test_a_batch_is_refused():
    layer = random_layer(5, 5, 0)
    with pytest.raises(
        ShapeError, match=r"weights.alpha must have shape \(10, H\), got \(2, 10, 3\)"
    ):
        rollout([ga.EdgeWeights(layer.graph, layer.alpha.expand(2, -1, -1))])
