"""Attention finds the alignment that a bottleneck loses: to reverse a text, target t learns to read source N - 1 - t.

A recurrent encoder and decoder, with nothing but one vector between them, and with a bipartite graph of attention.
"""

import torch
from torch.nn import functional as F

import graphattn as ga

SEEDS, LETTERS, SHORT, LONG = 3, 8, 3, 9
START = LETTERS
torch.set_num_threads(1)  # small tensors: a second thread only waits


def reversals(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Letters (B, N), the decoder's input and what it should write: the letters backwards."""
    source = torch.randint(LETTERS, (batch, length))
    wanted = source.flip(1)
    return source, F.pad(wanted[:, :-1], (1, 0), value=START), wanted


def train(attention: str | None, length: int, steps: int = 70) -> tuple[float, torch.Tensor | None]:
    """Share of letters written rightly, and the mean attention weights (N, N)."""
    model = ga.models.Seq2Seq(LETTERS, LETTERS + 1, embed_dim=16, hidden=32, attention=attention)
    optimizer = torch.optim.Adam(model.parameters(), 0.015)
    for _ in range(steps):
        source, target, wanted = reversals(32, length)
        loss = F.cross_entropy(model(source, target).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        source, target, wanted = reversals(300, length)
        right = float((model(source, target).argmax(-1) == wanted).float().mean())
        if attention is None:
            return right, None
        return right, model(source, target, return_weights=True)[1].dense()[:, 0].mean(0)


gaps, on_the_antidiagonal, weights = [], [], None
for seed in range(SEEDS):
    torch.manual_seed(seed)
    right = {}
    for attention in (None, "general"):
        for length in (SHORT, LONG):
            right[attention, length], weights = train(attention, length)
    print(
        f"seed {seed}: letters right without attention {right[None, SHORT]:.0%} of {SHORT} and {right[None, LONG]:.0%} "
        f"of {LONG}, with attention {right['general', SHORT]:.0%} and {right['general', LONG]:.0%}"
    )
    gaps.append((right[None, SHORT] - right[None, LONG], right["general", LONG] - right[None, LONG]))
    on_the_antidiagonal.append(float(weights.fliplr().diagonal().mean()))

print(f"attention weights of the last seed, rows are targets:\n{(100 * weights).round().int()} %")
print(f"weight on the antidiagonal: {', '.join(f'{w:.0%}' for w in on_the_antidiagonal)}")
assert min(lost for lost, _ in gaps) > 0.1  # one vector holds a short text, and not a long one
assert min(gained for _, gained in gaps) > 0.1
assert min(on_the_antidiagonal) > 0.4 > 3 / LONG
