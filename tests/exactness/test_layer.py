"""Layers with any score and normalisation, judged by their dense twins; broken ones, and what
cannot be compared.
"""

import pytest
import torch
from graph_table import GRAPHS
from torch import nn

import graphattn as ga
from graphattn.backends import BACKENDS
from graphattn.errors import GraphError, OptionError
from graphattn.exactness import assert_exact, stability, verify
from graphattn.exactness.layer import LayerSubject
from graphattn.nn import (
    FeatureScore,
    GraphAttention,
    LinearScaling,
    Rotary,
    linear_attention,
    normalizers,
)
from graphattn.nn import scores as library
from graphattn.nn.linear_attention import PositiveFeatures

MASK = torch.rand(5, 5, generator=torch.Generator().manual_seed(3)) < 0.7
MASK[2] = False  # an isolated target
SMALL = ga.from_mask(MASK)
SMALL = ga.from_edge_index(SMALL.edge_index.flip(1), num_nodes=5)  # in an order of its own
EDGES = SMALL.num_edges
FLOAT64 = {"dtypes": (torch.float64,)}
FEW = {"backends": ("dense", "message_passing")}
SCORES, NORMALIZERS = ("scaled_dot", *library.SCORES), ("softmax", *normalizers.NORMALIZERS)


def made(embed_dim=8, num_heads=2, seed=1, **options):
    """A layer whose parameters are all away from where they start."""
    torch.manual_seed(seed)
    layer = GraphAttention(embed_dim, num_heads, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += torch.randn_like(parameter) * 0.3
    return layer


def ran(report):
    return {row.backend for row in report.rows}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "normalize"),
    [
        (score, NORMALIZERS[j])
        for i, score in enumerate(SCORES)
        for j in range(len(NORMALIZERS))
        if (i + j) % 3 == 2
    ],
)
def test_scores_and_normalisations_and_the_gradient_of_every_parameter(score, normalize):
    layer = made(score=score, normalize=normalize, num_kv_heads=1)
    dots, fused, rows = (
        score in SCORES[:4],
        normalize in ("softmax", "sink"),
        normalize in ("sigmoid", "sum", "none"),
    )
    report = assert_exact(layer, SMALL, **FLOAT64)
    measured = {row.quantity for row in report.rows}
    assert {f"grad {name}" for name, _ in layer.named_parameters()} | {"second x"} <= measured
    others = set() if dots and (fused or rows) else {"dense", "tiles"}
    assert ran(report) == set(BACKENDS) - others
    refused = ", ".join(name for name in BACKENDS if name in others)
    assert (
        not refused
        or f"{refused} do{'es' * (len(others) == 1)} not run plain, score_bias:\n" in str(report)
    )


def beside_one(score, target, num_targets):
    """Softmax beside a score of 0, as somebody might write it."""
    weight = score.exp()
    total = torch.zeros(*score.shape[:-2], num_targets, score.shape[-1], dtype=score.dtype)
    return weight / (1 + total.index_add(-2, target, weight).index_select(-2, target))


