"""Without softmax attention is linear, (Q K^T) V = Q (K^T V), and causally a prefix sum."""

import pytest
import torch
from torch.nn import functional as F

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError
from graphattn.nn import FeatureScore, GraphAttention, PositiveFeatures
from graphattn.nn.linear_attention import chunks_of

SIZES = [0, 9, 131]
GRAPHS = {
    "full": graphs.full,
    "causal": graphs.causal,
    "prefix": lambda n: graphs.prefix(n, n // 3),
    "listed causal": lambda n: graphs.causal(n).materialise(),
    "steps of 7": lambda n: ga.from_rule(lambda t, s: s < t // 7 * 7, n),
    "window": lambda n: graphs.sliding_window(n, 4, causal=True),
}


def layer(backend="auto", normalize="sum", feature_map="elu", **options):
    torch.manual_seed(0)
    made = GraphAttention(
        12, 3, score=FeatureScore(feature_map), normalize=normalize, backend=backend, **options
    )
    return made.double()


def test_the_product_may_be_bracketed_either_way_on_a_full_graph():
    q, k, v = (torch.randn(7, 4, dtype=torch.float64) for _ in range(3))
    left, right = (q @ k.T) @ v, q @ (k.T @ v)
    torch.testing.assert_close(left, right, rtol=0, atol=1e-13)
    # softmax forbids it
    assert not torch.allclose(torch.softmax(q @ k.T, -1) @ v, right / right.sum(-1, keepdim=True))
    made = GraphAttention(4, 1, score="dot", normalize="none", bias=False).double()
    with torch.no_grad():
        for proj in (made.q_proj, made.k_proj, made.v_proj, made.out_proj):
            proj.weight.copy_(torch.eye(4))
    torch.testing.assert_close(made(q, graphs.full(7)), q @ (q.T @ q), rtol=0, atol=1e-13)


def test_causally_it_is_a_prefix_sum_the_recurrent_network_of_katharopoulos():
    made, x = layer(), torch.randn(131, 12, dtype=torch.float64)
    q, k, v = (p(x).unflatten(-1, (3, 4)) for p in (made.q_proj, made.k_proj, made.v_proj))
    q, k = F.elu(q) + 1, F.elu(k) + 1
    state, total, rows = (
        torch.zeros(3, 4, 4, dtype=torch.float64),
        torch.zeros(3, 4, dtype=torch.float64),
        [],
    )
    for t in range(131):
        state, total = state + k[t, :, :, None] * v[t, :, None, :], total + k[t]
        rows.append(torch.einsum("hd,hde->he", q[t], state) / (q[t] * total).sum(-1, keepdim=True))
    expected = made.out_proj(torch.stack(rows).flatten(1))
    torch.testing.assert_close(made(x, graphs.causal(131)), expected, rtol=1e-12, atol=1e-12)


LAYERS = [
    {},
    {"normalize": "none", "feature_map": "identity"},
    {"num_kv_heads": 1, "feature_map": "softmax"},
]


@pytest.mark.slow
@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, LAYERS[(i + j) % 3]) for i, name in enumerate(GRAPHS) for j in (0, 1)],
)
def test_running_sums_are_message_passing_with_every_gradient(name, options):
    mine, theirs = layer(**options), layer("message_passing", **options)
    for n in SIZES:
        x, graph = torch.randn(2, n, 12, dtype=torch.float64, requires_grad=True), GRAPHS[name](n)
        assert (chunks_of(graph) is not None) == (name != "window" or n == 0)
        torch.testing.assert_close(mine(x, graph), theirs(x, graph), rtol=1e-11, atol=1e-11)
        if n == 0:
            continue
        grads = [
            torch.autograd.grad(m(x, graph).sin().sum(), [x, *m.parameters()])
            for m in (mine, theirs)
        ]
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    later = x.detach().clone()
    later[:, 90] += 1  # what is not read changes nothing, bit for bit
    changed = (mine(later, graph) != mine(x, graph)).any(-1).any(0)
    readers = graph.mask()[:, 90].clone()
    readers[90] = changed[90]  # its own query has moved
    assert torch.equal(changed, readers)


def test_a_removed_edge_and_asked_for_weights_go_edge_by_edge():
    made, x, graph = layer(), torch.randn(9, 12, dtype=torch.float64), graphs.causal(9)
    less = graph - ga.from_edge_index(torch.tensor([[2], [5]]), num_nodes=9)
    assert chunks_of(less) is None
    assert (made(x, less) - made(x, graph)).abs().amax(1).gt(1e-6).tolist() == [
        t == 5 for t in range(9)
    ]
    output, weights = made(x, graph, return_weights=True)
    torch.testing.assert_close(output, made(x, graph))
    torch.testing.assert_close(weights.dense().sum(-1), torch.ones(3, 9, dtype=torch.float64))
    bias = torch.randn(graph.num_edges, 3, dtype=torch.float64)
    torch.testing.assert_close(
        made(x, graph, score_bias=bias),
        layer("message_passing")(x, graph, score_bias=bias),
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.slow
def test_half_precision_sums_in_float32():
    x = torch.randn(300, 12)
    mine, theirs = layer().bfloat16(), layer("message_passing").bfloat16()
    found, wanted = (m(x.bfloat16(), graphs.causal(300)).float() for m in (mine, theirs))
    assert (found - wanted).abs().max() < 2**-7 * wanted.abs().max()


@pytest.mark.slow
def test_twenty_thousand_tokens_need_no_edges():
    graph = graphs.causal(20_000)  # 200 million edges
    made = GraphAttention(4, 1, score=FeatureScore("relu"), normalize="sum")
    with torch.no_grad():
        output = made(torch.randn(20_000, 4), graph)
    assert output.isfinite().all()
    assert "listed" not in graph._memo


@pytest.mark.slow
def test_random_features_have_softmaxs_exponential_as_their_mean():
    torch.manual_seed(0)
    q, k = torch.randn(2, 30, 4, dtype=torch.float64) / 2
    exact = torch.exp(q @ k.T / 2)
    guesses = []
    for seed in range(400):
        phi = PositiveFeatures(4, 8, seed).double()
        guesses.append(phi(q) @ phi(k).T)
    one, mean = (
        float((x - exact).norm() / exact.norm()) for x in (guesses[0], torch.stack(guesses).mean(0))
    )
    assert mean < 0.08 < 0.3 < one  # a QR whose signs are left as they come is wrong by 0.18
    omega = F.normalize(PositiveFeatures(4, 6).projection, dim=-1)
    torch.testing.assert_close(omega[:4] @ omega[:4].T, torch.eye(4), rtol=0, atol=1e-6)


def test_it_stands_in_a_block():
    block = ga.nn.TransformerBlock(12, 3, score=FeatureScore(), normalize="sum")
    assert block(torch.randn(200, 12), graphs.causal(...)).shape == (200, 12)


def test_refusals():
    with pytest.raises(
        OptionError, match='feature_map must be "elu", "relu", "softmax" or "identity"'
    ):
        FeatureScore("gelu")
    with pytest.raises(OptionError, match="num_features must be a whole number >= 1, got 0"):
        PositiveFeatures(4, 0)
