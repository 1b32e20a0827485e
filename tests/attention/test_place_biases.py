"""Biases that modules make of places: a table that the block kernel reads, and no tensor of edges."""

from functools import wraps

import pytest
import torch

import graphattn as ga
from graphattn.backends import place_bias
from graphattn.backends.place_bias import PlaceBias
from graphattn.errors import ShapeError
from graphattn.nn import ALiBi, SwinBias, SwinV2Bias, T5Bias
from graphattn.twins.dense import dense_attention

H = 6


class LearnedSlopes(ALiBi):
    """ALiBi with slopes of its own."""

    def __init__(self, num_heads):
        super().__init__(num_heads)
        self.exponents = torch.nn.Parameter(torch.linspace(-3.0, -1.0, num_heads))

    @property
    def slopes(self):
        return self.exponents.exp2()


CELLS = ga.graphs.window_partition((14, 21), cell=(7, 7), shift=(3, 3))
CASES = {
    "alibi, causal": (ALiBi(H), ga.graphs.causal(101)),
    "learned slopes, a window": (LearnedSlopes(H), ga.graphs.sliding_window(211, 37, causal=False)),
    "t5, keys longer than queries": (T5Bias(H, 8, 21), ga.graphs.cross(31, 87)),
    "t5 of a decoder, isolated targets": (
        T5Bias(H, 8, 21, bidirectional=False),
        ga.from_mask(torch.ones(89, 97).tril(-3).bool()),
    ),
    "t5, at random": (
        T5Bias(H, 8, 21),
        ga.from_mask(torch.rand(61, 47, generator=torch.Generator().manual_seed(0)) < 0.1),
    ),
    "swin, a line": (SwinBias(19, H), ga.graphs.sliding_window(101, 37, causal=False)),
    "swin, shifted cells": (SwinBias((7, 7), H), CELLS),
    "swin, dilated": (
        SwinBias((3, 5), H),
        ga.graphs.grid_neighbourhood((12, 20), (3, 5), dilation=2, causal=False),
    ),
    "swin, padding that is read": (
        SwinBias((3, 2), H),
        ga.graphs.window_partition((5, 7), (3, 2), (1, 1), read_padding=True),
    ),
    "swin 2, a video": (
        SwinV2Bias((2, 2, 3), H, hidden=5),
        ga.graphs.window_partition((2, 4, 6), (2, 2, 3)),
    ),
}


@pytest.fixture
def always(monkeypatch):
    """Biases of small graphs are by place, too."""
    monkeypatch.setattr(place_bias, "FEW", 0)
    monkeypatch.setattr(place_bias, "WORTH", 0)


@pytest.fixture
def no_tensor_of_edges(always, monkeypatch):
    """Biases of edges are refused."""

    def refuse(bias, graph):
        raise AssertionError("a bias of every edge")

    monkeypatch.setattr(PlaceBias, "on", refuse)
    for kind in (ALiBi, T5Bias, SwinBias, SwinV2Bias):
        monkeypatch.setattr(kind, "forward", wraps(kind.forward)(lambda *a: refuse(*a)))


def made(name, dtype=torch.float64):
    """A bias far from zero, its graph, and query, key and value with grouped heads."""
    torch.manual_seed(0)
    bias, graph = CASES[name]
    bias = bias.to(dtype)
    for parameter in bias.parameters():
        torch.nn.init.normal_(parameter)
    T, S = graph.num_targets, graph.num_sources
    shapes = ((2, T, H, 7), (2, S, 3, 7), (2, S, 3, 5))
    return bias, graph, [torch.randn(x, dtype=dtype, requires_grad=True) for x in shapes]


def results(outputs, leaves):
    """Output, lse and all gradients."""
    output, lse = outputs
    lse = lse.masked_fill(lse == -torch.inf, -99.0)
    loss = (output * output.detach().cos()).sum() + lse.sin().sum()
    return [output, lse, *torch.autograd.grad(loss, leaves)]


def of_twin(bias, graph, operands):
    """Those of the dense twin."""
    pairs = torch.zeros(graph.num_targets, graph.num_sources, H, dtype=operands[0].dtype)
    matrix = pairs.index_put((graph.target, graph.source), bias(graph))
    twin = dense_attention(*operands, graph.mask(), matrix.movedim(-1, 0))
    return results((twin.output, twin.lse), [*operands, *bias.parameters()])


def found_by(bias, graph, operands):
    outputs = ga.attention(*operands, graph, score_bias=bias, return_lse=True, backend="tiles")
    return results((outputs.output, outputs.lse), [*operands, *bias.parameters()])