class Distance(nn.Module):
    """A score that somebody wrote, with a parameter and the features of edges."""

    def __init__(self):
        super().__init__()
        self.reach = nn.Parameter(torch.tensor(0.3))

    def forward(self, query, key, edge_attr):
        return self.reach * (query - key).norm(dim=-1) + edge_attr[..., :1].exp()


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("options", "graph"),
    [
        (
            {
                "score": "mlp",
                "normalize": normalizers.Sigmoid(-1.5),
                "rotary": Rotary(4, layout="interleaved"),
            },
            SMALL,
        ),
        (
            {"score": "additive", "edge_dim": 3, "softcap": 1.5, "root_weight": True},
            GRAPHS["cross"](),
        ),
        (
            {"score": library.Subtraction(2, 4), "edge_dim": 8, "normalize": "sparsemax"},
            GRAPHS["repeated_edges"](),
        ),
        ({"score": "subtraction", "edge_dim": 3, "num_kv_heads": 1}, GRAPHS["repeated_edges"]()),
        ({"score": library.MLPScore(4, 5, edge_dim=3), "edge_dim": 3, "normalize": "sum"}, SMALL),
        (
            {
                "score": "cosine",
                "edge_dim": 3,
                "qdim": 5,
                "kdim": 3,
                "vdim": 2,
                "rotary": Rotary(4),
            },
            GRAPHS["cross"](),
        ),
        ({"rotary": Rotary(4, num_axes=2), "scale": 0.3, "softcap": 2.0}, SMALL),
        ({"score": Distance(), "edge_dim": 3, "normalize": beside_one}, GRAPHS["repeated_edges"]()),
        ({"score": lambda q, k, e: (q - k).abs().sum(-1), "normalize": "sink"}, GRAPHS["cells"]()),
        ({"score": FeatureScore(PositiveFeatures(4, 6)), "normalize": "sum"}, SMALL),
        ({"score": FeatureScore("relu"), "normalize": "hard", "edge_dim": 3}, SMALL),
        ({"score": "gaussian", "normalize": "hard"}, GRAPHS["no_edges"]()),
        ({"score": library.Cosine(2, scale=30.0, most=7.0)}, SMALL),
        (
            {"score": "additive", "qk_norm": 1e-3, "rotary": Rotary(4, scaling=LinearScaling(2.0))},
            SMALL,
        ),
        ({"gate": True, "qk_norm": "layer", "bias": ("q",), "edge_dim": 3}, SMALL),
        (
            {"gate": True, "qk_norm": "rms", "bias": False, "qdim": 5, "kdim": 3, "vdim": 2},
            GRAPHS["cross"](),
        ),
        ({"qk_norm": nn.LayerNorm(4, elementwise_affine=False), "rotary": Rotary(4)}, SMALL),
    ],
)
def test_other_layers(options, graph):
    assert_exact(
        made(**options), graph, **FEW, **({} if options.get("score") == "mlp" else FLOAT64)
    )


def test_half_precision():
    for normalize, dtype in (("sparsemax", torch.float16), ("hard", torch.bfloat16)):
        assert_exact(made(score="mlp", normalize=normalize), GRAPHS["causal"](), dtypes=(dtype,))


@pytest.mark.parametrize(
    "options",
    [
        {"normalize": "sink"},
        {"score": "mlp", "normalize": "hard"},
        {"edge_dim": 3, "num_kv_heads": 1},
    ],
)
def test_graphs_of_heads(options):
    graph = ga.PerHead((ga.graphs.causal(5), SMALL))
    report = assert_exact(made(**options), graph, **FLOAT64, **FEW)
    assert "PerHead(causal(5), " in str(report)
    other = ga.PerHead((ga.graphs.causal(5), ga.graphs.causal(5)))
    wrong = made(**options)
    wrong.forward = lambda x, graph, **rest: GraphAttention.forward(wrong, x, other, **rest)
    assert not verify(wrong, graph, **FLOAT64, **FEW).ok
    with pytest.raises(
        GraphError, match="a function is verified on one AttentionGraph, got PerHead"
    ):
        verify(lambda q, k, v: v, graph)


# --- linear attention


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("graph", [ga.graphs.prefix(11, 6), GRAPHS["cross"]()])
def test_running_sums_are_the_dense_formula(monkeypatch, graph):
    monkeypatch.setattr(linear_attention, "_CHUNK", 3)
    layer = made(score=FeatureScore("elu"), normalize="sum", kdim=5, vdim=5, num_kv_heads=1)
    report = assert_exact(layer, graph)
    assert ran(report) == {"dense", "tiles", "edges", "message_passing", "running_sums"}
    assert (
        "running_sums does not run score_bias:\n    score_bias: a bias is a number of each edge"
        in str(report)
    )


@pytest.mark.slow
def test_broken_running_sums_are_seen(monkeypatch):
    layer, right = made(score="dot", normalize="none"), linear_attention._summed
    assert "running_sums" not in ran(verify(layer, SMALL, **FLOAT64))  # a graph that has none
    monkeypatch.setattr(
        linear_attention, "_summed", lambda query, *rest: right(query, *rest) * (1 + 1e-10)
    )
    report = verify(layer, GRAPHS["causal"](), **FLOAT64)
    assert {row.backend for row in report.rows if not row.ok} == {"running_sums"}


# --- control: what is broken is seen


def without_half(self, query, key, edge_attr=None):
    return -(query - key).square().sum(-1) * torch.exp(-2 * self.log_sigma)


def swapped(self, query, key, edge_attr=None):
    return self.gamma((key - query).flatten(-2))


def detached(self, query, key, edge_attr=None):
    return (torch.tanh(query + key) * self.weight.detach()).sum(-1)


