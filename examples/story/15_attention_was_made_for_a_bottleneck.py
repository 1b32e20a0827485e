"""Attention was made for a bottleneck: one state forgets long sources, reading does not.

A recurrent network read a source and handed its last state to another, which wrote (Cho
et al. 2014); that state is as large for any length. If each word reads all states by an
additive score, loss grows slower (Bahdanau et al. 2015). Then recurrence itself may go.
"""

# %%
# Write a sequence backwards, with and without a graph, with and without recurrence
# ---------------------------------------------------------------------------------
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga

SYMBOLS, LENGTHS, C = 8, (3, 6, 9, 12), 32


class Parallel(nn.Module):
    """The same reading, of words at their places: no step waits for another."""

    def __init__(self):
        super().__init__()
        self.word, self.head = nn.Embedding(SYMBOLS, C), nn.Linear(C, SYMBOLS)
        self.read, self.asks = nn.Embedding(12, C), nn.Embedding(12, C)
        self.attention = ga.nn.GraphAttention(C, 1, score="additive")

    def forward(self, source, target, return_weights=False):
        n = source.shape[1]
        memory = self.word(source) + self.read.weight[:n]
        state, graph = self.asks.weight[:n].flip(0).expand_as(memory), ga.graphs.full(n)
        y, found = self.attention(state, graph, context=memory, return_weights=True)
        return (self.head(y), found) if return_weights else self.head(y)


def sample(count, n):  # a source, and a start with the target, which is written
    source = torch.randint(SYMBOLS, (count, n))
    return source, F.pad(source.flip(1), (1, 0), value=SYMBOLS)


def loss(model, source, target):
    return F.cross_entropy(model(source, target[:, :-1]).mT, target[:, 1:])


_, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
losses, models = {}, {}
for name in ("one state", "additive reading", "no recurrence"):
    torch.manual_seed(0)
    options = {"hidden": C, "attention": "bahdanau" if "add" in name else None}
    model = ga.models.Seq2Seq(SYMBOLS, SYMBOLS + 1, embed_dim=16, **options)
    models[name] = model = Parallel() if name == "no recurrence" else model
    adam = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(300):
        adam.zero_grad()
        loss(model, *sample(64, LENGTHS[step % 4])).backward()
        adam.step()
    with torch.no_grad():
        losses[name] = [float(loss(model, *sample(500, n))) for n in LENGTHS]
    print(name, *(f"{n}: {x:.2f}" for n, x in zip(LENGTHS, losses[name], strict=True)))
    axes[0].plot(LENGTHS, losses[name], "o-", label=name)
one, additive, parallel = (found[-1] for found in losses.values())
assert one > 2 * additive > 10 * parallel  # of log 8 = 2.08
source, target = sample(200, 12)
for axis, name in zip(axes[1:], ("additive reading", "no recurrence"), strict=False):
    found = models[name](source, target[:, :-1], return_weights=True)[1]
    alignment = found.dense()[:, 0].detach().mean(0)
    axis.imshow(alignment, cmap="Blues", vmin=0)
    axis.set(title=f"alignment, {name}", xlabel="word read", ylabel="word written")
    off = alignment.argmax(1) - torch.arange(11, -1, -1)
    assert off.abs().max() <= 1  # a state of the encoder knows the words beside its own
axes[0].set(title="loss by length", xlabel="length")
axes[0].legend()
