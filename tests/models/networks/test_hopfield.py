"""Associative memories: energies against sums and gradients, fixed points, load, and attention
itself.
"""

import math

import networkx
import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, OptionError, ShapeError
from graphattn.models.hopfield import Hopfield, retrieval_energy, retrieve


def spins(*shape, seed=0):
    return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed)).double() * 2 - 1


def flipped(state, share, seed=1):
    order = torch.rand(state.shape, generator=torch.Generator().manual_seed(seed)).argsort(-1)
    return torch.where(order < share * state.shape[-1], -state, state)


def close(found, wanted):
    torch.testing.assert_close(
        torch.as_tensor(found), torch.as_tensor(wanted), rtol=1e-12, atol=1e-12
    )


def symmetric(nodes, seed):
    """Random couplings of either sign on a random graph whose edges stand in no order."""
    world = networkx.gnp_random_graph(nodes, 0.3, seed=seed)
    draw = np.random.default_rng(seed)
    for edge in world.edges:
        world.edges[edge]["j"] = draw.normal()
    graph = ga.from_networkx(world.to_directed())
    graph = ga.from_edge_index(
        graph.edge_index[:, torch.from_numpy(draw.permutation(graph.num_edges))], num_nodes=nodes
    )
    j = [world.edges[s, t]["j"] for s, t in graph.edge_index.T.tolist()]
    return world, Hopfield(graph, torch.tensor(j, dtype=torch.float64))


def test_hebb_is_the_matrix_of_the_papers():
    x, state = spins(3, 11), spins(5, 11, seed=4)
    memory = Hopfield.from_patterns(x)
    w = x.T @ x / 3 - torch.eye(11)
    assert torch.equal(memory.graph.mask(), ~torch.eye(11).bool())
    close(memory.coupling, w[memory.graph.target, memory.graph.source])
    close(memory.field(state), state @ w)
    close(memory.energy(state), -0.5 * torch.einsum("bi,ij,bj->b", state, w, state))
    close(memory.step(state), torch.where((state @ w).abs() < 1e-9, state, (state @ w).sign()))
    ring = graphs.circulant(11, (1, 10))
    close(Hopfield.from_patterns(x, ring).coupling, w[ring.target, ring.source])


@pytest.mark.parametrize("seed", range(3))
def test_energy_never_rises_when_spins_turn_one_by_one(seed):
    world, network = symmetric(17, seed)
    assert network.is_symmetric
    state = spins(20, 17, seed=seed)
    wanted = [
        -sum(d["j"] * s[a] * s[b] for a, b, d in world.edges(data=True)) for s in state.tolist()
    ]
    close(network.energy(state), torch.tensor(wanted, dtype=torch.float64))
    order = np.random.default_rng(seed).permutation(17).tolist()
    for node in order * 2:
        turned = network.turn(state, node)
        close(turned[:, node], network.step(state)[:, node])
        fallen = network.energy(state) - network.energy(turned)
        assert bool(((fallen > 0) | (turned == state).all(-1)).all())
        state = turned
    still = network.settle(state, order)
    assert torch.equal(network.step(still), still)
    assert bool((network.energy(still) <= network.energy(state)).all())


def test_ising_of_networkx_and_spins_that_turn_at_once():
    world = networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(5, 7))
    ising = Hopfield(ga.from_networkx(world.to_directed()), 0.5)
    state = spins(35)
    bonds = sum(state[a] * state[b] for a, b in world.edges)
    assert float(ising.energy(state)) == pytest.approx(-0.5 * float(bonds))
    aligned = torch.ones(35).double()
    assert torch.equal(ising.settle(aligned), aligned)
    assert float(ising.energy(aligned)) == -0.5 * world.number_of_edges()
    chess = torch.tensor([(-1.0) ** (node // 7 + node % 7) for node in range(35)])
    # at once: two states take turns for ever, at the highest energy
    assert torch.equal(ising.step(chess), -chess)
    assert torch.equal(ising.step(ising.step(chess)), chess)
    assert ising.energy(ising.settle(chess)) < ising.energy(chess)  # one by one they fall


def test_stored_patterns_are_fixed_points_at_low_load_only():
    x = spins(4, 100)
    memory = Hopfield.from_patterns(x)
    assert torch.equal(memory.step(x), x)
    assert torch.equal(memory.settle(flipped(x, 0.2)), x)
    crowded = spins(50, 100)  # far above 0.138 N
    assert bool((Hopfield.from_patterns(crowded).step(crowded) != crowded).any(-1).all())


def test_a_spin_that_nothing_pulls_stays():
    pair = ga.from_edge_index([[0, 1, 2, 1], [1, 0, 1, 2]], num_nodes=4)  # 3 has no neighbour
    state = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, -1.0, 1.0]])
    network = Hopfield(pair, 1.0)
    assert torch.equal(network.turn(state, 3), state)
    assert torch.equal(network.turn(state, 1)[0], state[0])  # 1 - 1 = 0
    assert network.turn(state, 0)[1].tolist() == [-1.0, -1.0, -1.0, 1.0]


Q, X = (torch.randn(n, 6, generator=torch.Generator().manual_seed(5)).double() for n in (4, 9))
RING = graphs.circulant(4, (1,))
SOME = graphs.cross(4, 9) - ga.from_mask(torch.eye(4, 9).bool())


