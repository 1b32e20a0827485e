"""Every peer computes the same attention, forward and backward, in its own layout."""

import pytest
import torch

from graphattn import attention, from_mask, graphs
from graphattn.backends import BACKENDS
from graphattn.bench import Problem
from graphattn.bench.peers import all_peers
from graphattn.bench.peers.base import too_large
from graphattn.bench.peers.swin import Swin

pytestmark = pytest.mark.slow

torch.manual_seed(0)
LONELY = torch.rand(11, 7) < 0.4
LONELY[3] = False
PROBLEMS = {
    "lonely": Problem(from_mask(LONELY), 3, 5),
    "batch": Problem(graphs.sliding_window(13, 5), 2, 5, batch=3),
    "full": Problem(graphs.full(7), 3, 5, batch=2),
    "causal": Problem(graphs.causal(11), 3, 5),
    "swin": Problem(graphs.cell_partition((6, 15), (3, 5), (2, 1)), 2, 7, batch=3),
    "swin, one axis shifted": Problem(graphs.cell_partition((6, 5), (3, 5), (1, 0)), 2, 7),
    "ring": Problem(graphs.circulant(11, (0, 2, 5)), 2, 5, batch=2),
    "swin, at rest": Problem(graphs.cell_partition((6, 10), (3, 5)), 2, 7, batch=2),
}
_COMPILED = {  # and so are slow: on one problem each
    "PyG compiled": ("lonely",),
    "gather by hand": ("ring",),
    "FlexAttention": ("lonely",),
}
SLOW = tuple(_COMPILED)


def answer(peer, problem):
    """Output and gradients, node-first."""
    *inputs, grad = problem.inputs()
    backward = not peer.no_backward(problem)
    leaves = [peer.lay_out(x).requires_grad_(backward) for x in inputs]
    out = peer.prepare(problem, *leaves)()
    found = [peer.put_back(out.detach(), grad)]
    if backward:
        grads = torch.autograd.grad(out, leaves, peer.lay_out(grad).view_as(out))
        found += [peer.put_back(x, like) for x, like in zip(grads, inputs, strict=True)]
    return found


def expected(problem):
    *inputs, grad = problem.inputs()
    leaves = [x.double().requires_grad_() for x in inputs]
    out = attention(*leaves, problem.graph, backend="message_passing")
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.double())]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param(name, problem, marks=[pytest.mark.slow] * (name in SLOW))
        for name in all_peers()
        for problem in (_COMPILED[name] if name in SLOW else PROBLEMS)
        if not all_peers()[name].reasons_against(PROBLEMS[problem])
    ],
)
def test_every_peer_gives_the_same_answer(name, problem):
    problem = PROBLEMS[problem]
    peer = all_peers()[name]
    torch._dynamo.reset()
    wanted = expected(problem)
    found = answer(peer, problem)
    assert len(found) == (1 if name == "FlexAttention" else 4)
    for got, want in zip(found, wanted, strict=False):
        assert float(want.abs().max()) > 0.1
        torch.testing.assert_close(got, want.float(), rtol=2e-5, atol=2e-5)


def test_who_takes_part_where():
    ran = {
        name: {peer for peer, what in all_peers().items() if not what.reasons_against(problem)}
        for name, problem in PROBLEMS.items()
    }
    everywhere = {"auto", "edges", "message_passing", "PyG", "PyG compiled", "SDPA + mask", "FlexAttention"}
    assert all(everywhere <= names for names in ran.values())
    assert {name for name, names in ran.items() if "SDPA" in names} == {"full", "causal"}
    assert {name for name, names in ran.items() if "Swin by hand" in names} == {n for n in ran if "swin" in n}
    assert set(all_peers()) >= set(BACKENDS)
    assert next(iter(all_peers())) == "auto"


def test_a_swin_peer_that_rolls_the_wrong_way_is_seen(monkeypatch):
    problem = PROBLEMS["swin"]
    roll = torch.roll
    monkeypatch.setattr(torch, "roll", lambda x, shifts, dims: roll(x, tuple(-s for s in shifts), dims))
    far = (answer(Swin(), problem)[0] - expected(problem)[0]).abs().max()
    assert float(far) > 0.1


def test_what_does_not_fit_is_refused_with_both_sizes(monkeypatch):
    from graphattn.bench.peers import base

    monkeypatch.setattr(base, "memory_bytes", lambda device: 3_000_000_000)
    assert too_large("a mask", 1_500_000_000, "cpu") == []
    assert too_large("a mask", 1_600_000_000, "cpu") == [
        "a mask would take about 1.6 GB, and half of what is free is 1.5 GB"
    ]
    large = Problem(graphs.sliding_window(40_000, 257))
    for name, words in (("SDPA + mask", "40,000 x 40,000"), ("PyG", "(E, H, D)"), ("message_passing", "both passes")):
        (reason,) = all_peers()[name].reasons_against(large)
        assert words in reason
    assert all_peers()["auto"].reasons_against(large) == []


def test_the_floor_counts_what_must_move():
    square = Problem(graphs.causal(11), 3, 5, batch=2)
    row = 2 * 3 * 5 * 4
    assert (square.floor_bytes("forward"), square.floor_bytes("forward + backward")) == (4 * 11 * row, 12 * 11 * row)
    cross = Problem(graphs.cross(7, 11), 3, 5, dtype=torch.float64)
    assert cross.floor_bytes("forward") == 2 * (7 + 11) * 3 * 5 * 8
    assert square.edges == 2 * 66
    assert torch.equal(square.inputs()[0], square.inputs()[0])
