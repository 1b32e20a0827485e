"""Layers on graphs of examples: a call equals a loop over the examples."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphattn as ga
from graphattn.errors import ShapeError
from graphattn.graphs import causal, cross, full, sliding_window
from graphattn.nn import GraphAttention, KeyValueCache, Rotary

F64 = torch.float64


def _random(targets: int, sources: int, density: float) -> ga.AttentionGraph:
    made = torch.Generator().manual_seed(targets + sources)
    return ga.from_mask(torch.rand(targets, sources, generator=made) < density)


GRAPHS = [causal(7), _random(5, 5, 0.6), sliding_window(6, 3, causal=False)]
EDGES = sum(graph.num_edges for graph in GRAPHS)
X = torch.randn(2, 3, 7, 16, dtype=F64)


def _alone(layer: Any, x: Tensor, **of_edges: Tensor) -> Tensor:
    """The outputs of each example alone, 0 on nodes that it lacks, for layers without bias."""
    rows = []
    first = 0
    for b, graph in enumerate(GRAPHS):
        nodes = graph.num_targets
        here = slice(first, first + graph.num_edges)
        first += graph.num_edges
        options = {name: value[..., here, :] for name, value in of_edges.items()}
        y = layer(x[..., b, :nodes, :], graph, **options)
        rows.append(nn.functional.pad(y, (0, 0, 0, x.shape[-2] - nodes)))
    return torch.stack(rows, -3)


LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary": Rotary(4)},
    "grouped heads": {"num_kv_heads": 2},
    "a score of edges": {"score": "gat"},
    "a sink": {"normalize": "sink"},
    "sums": {"normalize": "sparsemax"},
    "rows": {"normalize": "sigmoid"},
    "linear attention": {"score": "elu", "normalize": "sum"},
    "edge features": {"edge_dim": 5},
    "edge features of a score": {"edge_dim": 5, "score": "mlp"},
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_runs_each_example_on_its_graph(name: str) -> None:
    options = dict(LAYERS[name])
    if options.get("score") == "elu":
        options["score"] = ga.nn.FeatureScore("elu")
    layer = GraphAttention(16, 4, bias=False, **options).double()
    of_edges = {"score_bias": torch.randn(EDGES, 4, dtype=F64)}
    if "edge_dim" in options:
        of_edges["edge_attr"] = torch.randn(EDGES, 5, dtype=F64)
    graphs = ga.PerExample(GRAPHS)
    x = X.clone().requires_grad_()
    expected = _alone(layer, x, **of_edges)
    output = layer(x, graphs, **of_edges)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    arguments = [x, *layer.parameters()]
    towards = torch.randn_like(output)
    grads = torch.autograd.grad(output, arguments, towards, allow_unused=True)
    known = torch.autograd.grad(expected, arguments, towards, allow_unused=True)
    for grad, other in zip(grads, known, strict=True):
        if other is not None:
            torch.testing.assert_close(grad, other, rtol=0, atol=1e-11)
    without = {name: value for name, value in of_edges.items() if name == "edge_attr"}
    torch.testing.assert_close(
        layer(x, list(GRAPHS), **without), _alone(layer, x, **without), rtol=0, atol=1e-12
    )


def _by_numbers(score: Tensor, target: Tensor, num_targets: int, source: Tensor) -> Tensor:
    """Weights that depend on every number of nodes, which the function overwrites."""
    factor = torch.log(target + 2.0) / num_targets - 0.3 * (target - source).abs()
    weights = torch.exp(score) * factor[:, None]
    target.zero_()
    source.zero_()
    return weights


NUMBERED: dict[str, tuple[list[Any], int]] = {
    "square": (GRAPHS, 7),
    "rectangular": ([cross(7, 5), _random(6, 11, 0.4), cross(3, 11), cross(7, 5)], 11),
    "one for all": ([_random(7, 7, 0.5)] * 3, 7),
    "of heads": ([ga.PerHead((causal(5), full(5))), _random(7, 7, 0.4), causal(7)], 7),
    "without edges": ([_random(3, 7, 0.0), full(7), _random(7, 7, 0.0)], 7),
}


@pytest.mark.parametrize("name", NUMBERED)
@pytest.mark.parametrize("backend", ["auto", "edges", "message_passing", "observed"])
def test_a_normalisation_reads_the_numbers_of_its_own_example(name: str, backend: str) -> None:
    graphs, S = NUMBERED[name]
    layer = GraphAttention(16, 4, bias=False, normalize=_by_numbers).double()
    context = torch.randn(2, len(graphs), S, 16, dtype=F64, requires_grad=True)
    x = torch.randn(2, len(graphs), 7, 16, dtype=F64, requires_grad=True)
    rows = []
    for b, graph in enumerate(graphs):
        T = graph.num_targets
        y = layer(x[:, b, :T], graph, context=context[:, b, : graph.num_sources])
        rows.append(nn.functional.pad(y, (0, 0, 0, 7 - T)))
    expected = torch.stack(rows, 1)
    if backend == "observed":
        layer.register_message_forward_hook(lambda module, inputs, output: None)
    else:
        layer.backend = backend
    output = layer(x, graphs, context=context)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    towards = torch.randn_like(output)
    grads = torch.autograd.grad(output, (x, context), towards)
    known = torch.autograd.grad(expected, (x, context), towards)
    torch.testing.assert_close(grads, known, rtol=0, atol=1e-12)
    assert all(grad.abs().sum() > 0 for grad in grads)


def test_a_normalisation_reads_the_edge_features_of_its_own_example() -> None:
    def by_features(score: Tensor, target: Tensor, num_targets: int, edge_attr: Tensor) -> Tensor:
        return score * edge_attr.sum(-1, keepdim=True) / (target[:, None] + num_targets)

    layer = GraphAttention(16, 4, bias=False, edge_dim=5, normalize=by_features).double()
    attr = torch.randn(EDGES, 5, dtype=F64)
    expected = _alone(layer, X, edge_attr=attr)
    torch.testing.assert_close(layer(X, GRAPHS, edge_attr=attr), expected, rtol=0, atol=1e-12)


def test_a_normalisation_of_another_shape_is_refused_by_the_edges_of_its_example() -> None:
    layer = GraphAttention(16, 4, normalize=lambda score, target, num_targets: score.sum(-1))
    with pytest.raises(
        ShapeError,
        match=r"what normalize returns must have shape \(2, 28, 4\), got a Tensor \(2, 28\)",
    ):
        layer(X.float(), GRAPHS)


@pytest.mark.slow
def test_a_compiled_normalisation_reads_the_numbers_of_its_own_example() -> None:
    layer = GraphAttention(16, 4, bias=False, backend="edges", normalize=_by_numbers).double()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    output = compiled(X, ga.PerExample(GRAPHS))
    torch.testing.assert_close(output, _alone(layer, X), rtol=0, atol=1e-12)


def test_edge_features_may_be_of_each_example() -> None:
    graphs = ga.PerExample([_random(7, 7, 0.5), _random(7, 7, 0.5)])
    layer = GraphAttention(16, 4, edge_dim=5).double()
    attr = torch.randn(graphs.num_edges, 5, dtype=F64)
    x = X[:, :2]
    expected = layer(x, graphs, edge_attr=attr)
    torch.testing.assert_close(layer(x, graphs, edge_attr=attr.unflatten(0, (2, -1))), expected)
    with pytest.raises(ShapeError, match=r"edge_attr must have shape \(..., 44, 5\)"):
        layer(x, graphs, edge_attr=attr[:9])


@pytest.mark.parametrize("shared", [False, True])
def test_positions_may_be_shared_or_of_each_example(shared: bool) -> None:
    """Coordinates, whose differences are edge features."""
    layer = GraphAttention(16, 4, bias=False, edge_dim=3).double()
    pos = torch.randn(7, 3, dtype=F64)
    if not shared:
        pos = torch.randn(3, 7, 3, dtype=F64)
    output = layer(X, GRAPHS, positions=pos)
    for b, graph in enumerate(GRAPHS):
        nodes = graph.num_targets
        own = pos.expand(3, 7, 3)[b, :nodes]
        expected = layer(X[:, b, :nodes], graph, positions=own)
        torch.testing.assert_close(output[:, b, :nodes], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [ga.nn.ALiBi(4), ga.nn.T5Bias(4)], ids=repr)
def test_biases_count_positions_within_each_example(bias: nn.Module) -> None:
    graphs = ga.PerExample(GRAPHS)
    expected = torch.cat([bias(graph) for graph in GRAPHS])
    torch.testing.assert_close(bias(graphs), expected)


def test_contexts_have_sources_of_their_own() -> None:
    graphs = [cross(7, 5), _random(6, 11, 0.4)]
    layer = GraphAttention(16, 4, bias=False).double()
    context = torch.randn(2, 11, 16, dtype=F64)
    x = X[0, :2]
    output = layer(x, graphs, context=context)
    for b, graph in enumerate(graphs):
        T, S = graph.num_targets, graph.num_sources
        expected = layer(x[b, :T], graph, context=context[b, :S])
        torch.testing.assert_close(output[b, :T], expected, rtol=0, atol=1e-12)


def test_a_cache_continues_every_example() -> None:
    graphs = [causal(7), sliding_window(7, 3, causal=True), _random(7, 7, 0.5) & causal(7)]
    layer = GraphAttention(16, 4, bias=False, rotary=Rotary(4)).double()
    expected = layer(X, graphs)
    cache = KeyValueCache()
    steps = []
    for first, last in ((0, 4), (4, 5), (5, 7)):
        part = [g.subgraph(targets=range(first, last), sources=range(last)) for g in graphs]
        steps.append(layer(X[:, :, first:last], part, cache=cache))
    torch.testing.assert_close(torch.cat(steps, -2), expected, rtol=0, atol=1e-12)


def test_an_observed_layer_passes_the_messages_of_all_examples() -> None:
    layer = GraphAttention(16, 4, bias=False).double()
    expected = layer(X, GRAPHS)
    messages = []
    layer.register_message_forward_hook(lambda module, inputs, output: messages.append(output))
    torch.testing.assert_close(layer(X, GRAPHS), expected, rtol=0, atol=1e-12)
    assert messages[0].shape == (2, EDGES, 4, 4)


def test_models_take_graphs_of_examples_for_each_layer() -> None:
    torch.manual_seed(0)
    encoder = ga.models.Encoder(2, 16, 4).double().eval()
    graphs = ga.PerExample([causal(7), full(7), causal(...)])
    window = sliding_window(7, 3, causal=True)
    together = encoder(X[0], [graphs, window])
    for b, graph in enumerate((causal(7), full(7), causal(7))):
        alone = encoder(X[0, b], [graph, window])
        torch.testing.assert_close(together[b], alone, rtol=0, atol=1e-12)
    same = encoder(X[0], graphs)
    torch.testing.assert_close(same[1], encoder(X[0, 1], full(7)), rtol=0, atol=1e-12)


def test_models_with_lengths_leave_the_padding_of_each_example_out() -> None:
    encoder = ga.models.Encoder(2, 16, 4).double().eval()
    graphs = ga.PerExample([causal(7), full(7), sliding_window(7, 3, causal=False)])
    lengths = torch.tensor([4, 7, 5])
    y = encoder(X[0], graphs, lengths=lengths)
    for b, length in enumerate(lengths.tolist()):
        nodes = range(length)
        part = graphs.graphs[b].subgraph(targets=nodes, sources=nodes)
        torch.testing.assert_close(
            y[b, :length], encoder(X[0, b, :length], part), rtol=0, atol=1e-12
        )
    many = encoder(X, graphs, lengths=lengths.expand(2, 3))
    torch.testing.assert_close(many[0], y, rtol=0, atol=1e-12)


def test_a_batch_of_another_size_is_refused() -> None:
    layer = GraphAttention(16, 4).double()
    with pytest.raises(ShapeError, match=r"the graph has 3 examples, .* dimensions \(2,\)"):
        layer(X[:, 0], GRAPHS)
    with pytest.raises(ShapeError, match=r"x has 7 nodes .* the graph has 8 targets"):
        layer(X, [causal(8)] * 3)
