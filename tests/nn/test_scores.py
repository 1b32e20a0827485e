"""Scores and normalisations on edges against PyG and torch; tests/verify proves them against their
dense twins.
"""

import copy
import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import graphattn as ga
from graphattn import graphs
from graphattn.backends.rows import PRODUCTS
from graphattn.errors import BackendError, OptionError, ShapeError
from graphattn.kernels.plain.sums import edge_softmax
from graphattn.nn import FeatureScore, GraphAttention, PositiveFeatures, normalizers, scores
from graphattn.nn.normalizers import SinkSoftmax, hard, sparsemax
from graphattn.nn.scores import (
    Additive,
    Cosine,
    Dot,
    Gaussian,
    General,
    MLPScore,
    Score,
    Subtraction,
)

GENERATOR = torch.Generator().manual_seed(3)
MASK = torch.rand(9, 9, generator=GENERATOR) < 0.4
MASK[4] = False  # an isolated target
GRAPH = ga.from_mask(MASK)
GRAPH = ga.from_edge_index(
    GRAPH.edge_index[:, torch.randperm(GRAPH.num_edges, generator=GENERATOR)], num_nodes=9
)


SCORES, NORMALIZERS = ["scaled_dot", *scores.SCORES], ["softmax", *normalizers.NORMALIZERS]


def made(**options):
    torch.manual_seed(1)
    layer = GraphAttention(8, 2, **options).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name in ("normalize.logit", "score.log_sigma", "score.log_scale"):
                parameter += torch.randn_like(parameter) * 0.3
    return layer


@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_a_layer_without_a_fast_form_refuses_fast_backends_with_the_reason(normalize):
    score = "dot" if normalize in ("hard", "sparsemax") else "additive"
    layer = made(score=score, normalize=normalize)
    layer.backend = "dense" if score == "additive" else "tiles"
    with pytest.raises(BackendError, match=r"a custom .* is a function of"):
        layer(torch.randn(9, 8, dtype=torch.float64), GRAPH)
    shown = str(ga.explain(GRAPH, score=True))
    assert "a custom score is a function of each edge" in shown
    assert "backend: edges" in shown


@pytest.mark.parametrize("score", ["scaled_dot", "dot", "cosine", "general"])
def test_explain_knows_which_scores_and_normalisations_run_as_products(score):
    assert set(PRODUCTS) == {"scaled_dot"} | {
        n for n, of in scores.SCORES.items() if of.as_dot is not Score.as_dot
    }
    plain = str(ga.explain(GRAPH))
    for of, normalize in (
        (score, "softmax"),
        (made(score=score).score, "sink"),
        (None, made(normalize="sink").normalize),
    ):
        assert str(ga.explain(GRAPH, score=of, normalize=normalize)) == plain
    assert "a custom score" in str(ga.explain(GRAPH, score="additive"))
    assert "a custom normalisation" in str(ga.explain(GRAPH, normalize="sparsemax"))


