"""The root of d keeps softmax soft: unscaled scores grow with the width of a head, and their gradients die."""

import torch

import graphattn as ga

SEEDS, EXAMPLES, SOURCES, WIDTHS = 3, 200, 64, (4, 64, 1024)
graph = ga.graphs.cross(1, SOURCES)  # one target that reads 64 sources


def softness(width: int, scale: float) -> tuple[float, float, float]:
    """Standard deviation of scores, mean largest weight, and the median size of the gradient that comes to scores."""
    query, key = torch.randn(EXAMPLES, 1, 1, width), torch.randn(EXAMPLES, SOURCES, 1, width)
    value = torch.randn(EXAMPLES, SOURCES, 1, 1)
    added = torch.zeros(EXAMPLES, SOURCES, 1, requires_grad=True)  # to the scores, so that it has their gradient
    found = ga.attention(query, key, value, graph, score_bias=added, scale=scale, return_weights=True)
    found.output.sum().backward()
    alpha, scores = found.weights.alpha.detach(), scale * (query * key).sum(-1)
    return float(scores.std()), float(alpha.amax(-2).mean()), float(added.grad.norm(dim=-2).median())


measured: dict[tuple[int, bool], list[tuple[float, float, float]]] = {}
for seed in range(SEEDS):
    torch.manual_seed(seed)
    for width in WIDTHS:
        for scaled in (False, True):
            measured.setdefault((width, scaled), []).append(softness(width, width**-0.5 if scaled else 1.0))

print(f"   d | spread of scores | largest weight | gradient of scores (mean of {SEEDS} seeds)")
print("     |    raw   scaled  |   raw  scaled  |     raw   scaled")
for width in WIDTHS:
    raw, scaled = (torch.tensor(measured[width, kind]).mean(0).tolist() for kind in (False, True))
    pairs = zip((6, 5, 7), (2, 2, 4), raw, scaled, strict=True)
    print(f"{width:4} | " + " | ".join(f"{a:{wide}.{digits}f}  {b:{wide}.{digits}f} " for wide, digits, a, b in pairs))

for width in WIDTHS:
    for (raw, _, _), (scaled, largest, gradient) in zip(measured[width, False], measured[width, True], strict=True):
        assert abs(raw / width**0.5 - 1) < 0.08  # the standard deviation of a sum of d products
        assert abs(scaled - 1) < 0.08
        assert largest < 0.15
        assert gradient > 0.1
assert all(largest > 0.9 and gradient < 0.01 for _, largest, gradient in measured[1024, False])  # one-hot, flat