def one_edge_less(self, query, key, edge_attr=None):
    hidden = torch.relu(self.hidden(torch.cat((query, key), -1)))
    return self.out(hidden).squeeze(-1) * (torch.arange(query.shape[-3]) != 5).unsqueeze(-1)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("score", "broken", "quantity"),
    [
        ("gaussian", without_half, "output"),
        ("subtraction", swapped, "output"),
        ("mlp", one_edge_less, "output"),
        ("additive", detached, "grad score.weight"),
    ],
)
def test_a_broken_score_is_seen(monkeypatch, score, broken, quantity):
    layer = made(score=score)
    monkeypatch.setattr(type(layer.score), "forward", broken)
    report = verify(layer, SMALL, **FLOAT64)
    assert quantity in {row.quantity for row in report.rows if not row.ok}


def over_sources(score, target, num_targets):
    return torch.softmax(score, -2)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda right: {"normalize": None}, "the normalisation ignored: softmax in its place"),
        (lambda right: {"score": None}, "the score ignored: scaled dot product in its place"),
        (
            lambda right: {"normalize": normalizers.Sigmoid(0.0)},
            "none of the known mistakes explains it",
        ),
        (lambda right: {"normalize": over_sources}, "are read, but not of the graph"),
    ],
)
def test_a_wrong_part_is_seen_and_diagnosed(make, words):
    layer = made(score="gaussian", normalize="sigmoid")
    right = GraphAttention.forward

    def wrong(x, graph, **rest):
        self, change = wrong.layer, make(layer)
        kept = {name: getattr(self, name) for name in change}
        for name, part in change.items():
            self._modules.pop(name, None)
            self.__dict__[name] = part
        try:
            return right(self, x, graph, **rest)
        finally:
            for name, part in kept.items():
                self.__dict__.pop(name, None)
                setattr(self, name, part)

    class Wrong(GraphAttention):
        def forward(self, x, graph, *, score_bias=None):
            wrong.layer = self
            return wrong(x, graph, score_bias=score_bias)

    layer.__class__ = Wrong
    report = verify(layer, SMALL, **FLOAT64)
    assert not report.ok
    assert words in report.diagnosis


def test_a_wrong_graph_is_named_under_another_score(monkeypatch):
    right = GraphAttention.forward
    monkeypatch.setattr(
        GraphAttention, "forward", lambda self, x, graph, **o: right(self, x, graph.reverse(), **o)
    )
    assert (
        "rows swapped"
        in verify(made(score="mlp", normalize="sparsemax"), SMALL, **FLOAT64).diagnosis
    )


def test_functions_that_mix_what_they_should_not_are_seen():
    graph = SMALL
    mixing = verify(made(normalize=over_sources), graph, **FLOAT64)
    assert "output" in {row.quantity for row in mixing.rows if not row.ok}
    centred = verify(
        made(score=lambda q, k, e: (q * (k - k.mean(-3, keepdim=True))).sum(-1), normalize="none"),
        graph,
        **FLOAT64,
    )
    assert "output" in {row.quantity for row in centred.rows if not row.ok}
    of_numbers = verify(
        made(normalize=lambda z, t, n: torch.tanh(z) * t.unsqueeze(-1) / n), graph, **FLOAT64
    )
    assert {check.claim for check in of_numbers.checks if not check.ok} >= {
        "the labels of the nodes do not matter"
    }
    mean = made(normalize=lambda z, t, n: z / torch.bincount(t, minlength=n)[t].unsqueeze(-1))
    report = verify(mean, graph, **FLOAT64)
    assert {check.claim for check in report.checks if not check.ok} == {
        "an edge with a bias of -inf is an edge removed"
    }
    assert (
        "note: an edge whose score is -inf is a removed one: your normalisation must give it weight 0"
        in str(report)
    )


# --- ties, kinks, sums near 0


def test_ties_are_left_out_and_the_report_says_how_many():
    equal = made(score=lambda q, k, e: 0 * q.sum(-1), normalize="hard")
    report = verify(equal, SMALL, **FLOAT64)
    assert {row.case for row in report.rows} == {"score_bias"}  # random biases break the ties
    assert "in torch.float64 nothing can be compared: every target is at a tie or kink" in str(
        report
    )
    dead = made(score=FeatureScore("relu"), normalize="hard", num_heads=4)  # scores of exactly 0
    report = assert_exact(dead, GRAPHS["causal"]())
    assert "answers in float64 not compared: at a tie, a kink or a sum near 0" in str(report)