def test_a_score_may_be_any_function_and_kappa_const_over_degree_is_mean_aggregation():
    layer = GraphAttention(
        8,
        2,
        score=lambda q, k, e: torch.ones(q.shape[:-1], dtype=q.dtype),
        normalize=lambda score, target, n: (
            score / torch.bincount(target, minlength=n)[target].unsqueeze(-1)
        ),
    ).double()
    x = torch.randn(9, 8, dtype=torch.float64)
    mean = MASK.double() / MASK.sum(-1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(
        layer(x, GRAPH), layer.out_proj(mean @ layer.v_proj(x)), rtol=0, atol=1e-12
    )


class Encoded(Score):
    """A dot product, with an encoder of edge features that are added to the value as they come
    out.
    """

    def __init__(self):
        super().__init__()
        self.edge_dim, self.delta = 3, nn.Sequential(nn.Linear(3, 8), nn.Tanh())

    def forward(self, query, key, edge_attr=None):
        return (query * key).sum(-1)

    def as_dot(self, query, key):
        return query, key


@pytest.mark.parametrize(
    "graph", [GRAPH, ga.PerHead((GRAPH, graphs.causal(9)))], ids=["one", "per head"]
)
@pytest.mark.parametrize("backend", ["auto", "edges", "message_passing"])
def test_features_that_a_score_encodes_join_the_value_on_every_backend(graph, backend):
    layer = made(edge_dim=3, edge_to="value", score=Encoded(), backend=backend)
    x, attr = (
        torch.randn(9, 8, dtype=torch.float64),
        torch.randn(graph.num_edges, 3, dtype=torch.float64),
    )
    query, key, value = (
        p(x).unflatten(-1, (2, 4)) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    union = graph.union() if isinstance(graph, ga.PerHead) else graph
    source, target = union.edge_index
    parts = list(graph.graphs) if isinstance(graph, ga.PerHead) else [graph, graph]
    there = torch.stack([part.contains(target, source) for part in parts], -1)
    score = (query[target] * key[source]).sum(-1).masked_fill(~there, -torch.inf)
    alpha, _ = edge_softmax(score, target, 9)
    read = value[source] + layer.score.delta(attr).unflatten(-1, (2, 4))
    expected = torch.zeros(9, 2, 4, dtype=torch.float64).index_add(
        0, target, alpha[..., None] * read
    )
    torch.testing.assert_close(
        layer(x, graph, edge_attr=attr), layer.out_proj(expected.flatten(1)), rtol=0, atol=1e-12
    )


def test_a_score_whose_delta_has_another_shape_is_refused():
    score = Subtraction(2, 4, edge_dim=3)
    score.delta = nn.Linear(3, 7)
    layer = GraphAttention(8, 2, edge_dim=3, score=score)
    with pytest.raises(ShapeError, match=r"delta must return .* = \(\d+, 8\), got \(\d+, 7\)"):
        layer(torch.randn(9, 8), GRAPH, edge_attr=torch.randn(GRAPH.num_edges, 3))
    with pytest.raises(OptionError, match="built with edge_dim=3: pass edge_attr"):
        layer(torch.randn(9, 8), GRAPH)


def test_softmax_at_low_temperature_is_hard_and_at_high_temperature_uniform():
    x = torch.randn(9, 8, dtype=torch.float64)
    layer = made(scale=1e4)
    other = made(normalize="hard")
    torch.testing.assert_close(layer(x, GRAPH), other(x, GRAPH), rtol=0, atol=1e-9)
    _, weights = made(scale=0.0)(x, GRAPH, return_weights=True)
    degree = GRAPH.in_degree[GRAPH.target].double()
    torch.testing.assert_close(
        weights.alpha, (1 / degree)[:, None].expand(-1, 2), rtol=0, atol=1e-14
    )


def test_hard_takes_the_first_of_equals_and_sparsemax_is_sparse():
    target = torch.tensor([0, 0, 0, 1])
    score = torch.tensor([[1.0], [2.0], [2.0], [-torch.inf]])
    assert hard(score, target, 3).flatten().tolist() == [0, 1, 0, 0]
    assert sparsemax(torch.tensor([[0.0], [0.4], [5.0], [7.0]]), target, 2).flatten().tolist() == [
        0,
        0,
        1,
        1,
    ]
    shifted = (
        sparsemax(torch.tensor([[1e6], [1e6], [1e6 - 5], [7.0]]), target, 2).flatten().tolist()
    )
    assert shifted == [0.5, 0.5, 0, 1]


@pytest.mark.parametrize("backend", ["dense", "tiles", "edges"])
@pytest.mark.parametrize("score", ["dot", "cosine", "general"])
def test_a_score_that_is_a_product_runs_on_every_backend(score, backend):
    layer, x = made(score=score), torch.randn(9, 8, dtype=torch.float64)
    layer.backend = "message_passing"
    expected = layer(x, GRAPH)
    layer.backend = backend
    torch.testing.assert_close(layer(x, GRAPH), expected, rtol=0, atol=1e-12)


def nearest_of_the_simplex(z):
    """By trying every support: the weights of largest support that are all above 0."""
    z = z.tolist()
    for size in range(len(z), 0, -1):
        top = sorted(z, reverse=True)[:size]
        tau = (math.fsum(top) - 1) / size
        if top[-1] > tau:
            return [max(0.0, x - tau) for x in z]
    return []


@pytest.mark.parametrize("level", [0.0, -100.0, 1e12])
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_sparsemax_is_the_nearest_point_of_the_simplex_whatever_the_level_of_other_targets(
    level, spread
):
    target, height = GRAPH.target, torch.arange(9) % 2 * level
    score = torch.randint(-64, 64, (GRAPH.num_edges, 2)) / 64.0 * spread  # exact beside the level
    score = (score * 4096).round().double() / 4096
    found = sparsemax(score + height[target, None], target, 9)
    for t, h in itertools.product(range(9), range(2)):
        wanted = torch.tensor(nearest_of_the_simplex(score[target == t, h]), dtype=torch.float64)
        torch.testing.assert_close(
            found[target == t, h], wanted, rtol=0, atol=1e-3 if level > 0 else 1e-12
        )
    assert bool((found == 0).any()) == (spread > 0.5)


@pytest.mark.parametrize("name", ["Gaussian", "Subtraction", "MLPScore", "Cosine"])
def test_scores_pass_gradgradcheck(name):
    score: Score = {
        "Gaussian": lambda: Gaussian(2),
        "Subtraction": lambda: Subtraction(2, 3),
        "MLPScore": lambda: MLPScore(3, 4),
        "Cosine": lambda: Cosine(2),
    }[name]().double()
    q, k = (torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(score, (q, k))
    assert torch.autograd.gradgradcheck(score, (q, k))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("score", SCORES)
def test_half_precision_runs_and_is_close(score, dtype):
    layer = made(score=score, normalize="sink").to(dtype)
    x = torch.randn(9, 8).to(dtype)
    wide = copy.deepcopy(layer).double()(x.double(), GRAPH)
    found = layer(x, GRAPH)
    assert found.dtype == dtype
    assert (found.double() - wide).abs().max() < 0.05


def test_graphs_of_heads_keep_the_parameters_of_their_heads():
    graph = ga.PerHead((graphs.causal(9), GRAPH))
    x = torch.randn(9, 8, dtype=torch.float64)
    for options in (
        {"normalize": "sink"},
        {"score": "additive"},
        {"score": "cosine"},
        {"normalize": "sigmoid"},
    ):
        layer = made(**options)
        seen = copy.deepcopy(layer)
        seen.register_message_forward_hook(lambda *args: None)
        torch.testing.assert_close(layer(x, graph), seen(x, graph), rtol=0, atol=1e-12)
        one = layer(x, ga.PerHead((graphs.causal(9), graphs.causal(9))))
        torch.testing.assert_close(one, layer(x, graphs.causal(9)), rtol=0, atol=1e-12)


def test_a_score_that_mixes_heads_reads_the_keys_of_every_edge_that_a_head_has():
    one_less = torch.zeros(81, 2, dtype=torch.float64).index_fill(0, torch.tensor([5]), -torch.inf)
    one_less[7, 1] = -torch.inf
    everywhere, causal = graphs.full(9), graphs.causal(9)
    per_head = torch.stack((everywhere.mask(), causal.mask()))
    bias = torch.zeros(2, 9, 9, dtype=torch.float64)
    bias[:, everywhere.target, everywhere.source] = one_less.T
    x = torch.randn(9, 8, dtype=torch.float64)
    for score in ("subtraction", lambda q, k, edge_attr: (q * k).sum(-1).flip(-1)):
        layer = made(score=score)
        q, k = (p(x).unflatten(-1, (2, 4)) for p in (layer.q_proj, layer.k_proj))
        of_pairs = layer.score(
            q[:, None].expand(9, 9, 2, 4), k[None].expand(9, 9, 2, 4), None
        ).permute(2, 0, 1)
        for graph, options, removed in (
            (ga.PerHead((everywhere, causal)), {}, ~per_head),
            (everywhere, {"score_bias": one_less}, bias == -torch.inf),
        ):
            weights = layer(x, graph, return_weights=True, **options)[1].dense()
            wanted = torch.softmax(of_pairs.masked_fill(removed, -torch.inf), -1)
            torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-12)
    spoiled = x.clone()
    spoiled[everywhere.source[5]] = torch.nan  # read by no head of the target of edge 5
    output = layer(x, everywhere, context=spoiled, score_bias=one_less)
    assert output.isfinite().all(-1).tolist() == [t == int(everywhere.target[5]) for t in range(9)]


def test_threads_that_share_an_observed_layer_get_weights_of_their_own():
    layer, both = made(score="additive"), threading.Barrier(2, timeout=600)
    layer.backend = "message_passing"
    inputs = [torch.randn(9, 8, dtype=torch.float64) for _ in range(2)]
    alone = [layer(x, GRAPH, return_weights=True)[1].alpha for x in inputs]

    def meet(*seen):
        both.wait()  # each after its message, and before its end

    layer.register_message_forward_hook(meet)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda x: layer(x, GRAPH, return_weights=True)[1].alpha, inputs))
    assert torch.equal(found[0], alone[0])
    assert torch.equal(found[1], alone[1])


