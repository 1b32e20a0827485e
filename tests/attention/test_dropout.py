"""What dropout drops: its statistics, its independence, its seed, and that the backward drops the
same.
"""

import math

import pytest
import torch
from attention_formula import BACKENDS, EXACT, WEIGHING, asked, assert_near, gradients

import graphattn as ga

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
N, HEADS, BATCH = 61, 6, 3
PLACES = torch.randperm(N * N, generator=torch.Generator().manual_seed(0))[:1300]
GRAPH = ga.from_edge_index(torch.stack((PLACES % N, PLACES // N)), num_nodes=N)
E = GRAPH.num_edges


def of_width(*shape, seed=1):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64).requires_grad_()


def factors(p, backend, seed, graph=GRAPH, calls_before=0, **extras):
    """What each weight (B, E, H) is multiplied with: seen through values that are one-hot, on
    weights of 1 / degree.
    """
    zero, onehot, outputs = torch.zeros(BATCH, N, HEADS, 8).double(), torch.eye(N).double(), []
    for few in onehot.split(8, 1):  # wider values would have the kernels compiled anew
        torch.manual_seed(seed)
        value = few[:, None].expand(BATCH, N, HEADS, -1)
        for _ in range(calls_before):
            ga.attention(zero, zero, value, graph, dropout_p=p, backend=backend)
        output = ga.attention(zero, zero, value, graph, dropout_p=p, backend=backend, **extras)
        outputs.append(output.output if extras else output)
    weight = torch.cat(outputs, -1)[:, GRAPH.target, :, GRAPH.source].movedim(0, 1)  # (B, E, H)
    return weight * GRAPH.in_degree[GRAPH.target][None, :, None]


def correlation(x, y):
    x, y = (z.flatten().double() - z.double().mean() for z in (x, y))
    return float((x * y).mean() / (x.square().mean() * y.square().mean()).sqrt())


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_weights_are_kept_with_their_probability_and_scaled_by_it(p, backend):
    found = factors(p, backend, seed=3)
    kept = found != 0
    assert_near(found[kept], torch.full_like(found[kept], 1 / (1 - p)), 1e-14)
    sigma = math.sqrt(p * (1 - p) / kept.numel())
    assert abs(float(kept.double().mean()) - (1 - p)) < 5 * sigma
    for dim in ((1, 2), (0, 1)):  # of each example; of each head
        shares = kept.double().mean(dim)
        assert float((shares - (1 - p)).abs().max()) < 5 * sigma * math.sqrt(shares.numel())
    wanted, count = p / (1 - p), kept.numel()  # the variance of a factor
    fourth = p + (1 - p) * (p / (1 - p)) ** 4
    assert abs(float(found.var()) - wanted) < 6 * math.sqrt((fourth + wanted**2) / count)


def test_what_is_dropped_is_independent_over_edges_heads_examples_and_calls(backend):
    first, other = (factors(0.5, backend, seed) != 0 for seed in (3, 4))
    second = factors(0.5, backend, 3, calls_before=1) != 0
    by_target, by_source = (torch.argsort(x, stable=True) for x in (GRAPH.target, GRAPH.source))
    pairs = {
        "edges in a row": (first[:, by_target[1:]], first[:, by_target[:-1]]),
        "edges in a column": (first[:, by_source[1:]], first[:, by_source[:-1]]),
        "heads": (first[..., 1:], first[..., :-1]),
        "heads of edges in a row": (first[:, by_target[1:], 1:], first[:, by_target[:-1], :-1]),
        "examples": (first[1:], first[:-1]),
        "seeds": (first, other),
        "calls": (first, second),
    }
    for name, (x, y) in pairs.items():
        assert abs(correlation(x, y)) < 5 / math.sqrt(x.numel()), name


def test_a_seed_fixes_the_bits_and_no_other_seed_has_them(backend):
    q, k, v = (of_width(BATCH, N, HEADS, 4, seed=seed) for seed in (1, 2, 3))
    runs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        output = ga.attention(q, k, v, GRAPH, dropout_p=0.3, backend=backend)
        runs.append([output, *gradients(output, (q, k, v))])
    assert all(torch.equal(one, other) for one, other in zip(*runs[:2], strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(*runs[1:], strict=True))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("dtype", "extras"),
    [(torch.float64, {}), (torch.float32, {}), (torch.float64, {"return_lse": True})],
)
def test_the_backward_drops_what_the_forward_dropped(dtype, extras, backend):
    factor = factors(0.4, backend, seed=7, **extras)
    q, k, v = (
        (1.5 * of_width(BATCH, N, HEADS, 4, seed=seed)).detach().to(dtype).requires_grad_()
        for seed in (1, 2, 3)
    )
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    score = (wide[0][:, GRAPH.target] * wide[1][:, GRAPH.source]).sum(-1) / 2
    power = score.exp()
    total = torch.zeros(BATCH, N, HEADS, dtype=torch.float64).index_add(1, GRAPH.target, power)
    alpha = power / total[:, GRAPH.target]
    wanted = torch.zeros_like(wide[0]).index_add(
        1, GRAPH.target, (alpha * factor).unsqueeze(-1) * wide[2][:, GRAPH.source]
    )
    torch.manual_seed(7)
    found = ga.attention(q, k, v, GRAPH, dropout_p=0.4, backend=backend, **extras)
    found = found.output if extras else found
    tolerance = EXACT if dtype == torch.float64 else 1e-5
    assert_near(found, wanted, tolerance)
    for mine, theirs in zip(gradients(found, (q, k, v)), gradients(wanted, wide), strict=True):
        assert_near(mine, theirs, tolerance)
    torch.manual_seed(7)
    extras = asked(backend, {"return_weights": True, "return_lse": True})
    shown = ga.attention(q, k, v, GRAPH, dropout_p=0.4, backend=backend, **extras)
    if backend in WEIGHING:
        assert_near(shown.weights.alpha, alpha, tolerance)  # before dropout
    assert_near(shown.lse, total.log(), tolerance)


def test_probabilities_near_0_and_1(backend):
    q, k, v = (of_width(BATCH, N, HEADS, 4, seed=seed) for seed in (1, 2, 3))
    whole = ga.attention(q, k, v, GRAPH, backend=backend)
    for p in (5e-324, 1e-300, 1e-12):
        assert_near(ga.attention(q, k, v, GRAPH, dropout_p=p, backend=backend), whole, 1e-11)
    for p in (1.0, 1 - 2**-53, 1 - 1e-12):
        output = ga.attention(q, k, v, GRAPH, dropout_p=p, backend=backend)
        assert not output.any()
        assert not any(grad.any() for grad in gradients(output, (q, k, v)))


def test_graphs_of_heads_drop_apart(backend):
    both = ga.PerHead([GRAPH, GRAPH.with_self_loops()])
    kept = factors(0.5, backend, 2, both) != 0
    for head in range(HEADS - 1):
        assert abs(correlation(kept[..., head], kept[..., head + 1])) < 5 / math.sqrt(BATCH * E)


def test_vmap_drops_alike_or_apart_as_it_is_told(backend):
    q, k, v = (of_width(N, HEADS, 4, seed=seed).detach() for seed in (1, 2, 3))
    both = torch.stack((q, q))

    def call(query):
        return ga.attention(query, k, v, GRAPH, dropout_p=0.5, backend=backend)

    same = torch.func.vmap(call, randomness="same")(both)
    apart = torch.func.vmap(call, randomness="different")(both)
    assert torch.equal(same[0], same[1])
    assert not torch.isclose(apart[0], apart[1]).any(-1).any(-1).all()
    for output in (same, apart):
        assert (output == 0).double().mean() < 0.1
