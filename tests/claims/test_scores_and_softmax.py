"""What a score and a softmax do."""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.nn import GraphAttention


def heads(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64).unsqueeze(-2)  # one head


def weights(query, key, graph, **options):
    value = key.new_zeros(*key.shape[:-1], 1)
    return ga.attention(query, key, value, graph, return_weights=True, **options).weights.dense()[0]


def test_the_parameter_free_layer_is_softmax_of_the_gram_matrix():
    x = heads(7, 5)
    gram = x[:, 0] @ x[:, 0].T
    found = ga.attention(x, x, x, graphs.full(7), scale=1.0)[:, 0]
    torch.testing.assert_close(found, torch.softmax(gram, -1) @ x[:, 0])
    for graph in (
        graphs.full(7),
        graphs.sliding_window(7, 3, causal=True),
    ):  # on the edges there are
        dots = layer_scores("dot", x[:, 0], x[:, 0], graph)
        torch.testing.assert_close(dots, gram * graph.mask())
    dots = layer_scores("dot", x[:, 0], x[:, 0])
    torch.testing.assert_close(dots, dots.T)
    assert torch.linalg.eigvalsh(dots).min() > -1e-12


def layer_scores(score, q, k, graph=None):
    """(T, S) scores of a layer with identity projections, read off its unnormalised weights."""
    # for wide data kernels would be compiled anew
    options = {"normalize": "none", "backend": "message_passing"}
    layer = GraphAttention(q.shape[-1], 1, score=score, bias=False, **options).double()
    with torch.no_grad():
        for proj in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
            proj.weight.copy_(torch.eye(q.shape[-1]))
    graph = graphs.cross(len(q), len(k)) if graph is None else graph
    return layer(q, graph, context=k, return_weights=True)[1].dense()[0]


def test_dot_products_respect_magnitude_and_sign_and_cosines_the_angle_alone():
    user, movies = torch.randn(1, 4).double(), torch.randn(6, 4).double()
    dot, cosine = (lambda q, k, s=s: layer_scores(s, q, k) for s in ("dot", "cosine"))
    torch.testing.assert_close(dot(-user, -movies), dot(user, movies))
    torch.testing.assert_close(dot(user, 2 * movies), 2 * dot(user, movies))
    torch.testing.assert_close(dot(-user, movies), -dot(user, movies))
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (user, movies)]
    # the layer's factor at the start
    torch.testing.assert_close(cosine(user, movies), 10 * unit[0] @ unit[1].T)
    torch.testing.assert_close(cosine(3 * user, 7 * movies), cosine(user, movies))
    torch.testing.assert_close(cosine(-user, movies), -cosine(user, movies))


def test_correlation_is_cosine_and_covariance_the_dot_product_only_of_centred_data():
    # "correlation = cosine, covariance = dot" holds after the mean is taken away, not before.
    data = torch.randn(6, 50, dtype=torch.float64) + 2.0
    correlation, covariance = (
        torch.from_numpy(np.corrcoef(data)),
        torch.from_numpy(np.cov(data, bias=True)),
    )
    centred = data - data.mean(-1, keepdim=True)
    cosine = layer_scores("cosine", centred, centred) / 10  # the layer's factor at the start
    torch.testing.assert_close(cosine, correlation)
    torch.testing.assert_close(layer_scores("dot", centred, centred) / 50, covariance)
    off = ~torch.eye(6, dtype=torch.bool)
    assert ((layer_scores("cosine", data, data) / 10)[off] - correlation[off]).min() > 0.3
    assert (layer_scores("dot", data, data) / 50 - covariance).min() > 1.0


def test_two_projections_are_one_bilinear_form():  # (W_q x)^T W_k y = x^T (W_q^T W_k) y
    x, y, w_q, w_k = (torch.randn(5, 4).double() for _ in range(4))
    w_q, w_k = w_q[:4], w_k[:4]
    layer = GraphAttention(4, 1, score="general", normalize="none", bias=False).double()
    with torch.no_grad():
        layer.score.weight.copy_((w_q.T @ w_k)[None])
        layer.q_proj.weight.copy_(torch.eye(4))
        layer.k_proj.weight.copy_(torch.eye(4))
    merged = layer(x, graphs.full(5), context=y, return_weights=True)[1].dense()[0]
    torch.testing.assert_close(merged, (x @ w_q.T) @ (y @ w_k.T).T)


