"""A memory is read by attention: one step of it cleans a picture.

A Hopfield network keeps patterns in the weights between its spins: a spin flips where
what it reads outvotes it, the energy falls, and a pattern comes back (Hopfield 1982).
With a sharper energy far more fit, and the update is a step of cross-attention: states
ask, patterns are keys and values (Ramsauer et al. 2021).
"""

# %%
# How many patterns of 64 spins come back whole?
# ----------------------------------------------
# A spin reads all others, not itself. About 0.14 N random patterns can be recalled with
# few errors (Amit et al. 1985). An Ising model is such a network with equal weights.
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import graphattn as ga

torch.manual_seed(0)
N, COUNTS = 64, (2, 5, 10, 20, 100, 1000)
back = {"spins": [], "one step of attention": []}
for count in COUNTS:
    patterns = torch.randn(count, N).sign()
    wanted = patterns[:20]
    noisy = torch.where(torch.rand(wanted.shape) < 0.15, -wanted, wanted)
    spins = ga.models.Hopfield.from_patterns(patterns)
    settled = torch.stack([spins.settle(state) for state in noisy])
    assert (spins.energy(settled) <= spins.energy(noisy)).all()
    read = ga.models.hopfield.retrieve(noisy, patterns, beta=1.0)  # softmax(S X^T) X
    assert torch.allclose(read, torch.softmax(noisy @ patterns.T, -1) @ patterns)
    for name, found in zip(back, (settled, read.sign()), strict=True):
        back[name].append(float((found == wanted).all(-1).float().mean()))
print({name: dict(zip(COUNTS, shares, strict=True)) for name, shares in back.items()})
assert back["spins"][0] > 0.9 > 0.2 > back["spins"][3]
assert min(back["one step of attention"]) > 0.9

# %%
# A hundred digits as memory; half of each is lost, the rest is noisy
# -------------------------------------------------------------------
pixels = torch.tensor(load_digits().data, dtype=torch.float32)
memory = 8 * F.normalize(pixels - pixels.mean(0))[torch.randperm(len(pixels))[:100]]
lost = torch.where(torch.arange(N) < 32, memory + 0.3 * torch.randn(100, N), 0.0)
cold, hot = (ga.models.hopfield.retrieve(lost, memory, beta) for beta in (1.0, 0.01))
nearest = torch.stack([torch.cdist(x, memory).argmin(-1) for x in (cold, hot)])
named = (nearest == torch.arange(100)).float().mean(1).tolist()
print(f"right by one step: {named[0]:.0%}; at a high temperature {named[1]:.0%}")
assert named[0] > 0.85 > 0.15 > named[1]

# %%
# Tokens that read each other again and again: spins on a sphere
# --------------------------------------------------------------
# They gather, energy falls (Geshkovski et al. 2023, arXiv 2312.10794): here on edges.
apart = F.normalize(torch.randn(24, 3, dtype=torch.float64))
likeness, energies = {"alike, first": apart @ apart.T}, {}
graphs = {
    "all read all": ga.graphs.full(24),
    "two halves": ga.graphs.block_local(24, 12, causal=False),
}
for name, graph in graphs.items():
    x, energies[name] = apart, []
    for _ in range(60):
        energies[name].append(float(-(torch.exp(x @ x.T) * graph.mask()).sum()))
        x = F.normalize(ga.models.hopfield.retrieve(x, x, 1.0, graph))
    likeness[name] = x @ x.T
    assert torch.tensor(energies[name]).diff().max() < 1e-9
    assert likeness[name][graph.mask()].min() > 0.999
assert likeness["two halves"][0, 12] < 0.99

figure, axes = plt.subplots(1, 7, figsize=(13, 2.7), layout="constrained")
for name, shares in back.items():
    axes[0].semilogx(COUNTS, shares, "o-", label=name)
axes[0].set(title="patterns back", xlabel="patterns kept")
axes[0].legend(fontsize=6)
digits = {"kept": memory, "given": lost, "one step": cold}
images = {name: found[0].reshape(8, 8) for name, found in digits.items()} | likeness
for axis, (name, image) in zip(axes[1:], images.items(), strict=True):
    axis.imshow(image, cmap="gray" if name in digits else "bwr", vmin=-1, vmax=1)
    axis.set(title=name, xticks=[], yticks=[])