@pytest.mark.parametrize("name", CASES)
def test_a_table_of_places_has_the_numbers_of_edges(name):
    bias, graph, _ = made(name)
    assert torch.equal(bias.places(graph).on(graph), bias(graph))
    if isinstance(bias, ALiBi | T5Bias):
        pair = (torch.arange(graph.num_targets) * 2 + 5, torch.arange(graph.num_sources))
        assert torch.equal(bias.places(graph, pair).on(graph), bias(graph, pair))
        assert bias.places(graph, (pair[0] * 10**6, pair[1])) is None
        assert bias.places(graph, (pair[0].expand(2, -1), pair[1])) is None


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_dense_twin(name, no_tensor_of_edges, monkeypatch):
    bias, graph, operands = made(name)
    found = found_by(bias, graph, operands)
    monkeypatch.undo()
    for a, b in zip(found, of_twin(bias, graph, operands), strict=True):
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


@pytest.mark.parametrize("name", ["alibi, causal", "t5, at random", "swin, shifted cells"])
def test_float32_is_as_exact_as_dense_torch(name, no_tensor_of_edges, monkeypatch):
    bias, graph, operands = made(name)
    bias = bias.float()
    operands = [x.detach().float().requires_grad_() for x in operands]
    found = found_by(bias, graph, operands)
    monkeypatch.undo()
    dense = of_twin(bias, graph, operands)
    exact = of_twin(bias.double(), graph, [x.detach().double().requires_grad_() for x in operands])
    for i, (a, b, c) in enumerate(zip(found, dense, exact, strict=True)):
        a, b, c = (x.detach().double() for x in (a, b, c))
        times = 2 if i < 2 else 3
        least = torch.finfo(torch.float32).eps * c.abs().max()
        assert (a - c).abs().max() <= times * max((b - c).abs().max(), least)


@pytest.mark.parametrize("name", ["t5, at random", "swin, shifted cells"])
def test_one_entry_of_a_table_is_seen(name, no_tensor_of_edges):
    bias, graph, operands = made(name)
    before = ga.attention(*operands, graph, score_bias=bias, backend="tiles")
    with torch.no_grad():
        bias.table.weight[0, 4] += 1.0
    after = ga.attention(*operands, graph, score_bias=bias, backend="tiles")
    assert (before != after).any(-1).flatten(0, 1).any(0).tolist() == [h == 4 for h in range(H)]