# Y = A X first, then K, V, Q
def test_cross_attention_without_projections_is_that_with_identities():
    state, memory = torch.randn(5, 4).double(), torch.randn(7, 4).double()
    graph, layer = graphs.cross(5, 7), GraphAttention(4, 1, bias=False).double()
    alpha = torch.softmax(state @ memory.T / 2, -1)
    abstract = ga.attention(*(x[:, None] for x in (state, memory, memory)), graph)[:, 0]
    torch.testing.assert_close(abstract, alpha @ memory)
    assert (layer(state, graph, context=memory) - abstract).abs().max() > 0.1
    with torch.no_grad():
        for proj in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
            proj.weight.copy_(torch.eye(4))
    torch.testing.assert_close(layer(state, graph, context=memory), abstract)


def test_cold_attention_is_a_dictionary_and_hot_attention_an_average():
    # Temperature to 0 is the value of the key with the largest score; to infinity, the mean of
    # in-edges.
    q, k, v = heads(9, 4), heads(9, 4, seed=1), heads(9, 3, seed=2)
    graph = ga.from_mask(
        torch.rand(9, 9, generator=torch.Generator().manual_seed(3)) < 0.5
    ).with_self_loops()
    scores = (q[:, 0] @ k[:, 0].T).masked_fill(~graph.mask(), -torch.inf)
    cold = ga.attention(q, k, v, graph, scale=1e4)[:, 0]
    torch.testing.assert_close(cold, v[scores.argmax(-1), 0], rtol=0, atol=1e-9)
    hot = ga.attention(q, k, v, graph, scale=1e-9)[:, 0]
    mean = (graph.mask().double() @ v[:, 0]) / graph.in_degree[:, None]
    torch.testing.assert_close(hot, mean, rtol=0, atol=1e-7)


def test_entropy_rises_with_temperature():
    q, k, graph = heads(9, 4), heads(9, 4, seed=1), graphs.sliding_window(9, 4, causal=True)
    entropies = []
    for temperature in (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0):
        alpha = weights(q, k, graph, scale=1 / temperature)
        entropies.append(-torch.special.xlogy(alpha, alpha).sum(-1))
    rising = torch.stack(entropies).diff(dim=0)
    assert (rising[:, 1:] > -1e-12).all()
    assert (rising[2:, 1:] > 1e-4).all()
    torch.testing.assert_close(entropies[-1], graph.in_degree.double().log(), rtol=0, atol=1e-2)


def test_softmax_is_a_distribution_over_in_edges_and_without_it_weights_explode():
    mask = torch.rand(9, 9, generator=torch.Generator().manual_seed(3)) < 0.4
    mask[4] = False
    graph, x = ga.from_mask(mask), heads(9, 4)
    total = weights(x, x, graph).sum(-1)
    torch.testing.assert_close(total, mask.any(-1).double())
    value = heads(9, 3, seed=2)
    output = ga.attention(x, x, value, graph)[:, 0]
    for t in mask.any(-1).nonzero().flatten():  # an average lies between what is averaged
        read = value[mask[t], 0]
        assert ((read.amin(0) - 1e-12 <= output[t]) & (output[t] <= read.amax(0) + 1e-12)).all()
    size = {}
    for normalize in ("softmax", "none"):
        torch.manual_seed(1)
        y = heads(30, 16)[:, 0]
        for _ in range(4):
            y = GraphAttention(16, 1, normalize=normalize, bias=False).double()(y, graphs.full(30))
        size[normalize] = float(y.detach().norm())
    assert size["softmax"] < 30
    assert size["none"] > 1e6


