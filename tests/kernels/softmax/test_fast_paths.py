"""Each fused fast path is taken where it should be: what it falls back to is right as well, and
would go unnoticed.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga
from graphattn.backends import edges, message_passing, scored, sdpa_lse
from graphattn.kernels.llvm import native
from graphattn.kernels.pairs import cpu as pairs_native
from graphattn.kernels.softmax import cpu as edges_native
from graphattn.kernels.softmax import operator as edges_op
from graphattn.nn import FeatureScore, linear_attention
from graphattn.nn.scores import Additive, GATScore, MLPScore

N, HEADS, HEAD_DIM, WIDTH = 19, 2, 4, 8
GRAPH = ga.from_edge_index(torch.randint(N, (2, 61)), N, N, duplicates="merge")


def fail(*args, **options):
    raise AssertionError("the slow path was taken")


def trained(**options):
    """A layer's forward and backward on the edges backend."""
    layer = ga.nn.GraphAttention(WIDTH, HEADS, backend="edges", **options)
    x = torch.randn(2, N, WIDTH, requires_grad=True)
    attr = {"edge_attr": torch.randn(GRAPH.num_edges, 3)} if "edge_dim" in options else {}
    layer(x, GRAPH, **attr).square().sum().backward()
    assert x.grad.abs().sum() > 0


SCORES = {name: {"score": name} for name in ("additive", "gat", "mlp", "subtraction")}
SCORES |= {
    f"{name}, edges": {"score": name, "edge_dim": 3}
    for name in ("additive", "gat", "mlp", "subtraction")
}
SCORES |= {
    f"additive {word}": {"score": Additive(HEADS, HEAD_DIM, activation)}
    for word, activation in {
        "relu": torch.relu,
        "leaky": F.leaky_relu,
        "sloped": partial(F.leaky_relu, negative_slope=0.2),
        "module": nn.LeakyReLU(0.3),
    }.items()
}
SCORES |= {
    "gat of a slope": {"score": GATScore(HEADS, HEAD_DIM, slope=0.37)},
    "mlp of its own": {"score": MLPScore(HEAD_DIM, 5)},
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SCORES)
def test_an_additive_score_is_a_fused_kernel(name, monkeypatch):
    monkeypatch.setattr(scored, "_in_blocks", fail)
    monkeypatch.setattr(message_passing, "attend", fail)
    trained(**SCORES[name])


def test_an_activation_that_is_learned_is_not_fused(monkeypatch):
    monkeypatch.setattr(scored, "_in_blocks", fail)
    with pytest.raises(AssertionError, match="slow path"):
        trained(score=Additive(HEADS, HEAD_DIM, nn.PReLU()))


PRODUCTS = [
    (score, more)
    for score in ("scaled_dot", "dot", "cosine", "general")
    for more in ("", "softcap", "dropout")
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("score", "more"), [*PRODUCTS, ("scaled_dot", "edge_dim")])
def test_a_product_is_one_pass_over_edges(score, more, monkeypatch):
    options = {"softcap": 2.0, "dropout": 0.3, "edge_dim": 3}
    monkeypatch.setattr(edges, "scored_run", fail)
    monkeypatch.setattr(edges_op, "plain", fail)
    run = native.native
    calls = []
    monkeypatch.setattr(
        native, "native", lambda kernel, kinds: calls.append(kernel) or run(kernel, kinds)
    )
    trained(score=score, **{name: value for name, value in options.items() if name == more})
    of_edges = {edges_native.Forward, edges_native.BackwardTargets, pairs_native.EdgeSums}
    assert set(calls) == of_edges


def test_linear_attention_is_running_sums(monkeypatch):
    calls, summed = [], linear_attention._summed
    monkeypatch.setattr(linear_attention, "_summed", lambda *args: calls.append(1) or summed(*args))
    layer = ga.nn.GraphAttention(WIDTH, HEADS, score=FeatureScore(), normalize="sum")
    layer(torch.randn(N, WIDTH), ga.graphs.causal(N))
    assert calls == [1]


@pytest.mark.parametrize("backend", ["dense", "tiles"])
def test_lse_of_a_product_is_that_of_sdpa(backend, monkeypatch):
    monkeypatch.setattr(sdpa_lse, "_definition", fail)
    x = torch.randn(2, N, HEADS, 16, requires_grad=True)
    found = ga.attention(x, x, x, ga.graphs.causal(N), return_lse=True, backend=backend)
    (found.output.sum() + found.lse.sum()).backward()
