"""Attention was made for a bottleneck: one state forgets a long source, reading does not.

A recurrent network reads a source and hands its last state to another, which writes the
translation (Cho et al. 2014; Sutskever et al. 2014). That state has one size for every
length. If each word reads all states of the source instead, by an additive score, the
loss hardly grows with length (Bahdanau et al. 2015). Then the recurrence may go.
"""

# %%
# Read a sequence, write it backwards: lengths by loss
# ----------------------------------------------------
# Encoder and decoder are GRUs. "One state" has no graph at all, "additive" a full one
# from the states of the source. "No recurrence" has the same additive reading and a
# position in place of each state: no step waits for the one before.
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import graphattn as ga

SYMBOLS, LENGTHS, C, STEPS = 8, (3, 6, 9, 12), 32, 240
START = SYMBOLS


class Parallel(nn.Module):
    """Bahdanau's reading of a memory whose states are words at their places."""

    def __init__(self):
        super().__init__()
        self.word, self.asked = nn.Embedding(SYMBOLS, C), nn.Embedding(12, C)
        self.place, self.head = nn.Embedding(12, C), nn.Linear(C, SYMBOLS)
        self.attention = ga.models.RecurrentAttention(C, "bahdanau")

    def forward(self, source, target, return_weights=False):
        n = source.shape[1]
        memory = self.word(source) + self.place.weight[:n]
        state = self.asked.weight[torch.arange(n - 1, -1, -1)].expand_as(memory)
        read, weights = self.attention(state, memory, ga.graphs.cross(n, n))
        return (self.head(read), weights) if return_weights else self.head(read)


def recurrent(kind):
    sizes = {"embed_dim": 16, "hidden": C, "attention": kind}
    return lambda: ga.models.Seq2Seq(SYMBOLS, SYMBOLS + 1, **sizes)


def sample(count, n):
    source = torch.randint(SYMBOLS, (count, n))
    return source, F.pad(source.flip(1), (1, 0), value=START)


kinds = {"one state": recurrent(None), "additive": recurrent("bahdanau")}
kinds["no recurrence"] = Parallel
losses, models = {}, {}
for name, make in kinds.items():
    torch.manual_seed(0)
    models[name] = model = make()
    adam = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(STEPS):
        source, target = sample(64, LENGTHS[step % len(LENGTHS)])
        adam.zero_grad()
        F.cross_entropy(model(source, target[:, :-1]).mT, target[:, 1:]).backward()
        adam.step()
    with torch.no_grad():
        tests = {n: sample(300, n) for n in LENGTHS}
        losses[name] = [
            float(F.cross_entropy(model(x, y[:, :-1]).mT, y[:, 1:]))
            for x, y in tests.values()
        ]
    print(name, *(f"{n}: {x:.2f}" for n, x in zip(LENGTHS, losses[name], strict=True)))
