"""The twins of scores and normalisations, judged by torch's own functions, by loops and by what
they may import.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from graphattn.exactness.layer_twin import of_pairs, of_rows
from graphattn.nn import FeatureScore, PositiveFeatures, normalizers, scores
from graphattn.twins.dense import turned

T, S, H, D = 3, 5, 2, 7


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


QUERY, KEY, EDGE = randn(T, H, D), randn(S, H, D, seed=1), randn(T, S, 3, seed=2)
LONG = randn(T, S, H * D, seed=3)
WEIGHT, SIGMA = randn(H, D, D, seed=4), torch.tensor([0.6, 1.7], dtype=torch.float64)


def cosine(q, k):
    return F.cosine_similarity(q, k, 0)


def perceptron(wide, out):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(wide, 11), nn.ReLU(), nn.Linear(11, out)).double()


DENSE = {name: entry.dense for name, entry in normalizers.NORMALIZERS.items()}
MLP, GAMMA = perceptron(2 * D + 3, 1), perceptron(H * D, H)


def twin_of(part, **held):
    """The formula of a score or normalisation that holds these parameters."""
    for name, value in held.items():
        setattr(part, name, nn.Parameter(value) if isinstance(value, torch.Tensor) else value)
    return part.dense


@pytest.mark.parametrize(
    ("twin", "of_pair"),
    [
        (scores.Dot(0.3).dense, lambda q, k, e, h: 0.3 * torch.dot(q[h], k[h])),
        (
            twin_of(scores.Cosine(H), log_scale=SIGMA[:, None].log()),
            lambda q, k, e, h: SIGMA[h] * cosine(q[h], k[h]),
        ),
        (
            twin_of(scores.Cosine(H, most=5.0), log_scale=torch.full((H, 1), 9.0).double()),
            lambda q, k, e, h: 5.0 * cosine(q[h], k[h]),
        ),
        (
            twin_of(scores.General(H, D), weight=WEIGHT),
            lambda q, k, e, h: F.bilinear(q[h], k[h], WEIGHT[h][None])[0],
        ),
        (
            twin_of(scores.Additive(H, D, torch.sin), weight=WEIGHT[0, :H]),
            lambda q, k, e, h: torch.sin(q[h] + k[h]) @ WEIGHT[0, h],
        ),
        (
            twin_of(scores.MLPScore(D, 11, 3), hidden=MLP[0], out=MLP[2]),
            lambda q, k, e, h: MLP(torch.cat((q[h], k[h], e[:3])))[0],
        ),
        (
            twin_of(scores.Gaussian(H), log_sigma=SIGMA.log()),
            lambda q, k, e, h: -(((q[h] - k[h]).norm() / SIGMA[h]) ** 2) / 2,
        ),
        (
            twin_of(scores.Subtraction(H, D), gamma=GAMMA),
            lambda q, k, e, h: GAMMA(q.flatten() - k.flatten() + e[3:])[h],
        ),
        (FeatureScore("elu").dense, lambda q, k, e, h: (F.elu(q[h]) + 1) @ (F.elu(k[h]) + 1)),
        (FeatureScore("relu").dense, lambda q, k, e, h: F.relu(q[h]) @ F.relu(k[h])),
        (FeatureScore("softmax").dense, lambda q, k, e, h: F.softmax(q[h], 0) @ F.softmax(k[h], 0)),
        (
            of_pairs(lambda q, k, e: (q * k).sum(-1) + e[..., :1]),
            lambda q, k, e, h: q[h] @ k[h] + e[0],
        ),
    ],
)
def test_scores_equal_torch_pair_by_pair(twin, of_pair):
    edge = LONG if "Subtraction" in twin.__qualname__ else EDGE
    result = twin(QUERY, KEY, edge)
    both = torch.cat((EDGE, LONG), -1)
    pairs = [
        of_pair(QUERY[t], KEY[s], both[t, s], h)
        for h in range(H)
        for t in range(T)
        for s in range(S)
    ]
    torch.testing.assert_close(result, torch.stack(pairs).view(H, T, S), rtol=1e-12, atol=1e-12)
    # a batch, which shares its edges
    again = twin(torch.stack((QUERY, KEY[:T])), torch.stack((KEY, KEY)), edge)
    torch.testing.assert_close(again[0], result, rtol=0, atol=1e-14)


def test_the_encoding_of_edges_equals_torch():
    theta = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 6)
    ).double()
    edge = torch.randn(2, T, S, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    score = scores.Subtraction(2, 3, edge_dim=4)
    score.delta = theta
    twin = score.dense_delta
    torch.testing.assert_close(twin(edge), theta(edge), rtol=1e-13, atol=1e-13)


def test_the_cosine_of_zeros_is_0_and_sends_no_gradient():
    query = torch.zeros(T, H, D, dtype=torch.float64, requires_grad=True)
    result = twin_of(scores.Cosine(H), log_scale=SIGMA[:, None].log())(query, KEY, None)
    (sent,) = torch.autograd.grad(result.sum(), query)
    assert float(result.abs().max()) == float(sent.abs().max()) == 0.0


@pytest.mark.slow
def test_random_features_have_the_mean_of_the_exponential():
    features = PositiveFeatures(D, 200_000)
    features.projection = randn(200_000, D)
    phi = features.dense
    x, y = 0.5 * QUERY[0, 0], 0.5 * KEY[0, 0]
    expected = math.exp(float(x @ y) / math.sqrt(D))
    assert float(phi(x) @ phi(y)) == pytest.approx(expected, rel=0.02)


def simplex(row, kept):
    """Projection of the kept scores on the simplex, by trying every size of the support."""
    best = torch.zeros_like(row)
    z = row[kept].sort(descending=True).values
    for size in range(1, len(z) + 1):
        tau = (z[:size].sum() - 1) / size
        if z[size - 1] > tau:
            best = torch.where(kept, (row - tau).clamp(min=0), 0.0)
    return best


def by_softmax(row, kept):
    wide = torch.cat((row[kept], torch.tensor([0.3]).double()))
    return torch.zeros_like(row).masked_scatter(kept, torch.softmax(wide, 0)[:-1])


def count(kept):
    return max(1, int(kept.sum()))


@pytest.mark.parametrize(
    ("twin", "of_row"),
    [
        (twin_of(normalizers.SinkSoftmax(H), logit=torch.full((H,), 0.3).double()), by_softmax),
        (normalizers.Sigmoid(-0.7).dense, lambda row, kept: kept / (1 + (0.7 - row).exp())),
        (normalizers.Sigmoid().dense, lambda row, kept: kept / (1 + count(kept) * (-row).exp())),
        (
            DENSE["hard"],
            lambda row, kept: kept * (row == row[kept].max()) if kept.any() else 0.0 * row,
        ),
        (DENSE["sparsemax"], simplex),
        (DENSE["none"], lambda row, kept: row * kept),
        (DENSE["sum"], lambda row, kept: row * kept / (row[kept].sum() if kept.any() else 1.0)),
        (
            of_rows(lambda z, t, n: z.exp() * t[:, None] / n, torch.tensor([2, 3, 5]), [7] * 3),
            lambda row, kept: row.exp() * kept / 7,
        ),
    ],
)
def test_normalisations_equal_a_loop_over_rows(twin, of_row):
    score = (2 * randn(4, H, T, 11, seed=5)).requires_grad_()
    there = randn(4, H, T, 11, seed=6) > -0.3
    there[0, 0, 1] = False
    result = twin(score.masked_fill(~there, -torch.inf), there)
    own = hasattr(twin, "__qualname__") and "of_rows" in twin.__qualname__
    factor = torch.tensor([2.0, 3.0, 5.0]).double() if own else torch.ones(T).double()
    rows = [
        of_row(score[b, h, t], there[b, h, t]) * factor[t]
        for b in range(4)
        for h in range(H)
        for t in range(T)
    ]
    expected = torch.stack(rows).double().view_as(score)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    if not result.requires_grad:
        assert twin is DENSE["hard"]
        return
    mine, theirs = (
        torch.autograd.grad((x * randn(4, H, T, 11)).sum(), score)[0] for x in (result, expected)
    )
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    assert bool((mine[~there] == 0).all())


@pytest.mark.parametrize("twin", [DENSE["hard"], DENSE["sparsemax"], DENSE["sum"]])
def test_no_columns(twin):
    empty = torch.zeros(H, T, 0)
    assert twin(empty, empty > 0).shape == (H, T, 0)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("num_axes", [1, 2])
def test_turning_is_a_rotation_of_each_pair(layout, num_axes):
    x, positions = randn(3, H, 10), randn(3, num_axes, seed=7) * 5
    result = turned(x, positions if num_axes == 2 else positions[:, 0], 100.0, 8, layout, num_axes)
    per_axis = 4 // num_axes
    for n in range(3):
        for i in range(4):
            angle = float(positions[n, i // per_axis]) * 100.0 ** (
                -2 * (i % per_axis) / (8 // num_axes)
            )
            turn = torch.tensor(
                [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]],
                dtype=x.dtype,
            )
            pair = [i, i + 4] if layout == "half" else [2 * i, 2 * i + 1]
            torch.testing.assert_close(
                result[n][:, pair], x[n][:, pair] @ turn.T, rtol=0, atol=1e-12
            )
    assert torch.equal(result[..., 8:], x[..., 8:])
