"""A token has three roles: it asks, it is found, it is read; its weights are fast.

A query says what a token looks for, a key by what it is found, a value what it hands
over. Three small matrices make them of any token, so that the layer fits any length;
the weights between tokens are no parameters at all: each input makes its own.
"""

# %%
# Who asks is not who answers
# ---------------------------
import matplotlib.pyplot as plt
import torch
from torch import nn

import graphattn as ga

T, C = 12, 32
torch.manual_seed(0)
layer, graph = ga.nn.GraphAttention(C, 1).double(), ga.graphs.full(T)
with torch.no_grad():
    layer.q_proj.weight.mul_(3)  # sharper, to be seen
one, other = torch.randn(2, T, C, dtype=torch.float64)


def weights(x, values=None):
    """(T, T) weights, and the output."""
    context = (x, x if values is None else values)
    output, found = layer(x, graph, context=context, return_weights=True)
    return found.dense()[0].detach(), output.detach()


alpha = weights(one)[0]
assert (alpha - alpha.T).abs().max() > 0.1  # t reads s, and s need not read t
moved, output = weights(one, one.roll(1, 0))  # values change places, keys do not
assert torch.equal(moved, alpha)
assert not torch.allclose(output, weights(one)[1])

# %%
# One word may have several roles, too: by its place
# --------------------------------------------------
words = torch.tensor([0, 1, 0, 2, 3, 0])  # bears that bears fear bear bears
x, bears = torch.randn(4, C, dtype=torch.float64)[words], words == 0
place = ga.nn.SinusoidalPosition(C)
found = [layer(y, ga.graphs.full(6))[bears].detach() for y in (x, place(x))]
assert torch.pdist(found[0]).max() < 1e-12 < 0.1 < torch.pdist(found[1]).min()

# %%
# Fast weights: another input, another matrix
# -------------------------------------------
# A linear layer across tokens mixes all inputs alike: its T x T weights are parameters,
# learned slowly. Attention writes such a matrix for each input: a fast weight, in the
# words of Schmidhuber 1992.
slow = nn.Linear(T, T, bias=False)
fast = [weights(x)[0] for x in (one, other)]
assert (fast[0] - fast[1]).abs().max() > 0.1

# %%
# Parameters do not grow with the text, and the matrix does
# ---------------------------------------------------------
# Weights take n^2 d operations, the rest n d^2. Attention is cheaper than recurrence
# where n < d, "most often the case" in 2017 (Vaswani et al., section 4). Counted with
# projections and perceptron, the halves are equal at n = 6 d: 4,608 tokens of 768.
assert sum(p.numel() for p in layer.parameters()) == 4 * (C * C + C)  # no T in it
equal = ga.analysis.flops(ga.graphs.full(6 * 768), 768, 12)
assert equal.attention == equal.projections + equal.feed_forward
lengths, window = [2**i for i in range(5, 16)], ga.graphs.sliding_window
costs = [ga.analysis.flops(ga.graphs.full(n), 768, 12) for n in lengths]
near = [ga.analysis.flops(window(n, 512, causal=True), 768, 12) for n in lengths]
_, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
pictures = {"attention, one input": fast[0], "another input": fast[1]}
pictures["linear layer, any input"] = slow.weight.detach().abs()
for axis, (name, matrix) in zip(axes, pictures.items(), strict=False):
    axis.imshow(matrix, cmap="Blues")
    axis.set(title=name, xlabel="source", ylabel="target", xticks=(), yticks=())
axes[3].loglog(lengths, [c.attention for c in costs], label="weights, full")
axes[3].loglog(lengths, [c.attention for c in near], label="weights, window of 512")
rest = [c.projections + c.feed_forward for c in costs]
axes[3].loglog(lengths, rest, label="the rest")
axes[3].set(title="operations of a block", xlabel="tokens")
axes[3].legend()
