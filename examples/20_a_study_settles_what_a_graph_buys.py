"""A study settles what a graph buys: predictions first, controls by themselves, the same start for
every arm.

What is the last token, asked of the first one? A window of 5 leaves it 5 of the 8 tokens in two
layers, so the theorem says chance before anything is trained; all pairs can answer, and learn to.
"""

import tempfile

import torch

import graphattn as ga
from graphattn import study

tokens = torch.randint(4, (600, 8), generator=torch.Generator().manual_seed(0))
data = study.Data(tokens, tokens[:, -1], test=200)
arms = {"window": ga.graphs.sliding_window(8, 5, causal=False)}

with tempfile.TemporaryDirectory() as folder:
    report = study.run(
        arms,
        data,
        readout="token",  # the first
        positions="learned",
        budgets=study.Budget(steps=120),
        controls=("self", "full"),  # by default also rewirings, a permutation and shuffled labels
        claims=[
            study.Claim("full", "window", because="the last token is out of the window's reach")
        ],
        seeds=2,
        out=folder,
        processes=0,  # trials in this process; by default one for each core
    )
    print(report)
    window, full = (report.row(arm) for arm in ("window", "full"))
    print(f"window {window.interval}, full {full.interval}, chance {data.chance:.3f}")

assert window.prediction["reached"] == 5 / 8  # said before training
assert max(window.scores.values()) < 0.4 < 0.9 < min(full.scores.values())
