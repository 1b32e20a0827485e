"""A router draws a graph: experts are sources, tokens are targets, and training draws it.

A mixture of experts has many perceptrons, of which a token reads a few (Shazeer et al.
2017). Who reads whom is a bipartite graph, drawn anew for each input, of a fixed degree.
"""

# %%
# Four kinds of tokens, each with a map of its own, and four experts to learn them
# --------------------------------------------------------------------------------
# A kind turns its numbers about by its own matrix, and is known by a mark on the token.
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga

KINDS, C = 4, 12
torch.manual_seed(0)
turns = torch.linalg.qr(torch.randn(KINDS, 8, 8)).Q


def tokens(count):
    kind, x = torch.randint(KINDS, (count,)), torch.randn(count, 8)
    marked = torch.cat((x, 3 * F.one_hot(kind, KINDS).float()), -1)
    return kind, marked, torch.einsum("nij,nj->ni", turns[kind], x)


def learned(experts, chosen):
    """The mixture, its mean squared error on new tokens, and the kinds of these."""
    torch.manual_seed(0)
    parts = [nn.Linear(C, C) for _ in range(experts)]
    mixture = ga.nn.MixtureOfExperts(parts, C, top_k=chosen)
    adam = torch.optim.Adam(mixture.parameters(), 1e-2)
    drawn = []
    for step in range(401):
        kind, x, wanted = tokens(256)
        if step in (0, 400):
            drawn.append((kind, mixture.graph(x)))
        adam.zero_grad()
        loss = F.mse_loss(mixture(x)[:, :8], wanted)
        balance = ga.nn.load_balancing_loss(mixture.router(x), chosen)
        (loss + 0.1 * balance).backward()
        adam.step()
    return float(loss.detach()), drawn


one, _ = learned(1, 1)
routed, drawn = learned(KINDS, 1)
print(f"mean squared error: one expert {one:.2f}, one of four {routed:.2f}")
assert routed < 0.1 < 0.5 < one
_, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
for place, (name, (kind, graph)) in enumerate(
    zip(("new", "trained"), drawn, strict=True)
):
    assert (graph.num_sources, graph.num_targets) == (KINDS, 256)
    assert (graph.in_degree == 1).all()  # of experts; a token reads one
    table = torch.zeros(KINDS, KINDS)
    table.index_put_(
        (kind[graph.target], graph.source), torch.ones(256), accumulate=True
    )
    agreed = float(table.max(1).values.sum() / 256)
    print(f"{name}: {agreed:.0%} of the tokens read the expert of their kind")
    few = kind[:20].argsort()
    for row, token in enumerate(few.tolist()):
        expert = int(graph.source[graph.target == token])
        ends = 5.5 * expert + 1, row
        axes[place].plot((0, 1), ends, color=f"C{int(kind[token])}")
    axes[place].set(title=f"{name} router", xticks=(0, 1), yticks=())
    axes[place].set_xticklabels(("experts", "tokens, by kind"))
    axes[place + 2].imshow(table, cmap="Blues")
    axes[place + 2].set(title=f"{name}: tokens", xlabel="expert", ylabel="kind")
    axes[place + 2].set(xticks=range(KINDS), yticks=range(KINDS))
assert agreed > 0.95
assert table.argmax(1).unique().numel() == KINDS  # an expert for each
