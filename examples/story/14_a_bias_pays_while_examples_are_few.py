"""A bias pays while examples are few: with many, full attention learns it by itself.

A window says beforehand that what matters is near. If that is so it saves examples; if
not, nothing makes up for it. "Large scale training trumps inductive bias" (Dosovitskiy
et al. 2021, of images): here it is measured on bits, by the number of examples.
"""

# %%
# A window of two against all earlier tokens
# ------------------------------------------
# Near: does a bit differ from the one before it? Far: what was the first bit?
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import graphattn as ga

N, C, COUNTS, SEEDS = 10, 16, (8, 32, 128, 512), 2
window, causal = ga.graphs.sliding_window(N, 2, causal=True), ga.graphs.causal(N)
graphs = {"window": window, "all earlier": causal}


def learned(graph, far, count, seed):
    """Share of right answers on new sequences, trained on ``count`` others."""
    torch.manual_seed(seed)
    word, place, answer = nn.Embedding(2, C), nn.Embedding(N, C), nn.Linear(C, 2)
    net = nn.ModuleList([word, place, answer, ga.models.Encoder(1, C, 2, 32)])
    adam = torch.optim.Adam(net.parameters(), 2e-2)
    known = torch.randint(2, (count, N))

    def answers(bits):
        found = answer(net[3](word(bits) + place.weight, graph))
        near = found[:, 1:], bits[:, 1:] ^ bits[:, :-1]
        return (found[:, -1:], bits[:, :1]) if far else near

    for _ in range(60):
        found, right = answers(known[torch.randint(count, (16,))])
        adam.zero_grad()
        F.cross_entropy(found.mT, right).backward()
        adam.step()
    found, right = answers(torch.randint(2, (1000, N)))
    return float((found.argmax(-1) == right).float().mean())


(_, axes), share = plt.subplots(1, 3, figsize=(11, 3), layout="constrained"), {}
for axis, task in zip(axes, ("near", "far"), strict=False):
    for name, graph in graphs.items():
        for n in COUNTS:
            found = [learned(graph, task == "far", n, seed) for seed in range(SEEDS)]
            share[task, name, n] = sum(found) / SEEDS
        shares = [share[task, name, n] for n in COUNTS]
        axis.semilogx(COUNTS, shares, "o-", base=2, label=name)
        print(task, name, *(f"{n}: {share[task, name, n]:.2f}" for n in COUNTS))
    axis.set(title=f"{task}: share right", xlabel="examples", ylim=(0.4, 1.02))
axes[0].legend()
few, many = (share["near", "all earlier", n] for n in (8, 512))
assert min(share["near", "window", 8], many) > few + 0.1
assert share["far", "window", 512] < 0.6 < 0.95 < share["far", "all earlier", 512]

# %%
# Scale without its cost: experts
# -------------------------------
# A router sends each token to one of several perceptrons: parameters grow with their
# number, operations hardly do (Shazeer et al. 2017; Fedus et al. 2022).
tokens, numbers, costs, sizes = torch.randn(32, C), (1, 2, 4, 8, 16), [], []
for number in numbers:
    experts = [ga.nn.FeedForward(C, 4 * C) for _ in range(number)]
    mixture = ga.nn.MixtureOfExperts(experts, C, top_k=1)
    with FlopCounterMode(display=False) as counter:
        mixture(tokens)
    costs.append(counter.get_total_flops())
    sizes.append(sum(p.numel() for p in mixture.parameters()))
axes[2].loglog(numbers, [size / sizes[0] for size in sizes], "o-", label="parameters")
axes[2].loglog(numbers, [cost / costs[0] for cost in costs], "o-", label="operations")
axes[2].set(title="times those of one expert", xlabel="experts")
axes[2].legend()
assert sizes[-1] / sizes[0] > 15 > 1.2 > costs[-1] / costs[0]
