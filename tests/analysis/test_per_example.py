"""Questions about graphs of examples."""

import pytest
import torch

import graphattn as ga
from graphattn.analysis import flops, receptive_field
from graphattn.graph.kinds.layers import reach
from graphattn.graphs import causal, full, sliding_window

AHEAD = sliding_window(7, 3, causal=False)


def test_the_example_that_leaks_is_named() -> None:
    graphs = ga.PerExample([causal(7), causal(5), AHEAD, causal(5)])
    leak = ga.leaks([sliding_window(7, 3, causal=True), graphs])
    assert (leak.example, leak.gap) == (2, 1)
    assert leak.path == ga.leaks([sliding_window(7, 3, causal=True), AHEAD]).path
    assert str(leak).splitlines()[0].endswith("which is 1 later, in example 2")
    assert leak.to_dict()["example"] == 2
    fine = ga.leaks(ga.PerExample([causal(7), causal(5)]))
    assert fine.ok
    assert fine.example is None
    later = torch.tensor([6, 5, 4, 3, 2, 1, 0])
    assert ga.leaks(ga.PerExample([AHEAD, causal(5)]), later).example == 0
    assert ga.leaks(ga.PerExample([causal(1), causal(7)]), later).example == 1


def test_layers_of_examples_are_asked_side_by_side() -> None:
    graphs = ga.PerExample([causal(5), full(5)])
    window = sliding_window(5, 2, causal=True)
    joint = reach([window, graphs])
    for example, graph in enumerate(graphs.graphs):
        nodes = range(5 * example, 5 * example + 5)
        part = joint.subgraph(targets=nodes, sources=nodes)
        assert part.equals(graph @ window)
    assert joint.num_edges == sum((graph @ window).num_edges for graph in graphs.graphs)
    assert int(receptive_field(graphs.union()).sizes[0].max()) == 5
    both = flops([graphs, window], embed_dim=8, num_heads=2)
    alone = [flops([graph, window], embed_dim=8, num_heads=2) for graph in graphs.graphs]
    assert both.attention == sum(one.attention for one in alone)
    assert both.projections == sum(one.projections for one in alone)


def test_layers_of_other_numbers_of_examples_are_refused() -> None:
    of_two = ga.PerExample([causal(5)] * 2)
    with pytest.raises(ga.GraphError, match="as many examples, got graphs of 2 and 3"):
        reach([of_two, ga.PerExample([causal(5)] * 3)])


@pytest.mark.parametrize("ask", [ga.facts, ga.plot, ga.analysis.find_nonfinite])
def test_what_takes_one_graph_says_how_to_get_one(ask) -> None:
    graphs = ga.PerExample([causal(5), full(5)])
    x = torch.zeros(2, 5, 1, 1)
    with pytest.raises(ga.GraphError, match=r"pass one of its \.graphs, or \.union\(\)"):
        ask(x, x, x, graphs) if ask is ga.analysis.find_nonfinite else ask(graphs)


def test_a_shard_is_of_the_union_of_the_examples() -> None:
    graphs = ga.PerExample([causal(5), full(3)])
    with pytest.raises(ga.GraphError, match=r"\.union\(\), all examples side by side in one row"):
        ga.distributed.shard(graphs)
    layer = ga.nn.GraphAttention(8, 2, backend="edges")
    x = torch.randn(2, 5, 8)
    shard = ga.distributed.shard(graphs.union())
    y = shard.gather(layer(shard.scatter(x.flatten(0, 1)), shard)).unflatten(0, (2, 5))
    assert torch.equal(y, layer(x, graphs))


@pytest.mark.parametrize(
    "ask",
    [
        receptive_field,
        ga.analysis.path_counts,
        ga.analysis.jacobian_bound,
        ga.analysis.influence_distribution,
        lambda layers, targets: ga.analysis.measure_leaks(lambda x: x, torch.zeros(5, 2), layers),
    ],
)
def test_a_question_about_targets_is_of_one_example(ask) -> None:
    graphs = ga.PerExample([causal(5), full(5)])
    message = r"layer 1 has a graph for each example, .*graphs\[b\], .*graphs\.union\(\)"
    with pytest.raises(ga.GraphError, match=message):
        ask([causal(5), graphs], [1])
    ask([causal(5), graphs[0]], [1])


def test_weights_of_graphs_of_examples_are_rolled_out_one_by_one() -> None:
    x = torch.randn(2, 5, 2, 3)
    graphs = ga.PerExample([causal(5), full(3)])
    weights = ga.attention(x, x, x, graphs, return_weights=True).weights
    shared = ga.attention(x[0], x[0], x[0], causal(5), return_weights=True).weights
    for layers in ([weights, weights], [shared, weights]):
        with pytest.raises(ga.errors.ShapeError, match=r"pass those of one, weights\.of_example"):
            ga.viz.rollout(layers)
    assert ga.viz.rollout([weights.of_example(0)] * 2).graph.num_targets == 5


def test_a_mask_is_audited_example_by_example() -> None:
    graphs = ga.PerExample([causal(5), full(5)])
    heads = ga.PerHead((causal(5), full(5)))
    for expect in (causal(5), heads):
        with pytest.raises(ga.GraphError, match="mask must be of one example, got PerExample"):
            ga.audit(graphs, expect)
    masks = torch.stack([graph.mask() for graph in graphs])[:, None]
    assert all(ga.audit(masks[b, 0], graphs[b]).ok for b in range(len(graphs)))