def test_cosine_is_capped_exactly_and_only_where_it_is_learned():
    one = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    learned, fixed = Cosine(1, 1000.0).double(), Cosine(1, 1000.0, learnable=False).double()
    assert learned(one, one).item() == pytest.approx(100.0, rel=1e-15)
    assert fixed(one, one).item() == pytest.approx(1000.0, rel=1e-6)  # its logarithm was float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_cosine_of_zeros_is_0_and_long_vectors_are_turned_into_short_ones(dtype):
    score = Cosine(2).to(dtype)
    query = torch.tensor([[[0.0, 0.0], [300.0, 400.0]]], dtype=dtype, requires_grad=True)
    found = score(query, query)
    torch.testing.assert_close(found, torch.tensor([[0.0, 10.0]], dtype=dtype), rtol=0.01, atol=0)
    found.sum().backward()
    assert bool(query.grad.isfinite().all())
    assert bool((query.grad[0, 0] == 0).all())


@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_nan_in_a_query_makes_nan_of_its_target_alone(normalize):
    layer, x = made(normalize=normalize), torch.randn(9, 8, dtype=torch.float64)
    spoiled = x.clone()
    spoiled[2] = torch.nan
    weights = layer(spoiled, GRAPH, context=x, return_weights=True)[1]
    assert weights.alpha.isnan().all(-1).tolist() == (GRAPH.target == 2).tolist()


