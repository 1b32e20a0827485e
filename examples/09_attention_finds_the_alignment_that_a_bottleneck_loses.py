"""Attention finds the alignment that a bottleneck loses: to reverse a text, target t learns to read source N - 1 - t.

A recurrent encoder and decoder, with nothing but one vector between them, and with a bipartite graph of attention, are
trained to copy and to reverse texts. What is counted is the next letter, given the right ones before it.
"""

import torch
from torch.nn import functional as F

import graphattn as ga

SEEDS, LETTERS, SHORT, LONG = 2, 8, 3, 9
START = LETTERS
torch.set_num_threads(1)  # small tensors: a second thread only waits


def examples(task: str, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Letters (B, N), the decoder's input and what it should write: the letters again, or backwards."""
    source = torch.randint(LETTERS, (batch, length))
    wanted = source.flip(1) if task == "reverse" else source
    return source, F.pad(wanted[:, :-1], (1, 0), value=START), wanted


def train(task: str, attention: str | None, length: int, steps: int = 70) -> tuple[float, torch.Tensor | None]:
    """Share of letters written rightly, and the mean attention weights (N, N)."""
    model = ga.models.Seq2Seq(LETTERS, LETTERS + 1, embed_dim=16, hidden=32, attention=attention)
    optimizer = torch.optim.Adam(model.parameters(), 0.015)
    for _ in range(steps):
        source, target, wanted = examples(task, 32, length)
        loss = F.cross_entropy(model(source, target).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        source, target, wanted = examples(task, 300, length)
        right = float((model(source, target).argmax(-1) == wanted).float().mean())
        if attention is None:
            return right, None
        return right, model(source, target, return_weights=True)[1].dense()[:, 0].mean(0)


lost, gained, alignments = [], [], []
for task in ("copy", "reverse"):
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        right = {}
        for attention in (None, "general"):
            for length in (SHORT, LONG):
                right[attention, length], weights = train(task, attention, length)
        alignments.append(weights.flip(1) if task == "reverse" else weights)  # rightly aligned on the diagonal
        lost.append(right[None, SHORT] - right[None, LONG])
        gained.append(right["general", LONG] - right[None, LONG])
        print(
            f"{task}, seed {seed}: of {SHORT} and of {LONG} letters right without attention {right[None, SHORT]:.0%} "
            f"and {right[None, LONG]:.0%}, with it {right['general', SHORT]:.0%} and {right['general', LONG]:.0%}; "
            f"{alignments[-1].diagonal().mean():.0%} of the weight is on the alignment"
        )

print(f"attention weights of the last, rows are targets:\n{(100 * weights).round().int()} %")
assert min(lost) > 0.2  # one vector holds a short text, and after as much training not a long one
assert min(gained) > 0.15
assert all(found.argmax(-1).equal(torch.arange(LONG)) for found in alignments)  # the letter to write is read most
