"""Retrieving a memory is one step of cross-attention: corrupted digits are cleaned, and nothing is trained."""

import torch
from sklearn.datasets import load_digits

import graphattn as ga

SEEDS, SHADES = 3, " ·░▒▓█"
pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1  # 1797 images of 8 x 8, in [-1, 1]
pixels = 8 * torch.nn.functional.normalize(pixels - pixels.mean(0), dim=-1)  # so that none is nearest to all by size


def corrupted(images: torch.Tensor) -> torch.Tensor:
    """The lower half is lost, and the upper half is noisy."""
    noisy = images + 0.3 * torch.randn_like(images)
    return torch.where(torch.arange(64) < 32, noisy, 0.0)


def share_found(memory: torch.Tensor, beta: float) -> float:
    """Of 100 states, the share that three steps bring nearest to the pattern that they are a corruption of."""
    chosen = torch.arange(100) % len(memory)
    found = ga.models.retrieve(corrupted(memory[chosen]), memory, beta, steps=3)
    return float((torch.cdist(found, memory).argmin(-1) == chosen).float().mean())


def draw(*images: torch.Tensor) -> str:
    rows = torch.stack([image.reshape(8, 8) for image in images], 1).clamp(-2, 2) / 2  # (8, images, 8)
    return "\n".join("   ".join("".join(SHADES[round(2.5 * (float(p) + 1))] * 2 for p in i) for i in r) for r in rows)


shares: dict[tuple[int, float], list[float]] = {}
cleaned = []
for seed in range(SEEDS):
    torch.manual_seed(seed)
    order = torch.randperm(len(pixels))
    for patterns in (10, 100, 1000):
        for beta in (0.01, 0.1, 1.0):
            shares.setdefault((patterns, beta), []).append(share_found(pixels[order[:patterns]], beta))

    memory = pixels[order[:100]]
    state = corrupted(memory)
    found = ga.models.retrieve(state, memory, 1.0)
    formula = torch.softmax(state @ memory.T, -1) @ memory
    assert (found - formula).abs().max() < 1e-5  # Ramsauer et al. 2021, equation 3
    energy = [ga.models.retrieval_energy(x, memory, 1.0) for x in (state, found)]
    assert (energy[1] < energy[0]).all()
    cleaned.append(float((found - memory).abs().mean() / (state - memory).abs().mean()))

for patterns in (10, 100, 1000):
    told = (f"{min(s):.0%} to {max(s):.0%} at beta {beta}" for (p, beta), s in shares.items() if p == patterns)
    print(f"{patterns:5} memories: retrieved {', '.join(told)}")
print(f"after one step the error is {min(cleaned):.0%} to {max(cleaned):.0%} of what it was; corrupted, and retrieved:")
print(draw(*state[:4]), draw(*found[:4]), sep="\n\n")

assert min(shares[100, 1.0]) > 0.85
assert max(shares[100, 0.01]) < 0.1  # hot: everything is one blurred average
assert max(cleaned) < 0.25