def test_a_mask_belongs_outside_the_scaling_and_only_minus_infinity_does_not_care():
    # Source B writes softmax((Q K^T + M) / sqrt(d)); here M is added after scaling.
    q, k, v = heads(6, 16), heads(6, 16, seed=1), heads(6, 16, seed=2)
    full, causal = graphs.full(6), graphs.causal(6)
    finite = torch.randn(6, 6, dtype=torch.float64)
    hard = torch.zeros(6, 6, dtype=torch.float64).masked_fill(~causal.mask(), -torch.inf)
    product = q[:, 0] @ k[:, 0].T
    for m in (finite, hard):
        inside = torch.softmax((product + m) / 4, -1) @ v[:, 0]
        outside = torch.softmax(product / 4 + m, -1) @ v[:, 0]
        found = ga.attention(q, k, v, full, score_bias=m.flatten())[:, 0]
        torch.testing.assert_close(found, outside)
        assert torch.allclose(inside, outside) == (m is hard)
        torch.testing.assert_close(
            ga.attention(q, k, v, full, score_bias=m.flatten() / 4)[:, 0], inside
        )
    # deleted edges are the same
    torch.testing.assert_close(ga.attention(q, k, v, causal)[:, 0], outside)


def saturation(width, scale):
    """Standard deviation of the scores, mean largest weight, and trace of softmax's Jacobian, over
    64 keys.
    """
    made = torch.Generator().manual_seed(width)
    q, k = torch.randn(2, 200, 64, 1, width, generator=made)
    q = q[:, :1]
    alpha = ga.attention(
        q,
        k,
        torch.zeros(200, 64, 1, 1),
        graphs.cross(1, 64),
        scale=scale,
        backend="dense",
        return_weights=True,
    ).weights.alpha[..., 0]
    score = scale * (q * k).sum(-1)
    return (
        float(score.std()),
        float(alpha.amax(-1).mean()),
        float(1 - alpha.square().sum(-1).mean()),
    )


@pytest.mark.parametrize(
    ("width", "std", "largest", "trace"),
    [(4, 2.06, 0.32, 0.81), (64, 8.05, 0.79, 0.29), (1024, 32.3, 0.96, 0.07)],
)
def test_unscaled_scores_saturate_softmax_and_the_root_of_d_prevents_it(width, std, largest, trace):
    """With the figures of another draw: here 2.03, 7.92, 31.9 for the spread, 0.26, 0.78, 0.95 for
    the largest weight and 0.86, 0.31, 0.07 for the trace; scaled 0.99 to 1.01, 0.10 to 0.11 and
    0.96 at every width."""
    raw, scaled = saturation(width, 1.0), saturation(width, width**-0.5)
    assert raw == (
        pytest.approx(std, rel=0.06),
        pytest.approx(largest, abs=0.06),
        pytest.approx(trace, abs=0.06),
    )
    assert raw[0] == pytest.approx(width**0.5, rel=0.05)
    assert scaled == (
        pytest.approx(1, rel=0.05),
        pytest.approx(0.10, abs=0.03),
        pytest.approx(0.96, abs=0.02),
    )


def test_a_vector_times_a_hundred_is_one_hot():
    score = torch.tensor([0.1, -0.2, 0.3, 0.25, -0.05])
    soft, hot = (
        ga.attention(
            torch.ones(1, 1, 1),
            (f * score)[:, None, None],
            torch.eye(5)[:, None],
            graphs.cross(1, 5),
        )[0, 0]
        for f in (1.0, 100.0)
    )
    assert soft.max() < 0.3
    assert hot.max() > 0.99
    assert hot.argmax() == 2


def diagonal_wins(x):
    """The share of rows of softmax(X X^T) whose largest weight is their own."""
    alpha = weights(x[:, None], x[:, None], graphs.full(len(x)), scale=1.0, backend="dense")
    return float((alpha.argmax(-1) == torch.arange(len(x))).double().mean())


def test_the_diagonal_is_largest_for_unit_vectors_and_not_in_general():
    """Source C says that the diagonal of W is largest. It is not: x.x >= x.y is no law.

    Measured, the rows of 200 vectors whose own weight is the largest: 24 % of Gaussian vectors of
    width 8 that are stretched by uniform factors, 50 % of those vectors as they are, all of them at
    width 64, where norms hardly differ, and all unit vectors. A row's own weight is largest exactly
    if no x_s reaches beyond x_t in its direction.
    """
    made = torch.Generator().manual_seed(0)
    x = torch.randn(200, 8, generator=made, dtype=torch.float64)
    varied = x * torch.rand(200, 1, generator=made, dtype=torch.float64) * 3
    wide = torch.randn(200, 64, generator=made, dtype=torch.float64)
    shares = [diagonal_wins(y) for y in (varied, x, wide, x / x.norm(dim=-1, keepdim=True))]
    assert shares == [pytest.approx(0.245, abs=0.02), pytest.approx(0.5, abs=0.02), 1.0, 1.0]
    reach = varied @ varied.T / varied.norm(dim=-1, keepdim=True)
    reach.fill_diagonal_(-torch.inf)
    assert float((reach.amax(-1) < varied.norm(dim=-1)).double().mean()) == pytest.approx(shares[0])