def test_stability_tells_kinks_from_curves(monkeypatch):
    """The kink of |x| is at 0: targets whose difference is smaller than a step are unstable, and no
    others.
    """
    graph = ga.graphs.cross(64, 1)
    layer = made(
        4,
        1,
        score=lambda q, k, e: (q[..., 0] - k[..., 0]).abs(),
        normalize="none",
        bias=False,
        kdim=3,
    )
    subject = LayerSubject(layer, graph)
    right = subject.leaves

    def near_kinks(case, dtype):
        leaves = right(case, dtype)
        with torch.no_grad():
            leaves["q_proj.weight"].zero_()[0, 0] = 1.0
            leaves["k_proj.weight"].zero_()
            leaves["x"][:, :, 0] = 10.0 ** -torch.linspace(0, 10, 64).double()
        return leaves

    monkeypatch.setattr(subject, "leaves", near_kinks)
    from graphattn.twins.pieces import sample

    result = stability.stability(subject, subject.cases[0], torch.float64, [sample(graph)])
    distance = 10.0 ** -torch.linspace(0, 10, 64)
    assert bool(result.stable[:, distance > 1e-4].all())
    assert not bool(result.stable[:, distance < 1e-7].any())


@pytest.mark.slow
def test_rounding_that_grows_widens_the_limits():
    report = assert_exact(made(score="dot", normalize="sum", seed=5), GRAPHS["causal"](), seed=2)
    plain = [row.bound for row in report.rows if row.dtype == "float64"]
    assert max(plain) < 1e-10
    assert "not compared" in str(report)


@pytest.mark.parametrize(
    "normalize", ["sum", pytest.param("sigmoid", marks=pytest.mark.slow), "none"]
)
def test_copies_as_a_bias_are_named_where_a_sum_is_near_0(normalize):
    """Only one target reads copies among others; both of its sums are so near 0 that float32 tells
    nothing of it.
    """
    graph = ga.from_edge_index(
        [[3, 0, 0, 5, 0, 1], [2, 5, 1, 0, 5, 5]], num_nodes=6, duplicates="keep"
    )
    once = graph | graph
    counts = torch.where((once.source == 0) & (once.target == 5), 2.0, 1.0).double().log()
    torch.manual_seed(2715)
    layer = GraphAttention(8, 2, normalize=normalize).double()
    assert verify(layer, graph, **FLOAT64).ok
    layer.forward = lambda x, graph: GraphAttention.forward(layer, x, once, score_bias=counts.to(x))
    report = verify(layer, graph, **FEW, gradients=False)
    assert "target 5 (in-degree 3); copies of an edge as log(count) on its score" in str(
        report.diagnosis
    )


def test_a_target_whose_answers_are_all_at_a_jump_is_said_to_be_left_out():
    def jump(score, target, num_targets):
        score, there = normalizers.none(score, target, num_targets), (score != -torch.inf).to(score)
        degree = there.new_zeros(*there.shape[:-2], num_targets, 2).index_add(-2, target, there)[
            ..., target, :
        ]
        return torch.where(degree == 4, torch.sin(1e12 * score.double()).sign().to(score), score)

    report = verify(made(normalize=jump), GRAPHS["causal"](), **FLOAT64, **FEW, gradients=False)
    assert report.measured == report.total - 1
    assert "agree at 12 of 13 targets, the others were not looked at" in str(report)


# --- refusals


class Mine(GraphAttention):
    def __init__(self):
        super().__init__(8, 2)
        self.temperature = nn.Parameter(torch.ones(()))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (lambda: GraphAttention(8, 2, score=lambda q, k, e: q), r"layer's score returns must have shape .*\(\.\.\., edges, heads"),
        (lambda: GraphAttention(8, 2, score=lambda q, k, e: torch.ones(EDGES, 2)), rf"got a Tensor \({EDGES}, 2\)"),
        (lambda: GraphAttention(8, 2, score=lambda q, k, e: e.sum(-1)), "raised AttributeError: .* go in edge_attr"),
        (lambda: GraphAttention(8, 2, normalize=lambda z, t, n: z.sum()), r"normalisation returns must .* got a Tensor \(\)"),
        (Mine, "parameters of this Mine are not those of a GraphAttention.*temperature"),
    ],
)  # fmt: skip
def test_what_has_no_twin_is_refused(layer, words):
    with pytest.raises(OptionError, match=f"(?s){words}"):
        verify(layer(), SMALL)