OPTIONS = {
    "softcap": {"softcap": 2.0},
    "dropout": {"dropout_p": 0.3},
    "weights": {"return_weights": True},
    "features": {"edge_value": 0},
    "a score": {"score": lambda query, key, attr: (query - key).square().sum(-1)},
    **{name: {"backend": name} for name in ("dense", "edges", "message_passing")},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_other_calls_make_the_tensor_of_edges(name, always):
    bias, graph, (query, key, _) = made("alibi, causal")
    options = dict(OPTIONS[name])
    if "edge_value" in options:
        options["edge_value"] = torch.randn(graph.num_edges, H, 7, dtype=torch.float64)
    values = []
    for score_bias in (bias, bias(graph)):
        torch.manual_seed(1)
        values.append(ga.attention(query, key, key, graph, score_bias=score_bias, **options))
    assert torch.equal(*(getattr(x, "output", x) for x in values))


def test_layers_take_a_module(always):
    graph = ga.graphs.causal(53)
    bias = T5Bias(2, 8, 21).double()
    x = torch.randn(3, 53, 8, dtype=torch.float64)
    for options in ({}, {"edge_dim": 3}, {"normalize": "sigmoid"}, {"dropout": 0.5}):
        layer = ga.nn.GraphAttention(8, 2, **options).double()
        attr = None
        if layer.edge_dim is not None:
            attr = torch.randn(graph.num_edges, 3, dtype=torch.float64)
        values = []
        for score_bias in (bias, bias(graph)):
            torch.manual_seed(1)
            values.append(layer(x, graph, score_bias=score_bias, edge_attr=attr))
        assert torch.allclose(*values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_layers_of_a_stack_share_a_table(always, monkeypatch, dropout):
    made_tables = []
    places = ALiBi.places

    @wraps(places)
    def counted(*arguments):
        made_tables.append(1)
        return places(*arguments)

    monkeypatch.setattr(ALiBi, "places", counted)
    model = ga.models.GPT(11, 8, 2, 3, score_bias=LearnedSlopes(2), dropout=dropout).double()
    tokens = torch.randint(0, 11, (2, 41))

    def gradients():
        torch.manual_seed(3)
        loss = model(tokens).square().sum()
        return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)

    found = gradients()
    assert len(made_tables) == (not dropout)
    monkeypatch.setattr(place_bias, "FEW", 1 << 40)
    for a, b in zip(found, gradients(), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


class Doubled(ALiBi):
    """Another bias than its places."""

    def forward(self, *arguments):
        return 2 * super().forward(*arguments)


def test_hooks_and_another_forward_count(always):
    _, graph, operands = made("alibi, causal")
    hooked = ALiBi(H).double()
    hooked.register_forward_hook(lambda module, arguments, output: 2 * output)
    for bias in (Doubled(H).double(), hooked):
        assert not place_bias.has_places(bias, graph)
        assert torch.equal(
            ga.attention(*operands, graph, score_bias=bias),
            ga.attention(*operands, graph, score_bias=2 * ALiBi(H).double()(graph)),
        )


def test_a_function_that_returns_nothing_is_refused():
    _, graph, operands = made("alibi, causal")
    with pytest.raises(ShapeError, match=r"score_bias must return .* got None"):
        ga.attention(*operands, graph, score_bias=lambda graph: None)


def test_layers_of_a_stack_take_edge_features_beside_it(always):
    graph = ga.graphs.causal(41)
    bias = ALiBi(2)
    model = ga.models.Encoder(2, 8, 2, edge_dim=3)
    x = torch.randn(41, 8)
    attr = torch.randn(graph.num_edges, 3)
    read = [model(x, graph, score_bias=each, edge_attr=attr) for each in (bias, bias(graph))]
    assert torch.allclose(*read)


@pytest.mark.parametrize("drops", [False, True])
def test_a_layer_continues_its_cache(drops):
    bias = T5Bias(2, 8, 21).double()
    layer = ga.nn.GraphAttention(8, 2).double()
    graph = ga.graphs.sliding_window(..., 13, causal=True)
    cache = ga.nn.KeyValueCache()
    x = torch.randn(3, 41, 8, dtype=torch.float64)
    parts = []
    for part in x.split((19, 21, 1), 1):
        parts.append(layer(part, graph, score_bias=bias, cache=cache))
        if drops:
            cache.drop(cache.length - 12)
    every_token = layer(x, graph.at(41), score_bias=bias)
    assert torch.allclose(torch.cat(parts, 1), every_token, rtol=1e-12, atol=1e-12)


def test_a_prompt_continues_in_parts(always):
    model = ga.models.GPT(11, 8, 2, 2, score_bias=ALiBi(2)).double()
    tokens = torch.randint(0, 11, (2, 41))
    caches = [ga.nn.KeyValueCache() for _ in range(2)]
    parts = [model(x, caches=caches) for x in tokens.split((19, 21, 1), 1)]
    assert torch.allclose(torch.cat(parts, 1), model(tokens), rtol=1e-12, atol=1e-12)


def test_one_head_is_all_heads(always):
    _, graph, operands = made("alibi, causal")
    one = ALiBi(1).double()
    assert torch.allclose(
        ga.attention(*operands, graph, score_bias=one),
        ga.attention(*operands, graph, score_bias=one(graph)),
        rtol=1e-12,
    )
    with pytest.raises(ShapeError, match="6 heads"):
        ga.attention(*operands, graph, score_bias=ALiBi(4).double())


@pytest.mark.slow
def test_it_compiles_whole(no_tensor_of_edges, fresh_compiler):
    bias, graph = T5Bias(2), ga.graphs.causal(53)
    layer = ga.nn.GraphAttention(8, 2, backend="tiles")
    x = torch.randn(3, 53, 8)
    leaves = [*layer.parameters(), *bias.parameters()]

    def gradients(run):
        return torch.autograd.grad(run(x, graph, score_bias=bias).square().sum(), leaves)

    compiled = gradients(torch.compile(layer, fullgraph=True))
    for a, b in zip(compiled, gradients(layer), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)


def test_such_a_call_is_estimated_as_one_without_a_bias():
    graph = ga.graphs.sliding_window(4096, 257, causal=False)
    plain, by_place, of_edges = (
        next(c for c in ga.explain(graph, score_bias=bias).candidates if c.name == "tiles")
        for bias in (None, ALiBi(8), True)
    )
    assert by_place.cost == plain.cost < of_edges.cost
    assert ga.explain(graph, score_bias=ALiBi(8)).chosen == "tiles"
    few, of_few_edges = (
        next(c for c in ga.explain(ga.graphs.causal(41), score_bias=bias).candidates)
        for bias in (ALiBi(8), True)
    )
    assert few.cost == of_few_edges.cost