@pytest.mark.parametrize("beta", [0.3, 2.0])
@pytest.mark.parametrize("graph", [graphs.cross(..., ...), SOME], ids=["all", "some"])
def test_a_step_is_attention_and_falls_along_the_energy(beta, graph):
    mask = graph.mask() if graph is SOME else torch.ones(4, 9).bool()
    moved = retrieve(Q, X, beta, graph)
    direct = ga.attention(
        Q.unsqueeze(1), X.unsqueeze(1), X.unsqueeze(1), graph, scale=beta
    ).squeeze(1)
    close(moved, direct)
    close(moved, torch.softmax((beta * Q @ X.T).masked_fill(~mask, -torch.inf), -1) @ X)
    query = Q.clone().requires_grad_()
    energy = retrieval_energy(query, X, beta, graph)
    levels = energy.tolist()
    for t in range(4):
        x = X[mask[t]]
        lse = math.log(sum(math.exp(beta * float(Q[t] @ row)) for row in x)) / beta
        largest = max(float(row @ row) for row in X)
        wanted = -lse + float(Q[t] @ Q[t]) / 2 + math.log(len(x)) / beta + largest / 2
        assert levels[t] == pytest.approx(wanted, rel=1e-12)
    close(torch.autograd.grad(energy.sum(), query)[0], Q - moved)  # a step undoes the gradient
    state, before = 3 * torch.randn(50, 6).double(), torch.full((50,), torch.inf)
    wide = graphs.cross(50, 9)
    for _ in range(8):  # the same weights again and again
        now = retrieval_energy(state, X, beta, wide)
        assert bool((now <= before + 1e-12).all())
        assert bool((now >= 0).all())
        state, before = retrieve(state, X, beta, wide), now
    close(
        retrieve(Q, X, beta, graph, steps=3),
        retrieve(retrieve(moved, X, beta, graph), X, beta, graph),
    )
    uphill = retrieval_energy(Q + 0.1 * (Q - moved), X, beta, graph)
    assert bool((uphill > energy).all())


def test_modern_memories_hold_what_classical_ones_lose():
    x = spins(200, 64)  # three times as many patterns as spins
    noisy = flipped(x, 0.15)
    found = [
        (retrieve(noisy, x, beta).sign() == x).all(-1).double().mean().item()
        for beta in (0.01, 0.1, 1.0)
    ]
    assert found == sorted(found)
    assert found[0] < 0.2
    assert found[-1] == 1.0
    assert not bool((Hopfield.from_patterns(x).step(noisy) == x).all(-1).any())
    torch.testing.assert_close(
        retrieve(noisy, x, 1e-9), x.mean(0).expand(200, 64), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_memories_in_low_precision_recall_and_loaded_ones_too(dtype):
    x = spins(2, 400).to(dtype)
    memory, noisy = Hopfield.from_patterns(x), flipped(x, 0.1)
    assert torch.equal(memory.settle(noisy[:1]), x[:1])
    assert torch.equal(memory.to(dtype).step(noisy), x)
    ring = graphs.circulant(6, (1, 5))
    strong, lone = Hopfield(ring, 1e9), torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, 1.0])
    strong.load_state_dict(Hopfield(ring, 1.0).state_dict())
    assert torch.equal(strong.settle(lone), torch.ones(6))


def test_a_state_without_a_pattern():
    assert retrieval_energy(Q[:1], X[:0], 2.0)[0] == torch.inf
    lonely = ga.from_edge_index([[0], [1]], num_sources=9, num_targets=2)
    assert torch.equal(
        retrieve(Q[:2], X, 2.0, lonely), torch.stack((torch.zeros(6).double(), X[0]))
    )
    assert retrieval_energy(Q[:2], X, 2.0, lonely)[0] == torch.inf


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Hopfield(graphs.full(4), 1.0), GraphError, "without self-loops or repeated edges"),
        (lambda: Hopfield(graphs.cross(4, 5), 1.0), GraphError, "a square graph"),
        (lambda: Hopfield(graphs.full(...), 1.0), GraphError, "needs an AttentionGraph"),
        (
            lambda: Hopfield(RING, torch.ones(5)),
            ShapeError,
            r"coupling must have shape \(4,\), got a Tensor \(5,\)",
        ),
        (
            lambda: Hopfield(RING, 1.0).energy(spins(4).float()),
            GraphError,
            "energy needs the reverse",
        ),
        (
            lambda: Hopfield(RING, -1.0).settle(torch.ones(4)),
            OptionError,
            "still flip after .* 100",
        ),
        (lambda: Hopfield(RING, 1.0).step(torch.zeros(4)), ShapeError, "spins must be -1 or 1"),
        (lambda: retrieve(Q, X, 0.0), OptionError, "beta must be a finite number > 0, got 0.0"),
        (
            lambda: Hopfield(RING, float("nan")),
            OptionError,
            "coupling must be a finite number, got nan",
        ),
        (
            lambda: Hopfield(RING, 1.0).turn(torch.ones(4), -1),
            GraphError,
            "node must be .*0, got -1",
        ),
        (
            lambda: Hopfield(RING, 1.0).turn(torch.ones(4), 4),
            GraphError,
            "below 4, the number of nodes",
        ),
        (lambda: Hopfield(RING, 1.0).turn(torch.zeros(4), 0), ShapeError, "spins must be -1 or 1"),
        (
            lambda: Hopfield(RING, 1.0).settle(torch.ones(4), [-1]),
            GraphError,
            "node must be .*0, got -1",
        ),
        (lambda: Hopfield.from_patterns(spins(2, 4), RING.mask()), GraphError, "from_mask"),
        (
            lambda: retrieve(Q, X, 1.0, steps=0),
            GraphError,
            "steps must be a whole number >= 1, got 0",
        ),
        (
            lambda: retrieval_energy(Q[0], X, 1.0),
            ShapeError,
            r"query must be floating point \(..., T, C\), got",
        ),
        (
            lambda: retrieval_energy(Q, X, 1.0, ga.PerHead((SOME,))),
            GraphError,
            r"pass one of its \.graphs",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
