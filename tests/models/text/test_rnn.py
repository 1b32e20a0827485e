"""Recurrent decoders that read: steps worked out by hand in numpy, who reads what, padding, the
bottleneck.
"""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, OptionError, PositionIndexError, ShapeError
from graphattn.models import Seq2Seq
from graphattn.models.text.rnn import RecurrentAttention

B, S, T, C = 3, 7, 5, 8
KINDS = ["bahdanau", "dot", "general"]


def model(kind, **options):
    torch.manual_seed(2)
    made = Seq2Seq(11, 13, embed_dim=6, hidden=C, attention=kind, **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return made


@pytest.fixture
def tokens():
    draw = torch.Generator().manual_seed(3)
    return torch.randint(11, (B, S), generator=draw), torch.randint(13, (B, T), generator=draw)


def close(found, wanted):
    torch.testing.assert_close(
        torch.as_tensor(found), torch.as_tensor(wanted), rtol=1e-12, atol=1e-12
    )


class ByHand:
    """Every line of the papers for one example, in numpy, with the model's parameters."""

    def __init__(self, made):
        self.w = {name: p.detach().numpy() for name, p in made.named_parameters()}
        self.kind = made.kind

    def gru(self, x, s):
        """torch.nn.GRUCell's documented formula."""

        def sigmoid(z):
            return 1 / (1 + np.exp(-z))

        a = self.w["cell.weight_ih"] @ x + self.w["cell.bias_ih"]
        b = self.w["cell.weight_hh"] @ s + self.w["cell.bias_hh"]
        r, z = sigmoid(a[:C] + b[:C]), sigmoid(a[C : 2 * C] + b[C : 2 * C])
        n = np.tanh(a[2 * C :] + r * b[2 * C :])
        return (1 - z) * n + z * s

    def weights(self, s, memory):
        w = self.w
        score = []
        for h in memory:
            if self.kind == "bahdanau":
                inner = np.tanh(
                    w["attention.layer.q_proj.weight"] @ s + w["attention.memory.weight"] @ h
                )
                score.append(w["attention.layer.score.weight"][0] @ inner)
            else:
                score.append(
                    s @ (w["attention.memory.weight"] @ h if self.kind == "general" else h)
                )
        power = np.exp(np.array(score))
        return power / power.sum()

    def run(self, memory, last, target):
        w = self.w
        s = np.tanh(w["first.weight"] @ last + w["first.bias"])
        logits, alphas = [], []
        for token in target:
            y = w["target.weight"][token]
            if self.kind == "bahdanau":
                alpha = self.weights(s, memory)  # of the state before
                s = self.gru(np.concatenate((y, alpha @ memory)), s)
            else:
                s = self.gru(y, s)
                alpha = self.weights(s, memory)
            read = np.tanh(w["readout.weight"] @ np.concatenate((alpha @ memory, s)))
            logits.append(w["head.weight"] @ read + w["head.bias"])
            alphas.append(alpha)
        return np.array(logits), np.array(alphas)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_by_hand(kind, tokens):
    made, (source, target) = model(kind), tokens
    memory, last = (x.detach() for x in made.encode(source))
    logits, weights = made(source, target, return_weights=True)
    for b in range(B):
        wanted = ByHand(made).run(memory[b].numpy(), last[b].numpy(), target[b].numpy())
        close(logits[b].detach(), wanted[0])
        close(weights.dense()[b, 0].detach(), wanted[1])
    assert weights.dense().std(-1).min() > 0.005  # no uniform weights
    close(weights.dense().sum(-1), torch.ones(B, 1, T).double())
    grads = torch.autograd.grad(logits.square().sum(), list(made.parameters()))
    assert min(g.abs().max() for g in grads) > 1e-6


def test_bahdanau_reads_by_the_state_before_and_luong_by_its_own(tokens):
    source, target = tokens
    other = target.clone()
    other[:, 2] = (other[:, 2] + 1) % 13  # what step 2 reads
    for kind, first in (("bahdanau", 3), ("dot", 2), ("general", 2)):
        made = model(kind)
        alpha, beta = (made(source, y, return_weights=True)[1].dense() for y in (target, other))
        changed = [not torch.equal(alpha[..., t, :], beta[..., t, :]) for t in range(T)]
        assert changed == [t >= first for t in range(T)]


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_padding_is_no_node(kind, tokens):
    made, (source, target), lengths = model(kind), tokens, torch.tensor([7, 4, 2])
    padded = made(source, target, lengths=lengths)
    for b, n in enumerate(lengths):
        close(padded[b], made(source[b : b + 1, :n], target[b : b + 1])[0])
    assert not torch.allclose(padded[1], made(source, target)[1], atol=1e-3)
    if kind is not None:
        _, weights = made(source, target, lengths=lengths, return_weights=True)
        assert weights.alpha.shape == (T * 13, 1)  # no edge into padding
        close(weights.dense().sum(-1), torch.ones(1, B * T).double())
        _, alone = made(source[1:2, :4], target[1:2], return_weights=True)
        close(weights.dense()[0, T : 2 * T, 7:11], alone.dense()[0, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_says_who_reads_what(kind, tokens, monkeypatch):
    made, (source, target) = model(kind), tokens
    mask = torch.ones(T, S).bool()
    mask[:, 4] = torch.arange(T) == 3  # source 4 is read by target 3 alone
    order = torch.randperm(int(mask.sum()), generator=torch.Generator().manual_seed(0))
    graph = ga.from_edge_index(
        ga.from_mask(mask).edge_index[:, order], num_sources=S, num_targets=T
    )
    logits, weights = made(source, target, graph, return_weights=True)
    assert weights.graph is graph
    close(weights.dense().sum(-1), torch.ones(B, 1, T).double())
    assert torch.equal(weights.dense()[0, 0] > 0, mask)
    close(made(source, target, ga.from_mask(mask), return_weights=True)[1].dense(), weights.dense())
    memory, last = made.encode(source)
    memory = memory.index_add(1, torch.tensor([4]), torch.ones(B, 1, C).double())
    monkeypatch.setattr(made, "encode", lambda *given: (memory, last))
    changed = (made(source, target, graph) != logits).any(-1).any(0).tolist()
    # a state remembers what it read
    assert changed == [t >= 3 if kind == "bahdanau" else t == 3 for t in range(T)]
    assert (made(source, target) != logits).any(-1).all()


def test_the_bottleneck_reads_the_last_state_alone(tokens, monkeypatch):
    source, target = tokens
    for kind in (None, *KINDS):
        made = model(kind)
        logits, (memory, last) = made(source, target), made.encode(source)
        with monkeypatch.context() as patch:
            patch.setattr(
                made, "encode", lambda *given, memory=memory, last=last: (memory + 1.0, last)
            )
            assert torch.equal(made(source, target), logits) == (kind is None)
            patch.setattr(
                made, "encode", lambda *given, memory=memory, last=last: (memory, last + 1.0)
            )
            assert not torch.equal(made(source, target), logits)


def test_one_way_encoder_and_its_last_state(tokens):
    made, (source, _) = model("dot", bidirectional=False), tokens
    memory, last = made.encode(source, torch.tensor([7, 4, 2]))
    assert all(torch.equal(last[b], memory[b, n - 1]) for b, n in enumerate((7, 4, 2)))


def taught_to_reverse(kind, length):
    """How much of sequences that it has not seen a model reverses, and how often it reads where it
    should.
    """
    torch.manual_seed(0)
    made = Seq2Seq(8, 9, embed_dim=16, hidden=32, attention=kind)
    optimizer = torch.optim.Adam(made.parameters(), lr=2e-2)

    def examples(count):
        source = torch.randint(8, (count, length))
        wanted = source.flip(1)
        return source, torch.cat((torch.full((count, 1), 8), wanted[:, :-1]), 1), wanted

    for _ in range(120):
        source, target, wanted = examples(32)
        loss = torch.nn.functional.cross_entropy(
            made(source, target).flatten(0, 1), wanted.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, target, wanted = examples(500)
    right = (made(source, target).argmax(-1) == wanted).float().mean().item()
    if kind is None:
        return right, None
    strongest = made(source, target, return_weights=True)[1].dense()[:, 0].argmax(-1)
    return right, (strongest == torch.arange(length - 1, -1, -1)).float().mean().item()


@pytest.mark.slow
def test_the_bottleneck_forgets_long_sequences_and_attention_does_not():
    assert taught_to_reverse(None, 3)[0] > 0.93
    assert taught_to_reverse(None, 10)[0] < 0.75
    right, in_place = taught_to_reverse("dot", 10)
    assert right > 0.9
    assert in_place > 0.75  # the alignment is the other diagonal


def test_luong_is_cross_attention_of_one_head():
    state, memory = torch.randn(T, C).double(), torch.randn(S, C).double()
    read, _ = RecurrentAttention(C, "dot")(state, memory, graphs.cross(T, S))
    close(read, torch.nn.functional.scaled_dot_product_attention(state, memory, memory, scale=1.0))
    layer = RecurrentAttention(C, "bahdanau").double()
    states = [layer(state[t : t + 1], memory, graphs.cross(1, S))[0] for t in range(T)]
    close(torch.cat(states), layer(state, memory, graphs.cross(T, S))[0])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda s, t: model("luong"),
            OptionError,
            'attention must be "bahdanau", "dot" or "general", or None',
        ),
        (
            lambda s, t: Seq2Seq(3, 3, embed_dim=2, hidden=7),
            OptionError,
            "hidden must be even if bidirectional, got 7",
        ),
        (
            lambda s, t: model("dot")(s, t, graphs.cross(T, 4)),
            ShapeError,
            "the graph has 5 targets and 4 sources",
        ),
        (
            lambda s, t: model(None)(s, t, graphs.cross(T, S)),
            OptionError,
            "built with attention=None",
        ),
        (
            lambda s, t: model(None)(s, t, return_weights=True),
            OptionError,
            "graph and weights require attention",
        ),
        (
            lambda s, t: model("dot")(s, t, lengths=torch.tensor([7, 8, 2])),
            ShapeError,
            r"lengths must be in \[1, 8\), of the tokens, got 2 to 8",
        ),
        (
            lambda s, t: model("dot")(s, t, torch.ones(T, S).bool()),
            GraphError,
            "graphattn.from_mask",
        ),
        (
            lambda s, t: model("dot")(s, t, graphs.cross(T, S).edge_index),
            GraphError,
            "graphattn.from_edge_index",
        ),
        (
            lambda s, t: model("dot")(s, t, ga.PerHead((graphs.cross(T, S),))),
            GraphError,
            "graph must be an AttentionGraph or a Pattern, for one head, got PerHead",
        ),
        (lambda s, t: model("dot")(s, t, [graphs.cross(T, S)]), GraphError, "got list"),
        (
            lambda s, t: model("dot")(s[0], t),
            ShapeError,
            r"source must be tokens \(B, N\), one or more, got a Tensor \(7,\)",
        ),
        (
            lambda s, t: model("dot")(s, t[0]),
            ShapeError,
            r"target must be tokens \(B, N\), one or more, got a Tensor \(5,\)",
        ),
        (
            lambda s, t: model(None)(s, t[:, :0]),
            ShapeError,
            r"target must be tokens .* got a Tensor \(3, 0\)",
        ),
        (
            lambda s, t: model(None)(s[:, :0], t),
            ShapeError,
            r"source must be tokens \(B, N\), one or more, got a Tensor \(3, 0\)",
        ),
        (lambda s, t: model("dot")(s + 11, t), PositionIndexError, r"source must be in \[0, 11\)"),
    ],
)
def test_refusals(make, error, message, tokens):
    with pytest.raises(error, match=message):
        make(*tokens)