def test_a_normalisation_may_write_into_the_targets_it_is_given():
    def careless(score, target, num_targets):
        weights = edge_softmax(score, target, num_targets)[0]
        target.zero_()
        return weights

    x, before = torch.randn(9, 8, dtype=torch.float64), GRAPH.edge_index.clone()
    torch.testing.assert_close(
        made(normalize=careless)(x, GRAPH), made()(x, GRAPH), rtol=0, atol=1e-12
    )
    assert torch.equal(GRAPH.edge_index, before)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: GraphAttention(8, 2, score="dott"),
            OptionError,
            "score must be one of scaled_dot, dot",
        ),
        (
            lambda: GraphAttention(8, 2, normalize="max"),
            OptionError,
            "normalize must be one of softmax",
        ),
        (
            lambda: GraphAttention(8, 2, score="cosine", scale=2.0),
            OptionError,
            "a score has its own factor",
        ),
        (lambda: Gaussian(2, sigma=0.0), OptionError, "sigma must be a finite number > 0, got 0.0"),
        (lambda: MLPScore(4, 0), OptionError, "hidden must be a whole number >= 1, got 0"),
        (lambda: Cosine(2, most=0.0), OptionError, "most must be a number > 0, got 0.0"),
        (lambda: Cosine(2, scale=-1.0), OptionError, "scale must be a finite number > 0, got -1.0"),
        (lambda: Dot(float("nan")), OptionError, "scale must be a finite number, got nan"),
        (
            lambda: GraphAttention(8, 2, score=FeatureScore(PositiveFeatures(3, 5))),
            OptionError,
            "FeatureScore has head_dim=3, but the layer head_dim=4",
        ),
        (
            lambda: GraphAttention(8, 2, score=lambda q, k, e: q[..., 0].to("meta"))(
                torch.randn(9, 8), GRAPH
            ),
            ShapeError,
            r"score must return a real tensor on cpu, got a Tensor \(33, 2\) of float32 on meta",
        ),
        (
            lambda: GraphAttention(8, 2, normalize=SinkSoftmax(3)),
            OptionError,
            "num_heads=3, but the layer num_heads=2",
        ),
        (
            lambda: GraphAttention(8, 2, score=Cosine(3)),
            OptionError,
            "Cosine has num_heads=3, but the layer num_heads=2",
        ),
        (
            lambda: GraphAttention(8, 2, score=General(2, 7)),
            OptionError,
            "General has head_dim=7, but the layer head_dim=4",
        ),
        (
            lambda: GraphAttention(8, 2, score=Additive(1, 4)),
            OptionError,
            "Additive has num_heads=1, but the layer",
        ),
        (
            lambda: GraphAttention(8, 2, edge_dim=3, score=MLPScore(4, 4, edge_dim=2)),
            OptionError,
            "MLPScore has edge_dim=2, but the layer edge_dim=3",
        ),
        (
            lambda: GraphAttention(8, 2, edge_dim=1, score=Subtraction(2, 4)),
            OptionError,
            "Subtraction has edge_dim=8, but the layer edge_dim=1",
        ),
        (
            lambda: GraphAttention(8, 2, score=lambda q, k, e: q)(torch.randn(9, 8), GRAPH),
            ShapeError,
            r"what score returns must have shape \(33, 2\), got a Tensor \(33, 2, 4\)",
        ),
        (
            lambda: GraphAttention(8, 2, score=MLPScore(4, 4, edge_dim=2))(
                torch.randn(9, 8), GRAPH
            ),
            OptionError,
            "built with edge_dim=2; build the layer with it, too, and pass edge_attr",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    "broken",
    [lambda s: s.sum(), lambda s: s[..., :1], lambda s: None, lambda s: s[1:], lambda s: 1j * s],
)
@pytest.mark.parametrize("hooked", [False, True])
def test_a_normalisation_that_gives_something_else(broken, hooked):
    layer = GraphAttention(8, 2, normalize=lambda score, target, num_targets: broken(score))
    if hooked:
        layer.register_message_forward_hook(lambda *seen: None)
    with pytest.raises(
        ShapeError, match=r"what normalize returns must|normalize must return a real"
    ):
        layer(torch.randn(9, 8), GRAPH)
    # another dtype is brought back
    layer.normalize = lambda score, target, num_targets: (score > 0).double()
    output, weights = layer(torch.randn(9, 8), GRAPH, return_weights=True)
    assert output.dtype == weights.alpha.dtype == torch.float32


