"""The operator of additive scores, and scores that are any function of an edge, in blocks."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import graphattn as ga
from graphattn.backends import scored
from graphattn.backends.scored import _layout
from graphattn.kernels.additive.operator import edge_additive, plain
from graphattn.kernels.pairs.operator import edge_weights
from graphattn.nn.scores import Additive, Subtraction
from graphattn.nn.scores.of_edges import slope_of

WINDOW = ga.graphs.sliding_window(41, 7, causal=False) | ga.graphs.global_tokens(41, [3])
SHUFFLED = ga.from_edge_index(
    WINDOW.edge_index[
        :, torch.randperm(WINDOW.num_edges, generator=torch.Generator().manual_seed(0))
    ],
    num_nodes=41,
)
SOURCES = torch.cat([torch.arange(1500), torch.arange(3)])
HUB = ga.from_edge_index(
    [SOURCES.tolist(), [0] * 1500 + [1, 2, 2]], num_sources=1500, num_targets=4
)


def operands(graph, groups, per_group, width, kv, features, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, graph.num_targets, groups, width), (2, graph.num_sources, kv, width)]
    shapes += [(2, graph.num_edges, groups, width)] * features + [(groups, per_group, width)]
    x, y, *z, weight = (
        torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes
    )
    return x, y, z[0] if z else None, weight


@pytest.mark.parametrize("slope", [0.0, 0.2, math.nan])
@pytest.mark.parametrize(
    ("graph", "sizes"),
    [(SHUFFLED, (4, 1, 5, 2, True)), (SHUFFLED, (1, 6, 24, 1, False)), (HUB, (2, 3, 8, 2, True))],
)
def test_scores_and_gradients_are_those_of_plain_operations(graph, sizes, slope):
    given, (_, _, *layout) = operands(graph, *sizes), _layout(graph)
    leaves = [x for x in given if x is not None]
    results = [edge_additive(*given, slope, *layout), plain(*given, slope, *layout[:4])]
    grads = [torch.autograd.grad(x.sin().sum(), leaves) for x in results]
    for ours, wanted in zip((results[0], *grads[0]), (results[1], *grads[1]), strict=True):
        assert (ours - wanted).abs().max() <= 1e-12 * wanted.abs().max().clamp(min=1)


@pytest.mark.slow
def test_in_float32_errors_are_those_of_plain_operations():
    for slope in (0.2, math.nan):
        layout, exact = _layout(HUB)[2:], operands(HUB, 2, 1, 8, 2, False)
        given = [x if x is None else x.detach().float().requires_grad_() for x in exact]
        leaves = [[x for x in some if x is not None] for some in (given, given, exact)]
        runs = (
            edge_additive(*given, slope, *layout),
            plain(*given, slope, *layout[:4]),
            plain(*exact, slope, *layout[:4]),
        )
        ours, theirs, true = (
            (x, *torch.autograd.grad(x.sum(), own)) for x, own in zip(runs, leaves, strict=True)
        )
        for a, b, wanted in zip(ours, theirs, true, strict=True):
            assert (a - wanted).abs().max() <= 3 * (
                b - wanted
            ).abs().max() + 1e-7 * wanted.abs().max()


@pytest.mark.slow
def test_opcheck_and_the_same_bits_every_time():
    given, (_, _, *layout) = operands(SHUFFLED, 2, 3, 8, 2, True, torch.float32), _layout(SHUFFLED)
    torch.library.opcheck(edge_additive, (*given, 0.2, *layout))
    score = edge_additive(*given, 0.2, *layout)
    torch.library.opcheck(edge_weights, (score.detach().requires_grad_(), *layout[:4]))
    first = torch.autograd.grad(score.sin().sum(), given)
    for _ in range(5):
        again = torch.autograd.grad(edge_additive(*given, 0.2, *layout).sin().sum(), given)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def layer(score, edge_dim=None, **options):
    torch.manual_seed(3)
    return ga.nn.GraphAttention(8, 2, score=score, edge_dim=edge_dim, **options).double()


def outputs(of, x, graph, backend, **options):
    of.backend = backend
    output, weights = of(x, graph, return_weights=True, **options)
    leaves = [a for a in (x, *of.parameters(), *options.values()) if a.requires_grad]
    first = torch.autograd.grad(
        output.sin().sum(), leaves, create_graph=True, materialize_grads=True
    )
    second = torch.autograd.grad(sum(g.cos().sum() for g in first), leaves, materialize_grads=True)
    return output, weights.alpha, *first, *second


SCORES = [
    ("additive", None),
    (Additive(2, 4, torch.sigmoid), None),  # any activation: a function of edges
    ("mlp", 3),
    ("subtraction", 3),
    (lambda q, k, e: (q * k).tanh().sum(-1) + e.sum(-1, keepdim=True), 3),
]


@pytest.mark.slow
@pytest.mark.parametrize("block", [1 << 17, 50])
@pytest.mark.parametrize(("score", "edge_dim"), SCORES)
def test_a_layer_with_two_derivatives_is_the_definitions(score, edge_dim, block, monkeypatch):
    monkeypatch.setattr(scored, "BLOCK", block)
    monkeypatch.setattr(scored, "PER_NODE", 0)
    of = layer(score, edge_dim, num_kv_heads=1)
    x = torch.randn(2, 41, 8, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(SHUFFLED.num_edges, 2, dtype=torch.float64)
    bias[::7], bias[3::5, 1] = -torch.inf, -torch.inf
    options = {"score_bias": bias.requires_grad_()}
    if edge_dim:
        options["edge_attr"] = torch.randn(
            SHUFFLED.num_edges, 3, dtype=torch.float64, requires_grad=True
        )
    ours, wanted = (
        outputs(of, x, SHUFFLED, backend, **options) for backend in ("edges", "message_passing")
    )
    for a, b in zip(ours, wanted, strict=True):
        assert (a - b).abs().max() <= 1e-11 * b.abs().max().clamp(min=1)


def test_blocks_hold_less(monkeypatch):
    """What autograd keeps between forward and backward does not grow with (E, H, D)."""
    of, graph = layer(lambda q, k, e: (q * k).tanh().sum(-1)), ga.graphs.full(200).materialise()
    x = torch.randn(200, 8, dtype=torch.float64)

    def kept():
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda a: (sizes.append(a.numel()), a)[1], lambda a: a
        ):
            of(x, graph)
        return max(sizes)

    of.backend = "edges"
    assert kept() >= 200 * 200 * 8
    monkeypatch.setattr(scored, "BLOCK", 4000)
    monkeypatch.setattr(scored, "PER_NODE", 0)
    assert kept() <= 200 * 200 * 2


def test_not_even_a_nan_passes_a_removed_edge():
    for score in ("additive", "subtraction", lambda q, k, e: (q * k).tanh().sum(-1)):
        of = layer(score, backend="edges")
        x = torch.randn(41, 8, dtype=torch.float64)
        memory = x.clone()
        memory[20] = torch.nan
        bias = torch.zeros(SHUFFLED.num_edges, dtype=torch.float64).masked_fill_(
            SHUFFLED.source == 20, -torch.inf
        )
        x.requires_grad_()
        output = of(x, SHUFFLED, context=memory, score_bias=bias)
        grads = torch.autograd.grad(output.sum(), (x, *of.q_proj.parameters()))
        assert all(a.isfinite().all() for a in (output, *grads))


class Adapted(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.weight, self.bias = base, base.weight, base.bias
        self.more = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x):
        return self.base(x) + self.more * x.sum(-1, keepdim=True)


def test_a_score_with_a_formula_of_its_own_is_not_taken_for_the_one_it_inherits_from():
    class Squared(Additive):
        def forward(self, query, key, edge_attr=None):
            return super().forward(query, key).square()

    of = layer(Squared(2, 4))
    x = torch.randn(41, 8, dtype=torch.float64, requires_grad=True)
    ours, wanted = (outputs(of, x, SHUFFLED, backend) for backend in ("edges", "message_passing"))
    assert all(torch.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(ours, wanted, strict=True))
    adapted = layer("mlp")  # a wrapper that shows the weight it adapts, as PEFT's do
    adapted.score.hidden = Adapted(adapted.score.hidden)
    hooked = layer("mlp")
    hooked.score.out.register_forward_hook(lambda module, given, out: 2 * out)
    for of in (adapted, hooked):
        ours, wanted = (
            outputs(of, x, SHUFFLED, backend) for backend in ("edges", "message_passing")
        )
        assert all(
            torch.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(ours, wanted, strict=True)
        )
    changed = Subtraction(2, 4)
    changed.gamma = torch.nn.Sequential(changed.gamma[0], torch.nn.GELU(), changed.gamma[2])
    assert changed.as_additive(torch.zeros(3, 2, 4), torch.zeros(3, 2, 4), None) is None
    without = Subtraction(2, 4, edge_dim=3)
    without.delta[2] = torch.nn.Linear(8, 8, bias=False)
    of = layer(without, 3)
    given = {"edge_attr": torch.randn(SHUFFLED.num_edges, 3, dtype=torch.float64)}
    ours, wanted = (
        outputs(of, x, SHUFFLED, backend, **given) for backend in ("edges", "message_passing")
    )
    assert all(torch.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(ours, wanted, strict=True))


@pytest.mark.parametrize(
    ("activation", "slope"),
    [
        (F.relu, 0.0),
        (torch.nn.ReLU(), 0.0),
        (F.leaky_relu, 0.01),
        (torch.nn.LeakyReLU(0.2), 0.2),
        (partial(F.leaky_relu, negative_slope=0.3), 0.3),
        (partial(F.leaky_relu, negative_slope=-1.0), None),
        (torch.nn.LeakyReLU(-0.5), None),
        (torch.sigmoid, None),
    ],
)
def test_activations_that_the_kernel_has(activation, slope):
    assert slope_of(activation) == slope
    x = torch.linspace(-2, 2, 9)
    assert slope is None or torch.equal(activation(x), F.leaky_relu(x, slope))
    assert math.isnan(slope_of(torch.tanh))
    assert math.isnan(slope_of(torch.nn.Tanh()))
