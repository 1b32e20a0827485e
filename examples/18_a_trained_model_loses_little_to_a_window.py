"""A small language model that was trained on all earlier characters loses little when it reads the
last few alone.

A Llama of transformers learns the source of Python's own standard library, character by character.
Then ``ga.patched`` lets it read through windows of w characters, with and without sinks (the first
characters, which every later one reads), and nothing is trained again: bits per character on
held-out text over the share of pairs that are left.

With a name of a file it also writes the picture: ``python examples/18_... sweep.png``.
"""

import argparse
import ast
import inspect
import json.decoder
import logging
import sys
import tarfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import graphattn as ga

N, BATCH, STEPS = 64, 8, 600
modules = (argparse, ast, inspect, json.decoder, logging, tarfile)
text = "".join(Path(str(module.__file__)).read_text(encoding="utf-8") for module in modules)
characters = sorted(set(text))
codes = torch.tensor([characters.index(character) for character in text])
held_out, codes = codes[-32 * N :].view(32, N), codes[: -32 * N]

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(characters),
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    initializer_range=0.1,
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
for _ in range(STEPS):
    batch = torch.stack(
        [codes[i : i + N] for i in torch.randint(len(codes) - N, (BATCH,)).tolist()]
    )
    model(batch, labels=batch).loss.backward()
    optimizer.step()
    slower.step()
    optimizer.zero_grad()


@torch.no_grad()
def bits() -> float:
    """Bits per character on held-out text."""
    return float(model(held_out, labels=held_out).loss) / 0.6931


whole, causal = bits(), ga.graphs.causal(...)
results: dict[str, list[tuple[int, float, float]]] = {}
for count in (0, 1, 4):
    first = ga.graphs.global_tokens(..., tuple(range(count))) & causal
    for window in (2, 4, 8, 16, 32, 64):
        graph = ga.graphs.sliding_window(..., window, causal=True) | first
        with ga.patched(model, graph):
            results.setdefault(f"{count or 'no'} sink{'s' * (count != 1)}", []).append(
                (window, graph(N).density, bits())
            )

print(f"all earlier characters: {whole:.3f} bits per character, {len(text):,} characters of text")
for name, rows in results.items():
    for window, density, cost in rows:
        print(f"window {window:3}, {name}: {density:.3f} of the pairs, {cost:.3f} bits")
costs = {window: cost for window, _, cost in results["no sinks"]}
assert abs(costs[64] - whole) < 1e-5  # a window of all is what it was
assert costs[2] > costs[8] > costs[32]
assert costs[32] - whole < 0.2 * (costs[2] - whole)

if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, rows in results.items():
        axes.plot(
            [density for _, density, _ in rows],
            [cost for *_, cost in rows],
            "o-",
            label=f"window and {name}",
        )
    for window, density, cost in results["no sinks"]:
        axes.annotate(
            f"{window}", (density, cost), textcoords="offset points", xytext=(4, 6), fontsize=8
        )
    axes.axhline(whole, color="grey", linewidth=1, linestyle="--", label="all earlier characters")
    axes.set_xscale("log", base=2)
    axes.set_xticks([1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2], ["1/32", "1/16", "1/8", "1/4", "1/2"])
    axes.set(xlabel="share of the pairs that are read", ylabel="bits per character, held out")
    axes.legend(frameon=False)
    figure.savefig(sys.argv[1], dpi=130)