def test_repr_names_score_and_normalisation():
    shown = repr(GraphAttention(8, 2, score="additive", normalize="sparsemax", softcap=5.0))
    assert "score='Additive', normalize='sparsemax', softcap=5.0" in shown
    assert "score" not in repr(GraphAttention(8, 2))


REMOVED = torch.arange(0, GRAPH.num_edges, 5)


def with_features_of_removed_edges(layer, bad, removed, head=slice(None)):
    """Output and all gradients, where the features of removed edges are ``bad``."""
    generator = torch.Generator().manual_seed(4)
    x, attr, bias = (
        torch.randn(n, width, generator=generator, dtype=torch.float64)
        for n, width in ((9, 8), (GRAPH.num_edges, 5), (GRAPH.num_edges, 2))
    )
    bias[removed, head] = -torch.inf
    attr[removed] = bad
    leaves = [leaf.requires_grad_() for leaf in (x, attr, bias)] + list(layer.parameters())
    output = layer(x, GRAPH, edge_attr=attr, score_bias=bias)
    loss = (output * torch.arange(8.0)).sum()
    return [output, *torch.autograd.grad(loss, leaves, allow_unused=True)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["edges", "message_passing"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("edge_to", ["both", "key", "value"])
def test_not_even_a_nan_in_the_features_of_a_removed_edge_is_read(score, edge_to, backend):
    try:
        layer = made(score=score, edge_dim=5, edge_to=edge_to, backend=backend)
    except OptionError:  # the score reads no features
        assert edge_to == "key"
        return
    expected = with_features_of_removed_edges(layer, 0.5, REMOVED)
    found = with_features_of_removed_edges(layer, math.nan, REMOVED)
    for mine, theirs in zip(found, expected, strict=True):
        if theirs is not None:
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", ["edges", "message_passing"])
def test_an_edge_removed_from_one_head_spoils_the_others_alone(backend):
    layer = made(edge_dim=5, backend=backend)
    layer.out_proj = None
    expected, found = (
        with_features_of_removed_edges(layer, bad, REMOVED, head=1)[0].unflatten(-1, (2, 4))
        for bad in (0.5, math.nan)
    )
    torch.testing.assert_close(found[:, 1], expected[:, 1])
    assert found[GRAPH.target[REMOVED], 0].isnan().all()


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", ["dense", "tiles", "edges", "message_passing"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_cosine_has_no_gradient_of_nan_at_a_source_that_no_target_reads(bad, backend):
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[:, 2] = False
    mask[1] = False
    graph = ga.from_mask(mask)
    layer = made(score="cosine", backend=backend)
    generator = torch.Generator()
    found = []
    for number in (0.5, bad):
        generator.manual_seed(5)
        x, y = (torch.randn(n, 8, generator=generator).double() for n in (3, 5))
        x[1] = number
        y[2] = number
        leaves = [x.requires_grad_(), y.requires_grad_(), layer.q_proj.bias, layer.k_proj.bias]
        output = layer(x, graph, context=y)
        found.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_cosine_of_a_nan_that_is_read_is_nan():
    layer, x = made(score="cosine"), torch.randn(9, 8).double()
    source = int(GRAPH.source[0])
    x[source, 3] = math.nan
    spoiled = layer(x, GRAPH).isnan().all(-1)
    assert spoiled[GRAPH.target[GRAPH.source == source]].all()
    assert not spoiled[4]
