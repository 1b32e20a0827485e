"""An order in the edges stands in for positions: a causal graph names digits that a full one sees
as bags of greys.

Without positions attention on a full graph sees how often a grey occurs, not where. Neighbourhoods,
rewirings and permutations are in the study of digits (examples/studies/digits); a causal graph has
an order and no neighbourhood.
"""

import tempfile

import torch
from sklearn.datasets import load_digits

import graphattn as ga
from graphattn import study

digits = load_digits()
data = study.Data(
    torch.tensor(digits.data).float()[..., None] / 8 - 1, torch.tensor(digits.target), test=497
)
with tempfile.TemporaryDirectory() as folder:
    report = study.run(
        {"causal": ga.graphs.causal(64)},
        data,
        model=study.Model(layers=2, width=24, heads=1, hidden=32, batch_norm=True),
        training=study.Training(rate=1e-2, batch=32, weight_decay=1e-2),
        budgets=study.Budget(steps=200),
        controls=("full",),
        claims=[study.Claim("causal", "full", because="the n-th pixel is the one that reads n")],
        seeds=2,
        out=folder,
    )
causal, full = report.row("causal"), report.row("full")
print(f"digits named: causal {causal.interval}, full {full.interval}")
assert max(full.scores.values()) < 0.38  # a bag of greys
assert min(causal.scores.values()) > max(full.scores.values()) + 0.15
