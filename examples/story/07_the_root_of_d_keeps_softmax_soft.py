"""The root of d keeps softmax soft: unscaled scores grow with d, and gradients die.

A dot product of d random numbers has a standard deviation of sqrt(d). Softmax of large
scores is a choice of one, whose gradient is nearly 0: nothing is learned. That is why
scores are divided by sqrt(d) (Vaswani et al. 2017, section 3.2.1).
"""

# %%
# Entropy and gradient by the width of a head
# -------------------------------------------
import time

import matplotlib.pyplot as plt
import torch
from torch import nn

import graphattn as ga

torch.manual_seed(0)
SOURCES, WIDTHS, graph = 64, (4, 16, 64, 256, 1024), ga.graphs.cross(1, 64)


def softness(width, scale):
    """Spread of the scores, entropy of the weights, and the gradient at the scores."""
    query, key = torch.randn(200, 1, 1, width), torch.randn(200, SOURCES, 1, width)
    bias = torch.zeros(200, SOURCES, 1, requires_grad=True)  # added to the scores
    options = {"scale": scale, "score_bias": bias, "return_weights": True}
    found = ga.attention(query, key, torch.randn(200, SOURCES, 1, 1), graph, **options)
    found.output.sum().backward()
    alpha = found.weights.alpha.detach()
    entropy = -torch.special.xlogy(alpha, alpha).sum((1, 2)).mean()
    spread = (scale * (query * key).sum(-1)).std()
    return float(spread), float(entropy), float(bias.grad.norm(dim=1).median())


raw = [softness(d, 1.0) for d in WIDTHS]
scaled = [softness(d, d**-0.5) for d in WIDTHS]
for d, large, one in zip(WIDTHS, raw, scaled, strict=True):
    print(f"d = {d:4}: gradient {large[2]:.0e} unscaled, {one[2]:.2f} scaled")
    assert max(abs(large[0] / d**0.5 - 1), abs(one[0] - 1)) < 0.1  # the spreads
    assert one[1] > 3.4  # of at most log 64 = 4.16
    assert one[2] > 0.1
assert raw[-1][1] < 0.3
assert raw[-1][2] < 0.01
scores = torch.tensor([0.1, -0.2, 0.3, 0.25, -0.05])
assert scores.softmax(0).max() < 0.3 < 0.99 < (100 * scores).softmax(0).max()

# %%
# Why not another score? An additive one costs more, a linear one less
# --------------------------------------------------------------------
# Additive scores, v tanh(q + k) (Bahdanau et al. 2015), take n^2 d operations as dot
# products do, which are one matrix product. Linear ones, phi(q) phi(k) without softmax
# (Katharopoulos et al. 2020), are bracketed as Q (K^T V): n d^2, and no T x S matrix.
n, d, took = 1024, 32, {}
x, full, phi = torch.randn(n, d), ga.graphs.full(n), ga.nn.FeatureScore()
for score, weigh in (("additive", "softmax"), ("dot", "softmax"), (phi, "sum")):
    layer = ga.nn.GraphAttention(d, 1, score=score, normalize=weigh)
    for _ in range(3):
        start = time.process_time()
        layer(x, full).sum().backward()
        took[score] = min(took.get(score, 9.0), time.process_time() - start)
additive, dot, linear = took.values()
print(f"additive {additive / dot:.0f} times a dot product, linear {linear / dot:.2f}")
assert additive / 2 > dot > 2 * linear

# %%
# Layer norm keeps inputs in size, one token at a time
# ----------------------------------------------------
# Its means are over the features of a token (Ba et al. 2016, section 3). Those of batch
# norm are over tokens: edges that no graph shows, from later tokens to earlier ones.
later, norms = x.clone(), (nn.LayerNorm(d), nn.BatchNorm1d(d))
later[-1] += 9.0
assert [int((f(later) != f(x)).any(1).sum()) for f in norms] == [1, n]

_, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for axis, place, name in zip(axes, (1, 2), ("entropy", "gradient"), strict=True):
    for label, found in (("unscaled", raw), ("divided by sqrt(d)", scaled)):
        axis.semilogx(WIDTHS, [row[place] for row in found], "o-", label=label)
    axis.set(title=f"{name} of 64 weights", xlabel="d, width of a head", ylim=0)
axes[0].legend()
