"""Heads keep relations apart: each is one average, and none of them tells who is who.

One softmax is one average. A token that needs two things of two others gets them mixed
by one head, and apart by two. But all heads are blind to order: "Mary gave roses to
Susan" and "Susan gave roses to Mary" are the same to any number of them.
"""

# %%
# Two questions at once
# ---------------------
# A token asks for the values of two of six keys. Two heads have as many parameters.
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga

KEYS, graph = 6, ga.graphs.cross(1, 6)


def recalled(heads):
    """Share of right answers, and weights of one question."""
    torch.manual_seed(0)
    key, value, ask = (nn.Embedding(KEYS, 8) for _ in range(3))
    layer, answer = ga.nn.GraphAttention(16, heads), nn.Linear(16, 2 * KEYS)
    parts = nn.ModuleList([key, value, ask, layer, answer])
    adam = torch.optim.Adam(parts.parameters(), 2e-2)
    for _ in range(100):
        held = torch.randint(KEYS, (200, KEYS))
        wanted = torch.rand(200, KEYS).argsort(-1)[:, :2]
        memory = torch.cat((key.weight.expand(200, -1, -1), value(held)), -1)
        query = ask(wanted).flatten(1)[:, None]
        output, weights = layer(query, graph, context=memory, return_weights=True)
        found, right = answer(output).view(-1, 2, KEYS), held.gather(1, wanted)
        adam.zero_grad()
        F.cross_entropy(found.flatten(0, 1), right.flatten()).backward()
        adam.step()
    share = float((found.argmax(-1) == right).float().mean())
    return share, weights.dense()[0, :, 0].detach(), wanted[0].tolist()


one, two = recalled(1), recalled(2)
print(f"one head {one[0]:.2f} right, two heads {two[0]:.2f}")
assert one[0] < 0.75 < 0.95 < two[0]  # who mixes two values guesses 7 / 12 rightly

# %%
# Who gave roses to whom?
# -----------------------
# On a full graph attention knows no order of what it reads. Places in the features tell
# it, or edges that differ: causal ones, or typed (before the verb is its subject).
mary = torch.randn(5, 16, dtype=torch.float64)  # mary gave roses to susan
susan = mary[[4, 1, 2, 3, 0]]  # susan gave roses to mary
full, causal = ga.graphs.full(5), ga.graphs.causal(5)
place = ga.nn.SinusoidalPosition(16)
role = F.one_hot(((full.source < 1) & (full.target == 1)).long(), 2).double()
HEADS, told = (1, 2, 4, 8), {}
for heads in HEADS:
    deep = ga.models.Encoder(3, 16, heads).double()
    typed = ga.nn.GraphAttention(16, heads, edge_dim=2).double()
    pairs = {
        "full": [deep(x, full) for x in (mary, susan)],
        "full, places": [deep(place(x), full) for x in (mary, susan)],
        "causal": [deep(x, causal) for x in (mary, susan)],
        "typed edges": [typed(x, full, edge_attr=role) for x in (mary, susan)],
    }
    for name, (x, y) in pairs.items():  # how far "gave" is apart in the two sentences
        far = float((x[1] - y[1]).detach().abs().max())
        told.setdefault(name, []).append(max(far, 1e-17))
        assert far < 1e-12 if name == "full" else far > 1e-2

_, axes = plt.subplots(1, 3, figsize=(12, 3), layout="constrained")
for axis, (_, matrix, asked) in zip(axes, (one, two), strict=False):
    axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    title = f"weights where keys {asked} are asked for"
    axis.set(title=title, ylabel="head", yticks=range(len(matrix)))
for name, far in told.items():
    axes[2].semilogy(HEADS, far, "o-", label=name)
axes[2].set(title='"gave" in the two sentences, apart', xlabel="heads")
axes[2].legend(fontsize=8)