def test_sines_of_a_later_position_are_a_turn_of_those_of_an_earlier():
    table = ga.nn.SinusoidalPosition(8)(torch.zeros(40, 8, dtype=torch.float64))
    turn = torch.linalg.lstsq(table[:30], table[7:37]).solution
    torch.testing.assert_close(table[:33] @ turn, table[7:40], rtol=0, atol=1e-10)


@pytest.mark.slow
def test_tokens_that_read_each_other_again_and_again_organise_themselves():
    """Tokens as spins on a sphere, all to all, the same weights at every step.

    The energy -sum exp(beta x_t.x_s) over edges never rises (Geshkovski et al. 2023, "The emergence
    of clusters in self-attention dynamics"): warm tokens become one, cold ones clusters, and parts
    without an edge between them each their own.
    """
    made = torch.Generator().manual_seed(0)
    start = torch.nn.functional.normalize(
        torch.randn(24, 3, generator=made, dtype=torch.float64), dim=-1
    )

    def settled(beta, graph):
        x, energies = start, []
        for _ in range(60):
            energies.append(-(torch.exp(beta * x @ x.T) * graph.mask()).sum())
            y = x[:, None]
            x = torch.nn.functional.normalize(
                ga.attention(y, y, y, graph, scale=beta)[:, 0], dim=-1
            )
        assert torch.stack(energies).diff().max() < 1e-9
        assert energies[-1] < 1.5 * energies[0]
        return x @ x.T

    full, halves = graphs.full(24), graphs.block_local(24, 12, causal=False)
    assert settled(1.0, full).min() > 1 - 1e-6
    assert settled(4.0, full).min() < 0.5
    apart = settled(1.0, halves)
    assert apart[halves.mask()].min() > 1 - 1e-6
    assert apart[~halves.mask()].max() < 1 - 1e-2


def test_classical_hopfield_is_attention_without_softmax_and_without_self_loops():
    # S_i <- sign(sum_j W_ij s_j), W = X^T X / N, no loops.
    made = torch.Generator().manual_seed(0)
    n, p = 97, 5
    stored = torch.randn(p, n, generator=made, dtype=torch.float64).sign()
    columns = stored.T  # a node's query and key: its spins in the p patterns, so q_i . k_j = N W_ij
    layer = GraphAttention(p, 1, vdim=1, score="dot", normalize="none", bias=False).double()
    with torch.no_grad():
        layer.q_proj.weight.copy_(torch.eye(p) / n)
        layer.k_proj.weight.copy_(torch.eye(p))
        layer.v_proj.weight.copy_(torch.eye(p)[:, :1])
        layer.out_proj.weight.copy_(torch.eye(p))
    graph = graphs.full(n).without_self_loops()
    hebb = (stored.T @ stored / n).fill_diagonal_(0)
    for pattern in stored:
        field = layer(columns, graph, context=(columns, pattern[:, None]))[:, 0]
        torch.testing.assert_close(field, hebb @ pattern)
        assert torch.equal(field.sign(), pattern)  # a fixed point
        noisy = pattern * torch.where(torch.rand(n, generator=made) < 0.15, -1.0, 1.0)
        back = layer(columns, graph, context=(columns, noisy[:, None]))[:, 0].sign()
        assert (back != pattern).sum() < (noisy != pattern).sum() / 3
    spins = torch.randn(n, generator=made, dtype=torch.float64).sign()
    energy = [-spins @ hebb @ spins]
    for i in torch.randperm(n, generator=made).tolist():  # one spin at a time
        spins[i] = 1.0 if hebb[i] @ spins >= 0 else -1.0
        energy.append(-spins @ hebb @ spins)
    assert (torch.stack(energy).diff() < 1e-9).all()
    assert energy[-1] < energy[0]
