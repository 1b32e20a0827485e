"""Attention is a soft dictionary: cold it retrieves, hot it averages; it is not sure.

A dictionary compares what is asked with its keys and returns the value of the one that
is equal. Attention returns all values, each by how alike its key is to the query. One
number, the scale, decides how soft that is, and none makes its weights probabilities.
"""

# %%
# Films for a taste: the dot product respects size and sign
# ---------------------------------------------------------
# Each film is (romance, action); a taste that dislikes action has a number below 0.
import matplotlib.pyplot as plt
import torch

import graphattn as ga

films = {"Up": (1, 0.2), "Alien": (-0.4, 0.9), "Titanic": (0.9, 0.5), "Heat": (0, 1)}
keys = torch.tensor(list(films.values()))[:, None]  # (sources, heads, width)
taste = torch.tensor([[[1.0, -0.5]]])  # one target
values = torch.eye(4)[:, None]  # a value that is the name of its key
one = ga.graphs.cross(1, 4)


def looked_up(scale, query=taste):
    return ga.attention(query, keys, values, one, scale=scale)[0, 0]


best = (keys[:, 0] @ taste[0, 0]).argmax()
assert list(films)[best] == "Up"
assert torch.allclose(looked_up(1e3), values[best, 0])  # cold: the dictionary
assert torch.allclose(looked_up(1e-6), torch.full((4,), 0.25), atol=1e-5)  # hot: a mean
assert list(films)[looked_up(1.0, -taste).argmax()] == "Alien"  # the opposite taste
scales = torch.logspace(-2, 2, 60)
shares = torch.stack([looked_up(float(scale)) for scale in scales])
entropy = -torch.special.xlogy(shares, shares).sum(1)
assert (entropy.diff() < 1e-6).all()  # the larger the scale, the less uncertain

# %%
# A weight of 0.9 is not right in nine of ten cases
# -------------------------------------------------
# Queries are one of 16 keys, plus noise of size 1.2. Which key was it? The scale does
# not change which weight is largest, and so not how often it is right. But it changes
# what the weight says. Only at 1 / 1.2 ** 2, which is Bayes' rule for this noise, is
# "0.9" right nine times in ten. Layers are trained for their outputs, not for that
# (Guo et al. 2017 mend classifiers by such a scale, fitted afterwards).
torch.manual_seed(0)
CASES, NOISE, D = 20_000, 1.2, 8
key = torch.nn.functional.normalize(torch.randn(16, 1, D), dim=-1) * 2
true = torch.randint(16, (CASES,))
query = key[true] + NOISE * torch.randn(CASES, 1, D)
graph = ga.graphs.cross(CASES, 16)
nothing = torch.zeros(16, 1, 1)
kinds = {"1 / sqrt(D)": D**-0.5, "Bayes": NOISE**-2, "4 x Bayes": 4 * NOISE**-2}
_, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
gaps, hits = {}, set()
for name, scale in kinds.items():
    found = ga.attention(query, key, nothing, graph, scale=scale, return_weights=True)
    sure, chosen = found.weights.dense()[0].max(1)
    hit = (chosen == true).float()
    hits.add(round(float(hit.mean()), 3))
    bins = [b for i in range(10) if (b := (sure * 10).long() == i).sum() > 100]
    said = [float(sure[b].mean()) for b in bins]
    is_so = [float(hit[b].mean()) for b in bins]
    many = [float(b.float().mean()) for b in bins]
    gaps[name] = sum(n * abs(a - b) for n, a, b in zip(many, said, is_so, strict=True))
    right.plot(said, is_so, "o-", label=f"{name}: off by {gaps[name]:.2f}")
    print(f"{name:12} right {hit.mean():.2f}, says {sure.mean():.2f}")
assert len(hits) == 1
assert gaps["Bayes"] < 0.02
assert min(gaps["1 / sqrt(D)"], gaps["4 x Bayes"]) > 0.1
left.semilogx(scales, shares, label=list(films))
left.set(xlabel="scale: hot to cold", title="weights of the films")
right.axline((0, 0), (1, 1), linestyle=":", color="black")
right.set(xlabel="largest weight", title="how often it is right")
left.legend()
right.legend()
