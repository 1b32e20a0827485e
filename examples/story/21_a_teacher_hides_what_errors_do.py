"""A teacher hides what errors do: who was only shown true texts may not bear their own.

In training a model reads the true words before each (teacher forcing, Williams and
Zipser 1989); in use it reads its own (free running). If these lead where no true text
leads, it may err more from then on: exposure bias (Ranzato et al. 2016).
"""

# %%
# A word is the sum of the two before it, modulo 11: any text has a right next word
# ---------------------------------------------------------------------------------
# So errors are of two sorts: a word that is not in the true text, as any after a slip;
# and a word that is wrong after the very words that were written.
import matplotlib.pyplot as plt
import torch
from torch import nn

import graphattn as ga

P, LONG = 11, 24
STARTS = torch.cartesian_prod(torch.arange(P), torch.arange(P))


def true(count):
    text = STARTS[torch.randint(len(STARTS), (count,))]
    while text.shape[1] < LONG:
        text = torch.cat((text, text[:, -2:].sum(1, keepdim=True) % P), 1)
    return text


def written(model, count):  # two true words, and what the model draws after them
    how = {"max_new_tokens": LONG - 2, "strategy": "sample"}
    with torch.no_grad():
        return ga.models.generate(model, true(count)[:, :2], **how)


def losses(model, text):
    """(B, 22): -log p of the word that is right after the words before it."""
    right = (text[:, 1:-1] + text[:, :-2]) % P
    found = model(text[:, :-1])[:, 1:]
    return nn.functional.cross_entropy(found.mT, right, reduction="none")


# %%
# Two graphs, both trained on true texts: all words before, and the last two
# --------------------------------------------------------------------------
arms, means = {"all before": ga.graphs.causal(...)}, {}
arms["the last two"] = ga.graphs.sliding_window(..., 2, causal=True)
_, axes = plt.subplots(1, 3, figsize=(12, 3), layout="constrained")
for axis, (name, graph) in zip(axes, arms.items(), strict=False):
    torch.manual_seed(0)
    model = ga.models.GPT(P, 32, 4, 1, max_len=LONG, graph=graph)
    adam = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(200):
        adam.zero_grad()
        losses(model, true(64)).mean().backward()
        adam.step()
    own = written(model, 2000)
    with torch.no_grad():
        taught, free = losses(model, true(2000)), losses(model, own)
    slips = own[:, 2:] != (own[:, 1:-1] + own[:, :-2]) % P
    after = (slips.cumsum(1) - slips.long()) > 0  # a slip is among the words before
    parts = (taught, free, free[~after], free[after])
    means[name] = [float(part.mean()) for part in parts]
    print(f"{name}: taught, free, before a slip, after one", means[name])
    axis.plot(range(3, LONG + 1), taught.mean(0), label="true words before")
    axis.plot(range(3, LONG + 1), free.mean(0), label="its own words before")
    axis.set(title=f"loss, reading {name}", xlabel="length", ylim=(-0.02, 0.5))
    axes[2].plot(range(3, LONG + 1), (after | slips).float().mean(0), label=name)
axes[2].set(title="texts with a slip so far", xlabel="length", ylim=(-0.02, 0.5))
_ = [axis.legend() for axis in axes]

# %%
# Small losses on true texts said nothing of this. Slips add up in both, and breed in
# one. After a slip the last two words are those of some true text, so that the narrow
# graph shows nothing new; the wide one shows what no true text has before them.
# Exposure bias takes both here: training that hides errors, a graph that reads them.
taught, free, before, after = means["all before"]
assert before < 2 * taught < 5 * taught < free < after
taught, free, before, after = means["the last two"]
assert max(free, before, after) < 2 * taught
