"""Connectivity can stand in for positions: which edges there are tells a pixel where it is, nothing else does.

Digits are 64 pixel nodes. A transformer with random weights turns each into a vector, averaged over its nodes, and a
linear classifier is fitted to these by least squares: what it can tell apart is what the graph lets through.
"""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import graphattn as ga

SEEDS, WIDTH, IMAGES, TRAINED_ON = 3, 48, 1000, 700
torch.set_num_threads(1)  # small tensors: a second thread only waits
digits = load_digits()
pixels = torch.tensor(digits.data[:IMAGES], dtype=torch.float32)[..., None] / 8 - 1  # (IMAGES, 64, 1)
label = torch.tensor(digits.target[:IMAGES])

grid = ga.graphs.grid_neighbourhood((8, 8), 3)  # a pixel reads the 9 around it
graphs = {
    "full graph": ga.graphs.full(64),
    "causal graph": ga.graphs.causal(64),
    "grid, scrambled": grid.relabel(torch.randperm(64, generator=torch.Generator().manual_seed(0))),
    "grid": grid,
}


@torch.no_grad()
def accuracy(graph: ga.AttentionGraph, with_positions: bool, seed: int) -> float:
    """Share of 300 unseen digits that the classifier names."""
    torch.manual_seed(seed)
    x = torch.nn.Linear(1, WIDTH)(pixels)
    if with_positions:
        x = x + torch.randn(64, WIDTH)
    found = ga.models.Encoder(2, WIDTH, num_heads=4, hidden=WIDTH)(x, graph).mean(-2)  # (IMAGES, WIDTH)
    found = F.pad((found - found.mean(0)) / found.std(0), (0, 1), value=1.0).double()
    order = torch.randperm(len(pixels))
    seen, unseen = order[:TRAINED_ON], order[TRAINED_ON:]
    gram = found[seen].T @ found[seen] + torch.eye(WIDTH + 1)
    weight = torch.linalg.solve(gram, found[seen].T @ F.one_hot(label[seen], 10).double())
    return float(((found[unseen] @ weight).argmax(-1) == label[unseen]).float().mean())


mean = {}
print(f"{'':22} without positions   with positions   (mean of {SEEDS} seeds, lowest to highest)")
for name, graph in graphs.items():
    cells = []
    for with_positions in (False, True):
        found = [accuracy(graph, with_positions, seed) for seed in range(SEEDS)]
        mean[name, with_positions] = sum(found) / SEEDS
        cells.append(f"{mean[name, with_positions]:.0%} ({min(found):.0%} to {max(found):.0%})")
    print(f"{name:22} {cells[0]:19} {cells[1]}")

bag = mean["full graph", False]  # attention on a full graph is permutation invariant: a histogram of greys
assert bag < 0.35
assert mean["causal graph", False] > bag + 0.2  # an order in the edges, none in the features
assert mean["grid", False] > bag + 0.3
assert mean["grid, scrambled", False] > bag + 0.2  # no neighbour is near, but each has the same part at every digit
assert mean["full graph", True] > 0.8  # positions say it to a graph that says nothing
