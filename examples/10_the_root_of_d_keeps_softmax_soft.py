"""The root of d keeps softmax soft: unscaled scores grow with the width of a head, and their gradients die."""

import torch

import graphattn as ga

torch.manual_seed(0)
examples, sources = 200, 64
graph = ga.graphs.cross(1, sources)  # one target that reads 64 sources

print("   d | spread of scores | largest weight | gradient let through")
print("     |    raw   scaled  |   raw  scaled  |   raw  scaled")
found = {}
for width in (4, 64, 1024):
    query, key = torch.randn(examples, 1, 1, width), torch.randn(examples, sources, 1, width)
    for scale in (1.0, width**-0.5):
        weights = ga.attention(query, key, key[..., :1], graph, scale=scale, backend="dense", return_weights=True)[1]
        alpha = weights.alpha[..., 0]  # (examples, 64)
        through = 1 - alpha.square().sum(-1)  # trace of softmax's Jacobian, diag(a) - a a^T
        scores = scale * (query * key).sum(-1)
        found[width, scale == 1.0] = [float(x) for x in (scores.std(), alpha.amax(-1).mean(), through.mean())]
    pairs = zip(found[width, True], found[width, False], strict=True)
    print(f"{width:4} | " + " | ".join(f"{raw:6.2f}  {scaled:6.2f}" for raw, scaled in pairs))

for width in (4, 64, 1024):
    (raw, *_), (scaled, largest, through) = found[width, True], found[width, False]
    assert abs(raw / width**0.5 - 1) < 0.06  # the standard deviation of a sum of d products
    assert abs(scaled - 1) < 0.06
    assert largest < 0.15
    assert through > 0.9
assert found[1024, True][1] > 0.9 > 0.1 > found[1024, True][2]  # nearly one-hot, and almost nothing is learned
