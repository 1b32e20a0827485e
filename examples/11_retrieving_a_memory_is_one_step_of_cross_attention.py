"""Retrieving a memory is one step of cross-attention: corrupted digits are cleaned, and nothing is trained."""

import torch
from sklearn.datasets import load_digits

import graphattn as ga

torch.manual_seed(0)
pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1  # 1797 images of 8 x 8, in [-1, 1]
pixels = 8 * torch.nn.functional.normalize(pixels - pixels.mean(0), dim=-1)  # so that none is nearest to all by size
SHADES = " ·░▒▓█"


def corrupted(images: torch.Tensor) -> torch.Tensor:
    """The lower half is lost, and the upper half is noisy."""
    noisy = images + 0.3 * torch.randn_like(images)
    return torch.where(torch.arange(64) < 32, noisy, 0.0)


def retrieve(state: torch.Tensor, memory: torch.Tensor, beta: float, steps: int = 1) -> torch.Tensor:
    """Every state (T, 64) reads every pattern (S, 64), as query and as key and value."""
    graph = ga.graphs.cross(len(state), len(memory))
    query, patterns = state[:, None], memory[:, None]  # one head
    for _ in range(steps):
        query = ga.attention(query, patterns, patterns, graph, scale=beta)
    return query[:, 0]


def draw(*images: torch.Tensor) -> str:
    rows = torch.stack([image.reshape(8, 8) for image in images], 1).clamp(-2, 2) / 2  # (8, images, 8)
    return "\n".join("   ".join("".join(SHADES[round(2.5 * (float(p) + 1))] * 2 for p in i) for i in r) for r in rows)


order = torch.randperm(len(pixels))
beta, shares = 1.0, {}
for patterns in (10, 100, 1000):
    memory = pixels[order[:patterns]]
    chosen = torch.arange(100) % patterns
    state = corrupted(memory[chosen])
    for b in (0.01, 0.1, beta):
        nearest = torch.cdist(retrieve(state, memory, b, steps=3), memory).argmin(-1)
        shares[patterns, b] = float((nearest == chosen).float().mean())
    line = ", ".join(f"{shares[patterns, b]:.0%} at beta {b}" for b in (0.01, 0.1, beta))
    print(f"{patterns:5} memories: retrieved {line}")

memory = pixels[order[:100]]
state = corrupted(memory[:4])
found = retrieve(state, memory, beta)
print("corrupted, and retrieved in one step:")
print(draw(*state), draw(*found), sep="\n\n")

formula = torch.softmax(beta * state @ memory.T, -1) @ memory
assert (found - formula).abs().max() < 1e-5  # Ramsauer et al. 2021, equation 3
assert 4 * (found - memory[:4]).abs().mean() < (state - memory[:4]).abs().mean()
assert shares[100, beta] > 0.9
assert shares[100, 0.01] < 0.5  # hot: everything is one blurred average
