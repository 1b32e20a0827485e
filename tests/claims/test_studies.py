"""Small models trained on the CPU: what heads, graphs and contexts buy."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga
from graphattn import graphs
from graphattn.models import Encoder
from graphattn.nn import GraphAttention, LearnedPosition, SinusoidalPosition


def train(modules, loss, steps, rate):
    optimizer = torch.optim.Adam(
        [p for module in modules for p in module.parameters()], rate, fused=True
    )
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def recalled(heads, seed, asked_apart=False):
    """The share of answers that are right, where a node asks for the values of two of six keys, in
    order.
    """
    torch.manual_seed(seed)
    keys = values = 6
    key, value, ask = (nn.Embedding(6, 8) for _ in range(3))
    layer = GraphAttention(16, heads, qdim=8 if asked_apart else 16)
    answer = nn.Linear(16, values if asked_apart else 2 * values)
    graph = graphs.cross(2 if asked_apart else 1, keys)

    def examples(batch):
        held, wanted = (
            torch.randint(values, (batch, keys)),
            torch.rand(batch, keys).argsort(-1)[:, :2],
        )
        memory = torch.cat((key.weight.expand(batch, -1, -1), value(held)), -1)
        query = ask(wanted) if asked_apart else ask(wanted).flatten(1)[:, None]  # (B, T, C)
        read = layer(query, graph, context=memory)
        return answer(read).reshape(batch, 2, values), held.gather(1, wanted)

    def loss():
        found, right = examples(64)
        return F.cross_entropy(found.flatten(0, 1), right.flatten())

    train((key, value, ask, layer, answer), loss, 60, 2e-2)
    with torch.no_grad():
        found, right = examples(500)
    return float((found.argmax(-1) == right).float().mean()), sum(
        p.numel() for p in layer.parameters()
    )


@pytest.mark.slow
def test_one_head_averages_two_relations_that_two_heads_keep_apart():
    """ "averaging inhibits": one head has both values and not which is which, 7/12 if it guesses.

    Measured over seeds 0 to 4: 0.58 to 0.60 with one head, 1.00 with two and as many parameters. It
    is one softmax for two relations that inhibits and not the one head: asked by two nodes, one
    head answers 1.00 as well.
    """
    for seed in range(3):
        (one, parameters), (two, as_many) = recalled(1, seed), recalled(2, seed)
        assert parameters == as_many
        assert 0.5 < one < 0.7
        assert two > 0.95
    assert recalled(1, 0, asked_apart=True)[0] > 0.95


LENGTH = 10


def learned(graph, task, seed, known=None, steps=60):
    """The share of right answers on unseen sequences of bits, after training on ``known`` of them
    or on ever new ones.

    The task "near" is to write whether a bit differs from the one before; "far", to write the first
    bit at the end.
    """
    torch.manual_seed(seed)
    word, answer = nn.Embedding(2, 16), nn.Linear(16, 2)
    place, encoder = LearnedPosition(LENGTH, 16), Encoder(1, 16, 2, 32)
    nn.init.normal_(place.weight)

    def examples(count):
        bits = torch.randint(2, (count, LENGTH))
        return bits, bits[:, 1:] ^ bits[:, :-1] if task == "near" else bits[:, :1]

    def found(bits):
        written = answer(encoder(place(word(bits)), graph))
        return written[:, 1:] if task == "near" else written[:, -1:]

    fixed = None if known is None else examples(known)

    def loss():
        bits, right = examples(16) if fixed is None else fixed
        return F.cross_entropy(found(bits).flatten(0, 1), right.flatten())

    train((word, place, encoder, answer), loss, steps, 2e-2)
    with torch.no_grad():
        bits, right = examples(500)
        return float((found(bits).argmax(-1) == right).float().mean())


@pytest.mark.slow
def test_a_bias_to_what_is_near_inhibits_a_far_task_and_is_needed_where_examples_are_few():
    """Two sentences of source A: half of the first is true, the second holds with many examples.

    "Any bias towards short-term dependency is needless and may inhibit learning": it does inhibit.
    On a window of 2 the first bit is 0.5 at the end, a coin, and 1.00 on a causal graph. But it is
    not needless: from 16 sequences the window learns the near task to 0.94 to 1.00 and the causal
    graph to 0.79 to 0.91 (seeds 0 to 3). "No need for an inductive bias if it can be discovered":
    on ever new sequences the causal graph discovers it, slowly, 0.88 to 1.00 after 200 steps and
    1.00 after 100 with seed 0.
    """
    window, causal = graphs.sliding_window(LENGTH, 2, causal=True), graphs.causal(LENGTH)
    assert learned(window, "far", 0) < 0.6
    assert learned(causal, "far", 0) > 0.95
    few = [
        [learned(graph, "near", seed, known=16) for seed in range(3)] for graph in (window, causal)
    ]
    assert min(few[0]) > 0.9
    assert sum(few[0]) > sum(few[1]) + 3 * 0.08
    assert learned(causal, "near", 0, steps=100) > sum(few[1]) / 3 + 0.05


MOTION = ("time arrows planes", "flies soars glides", "like", "an", "arrow eagle")
INSECTS = ("fruit cave horse", "flies insects moths", "like", "a", "banana lamp")
FLIES = ("time flies like an arrow", "fruit flies like a banana")  # these two are not learned from
TEXTS = [
    " ".join(words)
    for rule in (MOTION, INSECTS)
    for words in product(*(part.split() for part in rule))
]
WORDS = ["[mask]", *sorted({word for text in TEXTS for word in text.split()})]


def coded(*texts):
    return torch.tensor([[WORDS.index(word) for word in text.split()] for text in texts])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_flies_moves_to_soars_or_to_insects_with_its_context(seed):
    """A masked language model whose output layer is its embedding, on a toy corpus of 36 sentences
    less two.

    The words nearest to what "flies" has become are soars and glides beside time, insects and moths
    beside fruit (all seeds 0 to 3). Before training they are not; and where no word reads another,
    "flies" is the same in both.
    """
    torch.manual_seed(seed)
    word, place, encoder = (
        nn.Embedding(len(WORDS), 24),
        LearnedPosition(5, 24),
        Encoder(1, 24, 2, 48),
    )
    nn.init.normal_(word.weight, std=0.3)
    corpus, graph = coded(*(text for text in TEXTS if text not in FLIES)), graphs.full(5)

    def nearest(graph):
        """The two words nearest by angle to the vector of "flies" in each of the two sentences,
        itself left out.
        """
        with torch.no_grad():
            flies = encoder(place(word(coded(*FLIES))), graph)[:, 1]
            near = F.cosine_similarity(flies[:, None], word.weight, dim=-1)
        near[:, [0, WORDS.index("flies")]] = -1.0
        return [{WORDS[i] for i in row} for row in near.topk(2).indices]

    def loss():
        other = torch.where(
            torch.rand(corpus.shape) < 0.8, 0, torch.randint(1, len(WORDS), corpus.shape)
        )
        noisy = torch.where(torch.rand(corpus.shape) < 0.3, other, corpus)
        logits = encoder(place(word(noisy)), graph) @ word.weight.T
        return F.cross_entropy(logits.flatten(0, 1), corpus.flatten())

    senses = [{"soars", "glides"}, {"insects", "moths"}]
    assert nearest(graph) != senses
    train((word, place, encoder), loss, 120, 1e-2)
    assert nearest(graph) == senses
    one, other = nearest(graphs.self_loops(5))
    assert one == other
    isolated = graph.mask()
    isolated[1] = torch.arange(5) == 1  # "flies" alone does not read
    one, other = nearest(ga.from_mask(isolated))
    assert one == other


def test_bears_has_the_role_of_its_place_by_positions_and_projections():
    """One word, several roles. Positions tell its occurrences apart; projections, what each asks
    and offers.

    Without positions all occurrences are one on a full graph, whatever the weights and heads.
    """
    torch.manual_seed(0)
    text, words = (
        ["bears", "that", "bears", "fear", "bear", "bears"],
        ["bear", "bears", "fear", "that"],
    )
    bears = [t for t, word in enumerate(text) if word == "bears"]
    x = torch.eye(4, dtype=torch.float64)[[words.index(word) for word in text]]  # (6, 4), one-hot
    deep, wide, full = Encoder(3, 8, 4).double(), F.pad(x, (0, 4)), graphs.full(6)
    torch.testing.assert_close(
        deep(wide, full)[bears], deep(wide, full)[bears[:1] * 3], rtol=0, atol=1e-12
    )
    assert torch.pdist(deep(SinusoidalPosition(8)(wide), full)[bears]).min() > 1e-2

    place, nowhere = torch.eye(6, dtype=torch.float64), torch.zeros(6, 6, dtype=torch.float64)
    layer = GraphAttention(
        4, 1, qdim=10, kdim=10, vdim=10, head_dim=6, value_dim=4, out_proj=False, bias=False
    ).double()
    # by hand: a node asks for the place before its own, offers its place, and gives its word
    with torch.no_grad():
        layer.q_proj.weight.copy_(F.pad(1e3 * place.roll(-1, 0), (4, 0)))
        layer.k_proj.weight.copy_(F.pad(place, (4, 0)))
        layer.v_proj.weight.copy_(F.pad(torch.eye(4), (0, 6)))

    def read(places, graph):
        """The word that each occurrence reads most of, and the weights."""
        output, weights = layer(torch.cat((x, places), -1), graph, return_weights=True)
        return [words[i] for i in output[bears].argmax(-1)], weights.dense()[0]

    assert read(place, graphs.causal(6))[0] == ["bears", "that", "bear"]  # the first reads itself
    assert read(nowhere, graphs.causal(6))[0] == ["bears"] * 3
    asked = read(place, full)[1]  # of two nodes, one asks and the other answers
    assert (asked - asked.T).abs().max() > 0.9
    with torch.no_grad():
        layer.q_proj.weight.copy_(layer.k_proj.weight)  # one projection has no such roles
    asked = read(place, full)[1]
    torch.testing.assert_close(asked, asked.T)
