"""Connectivity can stand in for positions: which edges there are tells a pixel where it is, nothing else does.

Digits are 64 pixel nodes. A small transformer is trained end to end to name them, along one graph after another, with
and without learned positions. By default the contrasts that matter; every graph both ways, for longer, is

    python examples/08_connectivity_can_stand_in_for_positions.py --all --epochs 40
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import graphattn as ga
from graphattn.bench import compare

ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ask.add_argument("--seeds", type=int, default=2)
ask.add_argument("--epochs", type=int, default=5)
ask.add_argument("--all", action="store_true", help="every graph, with and without positions")
options = ask.parse_args()

WIDTH, LAYERS, BATCH, TRAINED_ON, RATE = 24, 2, 32, 1200, 1e-2
torch.set_num_threads(1)  # small tensors: a second thread only waits
digits = load_digits()
pixels = torch.tensor(digits.data, dtype=torch.float32)[..., None] / 8 - 1  # (1797, 64, 1)
label = torch.tensor(digits.target)

grid = ga.graphs.grid_neighbourhood((8, 8), 3)  # a pixel reads the 9 around it
graphs = {
    "pixels alone": ga.graphs.self_loops(64),
    "full": ga.graphs.full(64),
    "causal": ga.graphs.causal(64),
    "grid, scrambled": grid.relabel(torch.randperm(64, generator=torch.Generator().manual_seed(0))),
    "grid": grid,
}
contrasts = [("full", True), *((name, False) for name in ("full", "causal", "grid, scrambled", "grid"))]


class Classifier(nn.Module):
    """Ten logits of 64 greys: only the graph and the positions, if there are any, tell one pixel from another."""

    def __init__(self, with_positions: bool, backend: str = "auto") -> None:
        super().__init__()
        self.embedding = nn.Linear(1, WIDTH)
        self.position = ga.nn.LearnedPosition(64, WIDTH) if with_positions else nn.Identity()
        self.encoder = ga.models.Encoder(LAYERS, WIDTH, num_heads=1, hidden=32, backend=backend)
        self.head = nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 10))

    def forward(self, images: torch.Tensor, graph: ga.AttentionGraph) -> torch.Tensor:
        return self.head(self.encoder(self.position(self.embedding(images)), graph).mean(-2))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, graph: ga.AttentionGraph, chosen: torch.Tensor) -> None:
    loss = F.cross_entropy(model(pixels[chosen], graph), label[chosen])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def accuracy(graph: ga.AttentionGraph, with_positions: bool, seed: int) -> float:
    """Share of 597 unseen digits that the trained model names."""
    torch.manual_seed(seed)
    seen, unseen = torch.randperm(len(pixels)).tensor_split([TRAINED_ON])
    model = Classifier(with_positions)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, fused=True)
    batches = [b for _ in range(options.epochs) for b in seen[torch.randperm(TRAINED_ON)].split(BATCH)]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=len(batches))
    for chosen in batches:
        step(model, optimizer, graph, chosen)
        schedule.step()
    with torch.no_grad():
        return float((model.eval()(pixels[unseen], graph).argmax(-1) == label[unseen]).float().mean())


def slower_by_message_passing(graph: ga.AttentionGraph) -> tuple[float, float]:
    """How many times the time of "auto" a training step takes: by what the bench says of attention, and measured.

    Predicted: what is not attention stays, (step - layers * auto + layers * message_passing) / step.
    """
    models = {backend: Classifier(True, backend) for backend in ("auto", "message_passing")}
    optimizers = {backend: torch.optim.AdamW(model.parameters(), fused=True) for backend, model in models.items()}
    ms: dict[str, list[float]] = {backend: [] for backend in models}
    for _ in range(6):
        for backend, model in models.items():
            start = time.perf_counter()
            step(model, optimizers[backend], graph, torch.arange(BATCH))
            ms[backend].append(1e3 * (time.perf_counter() - start))
    sizes = {"heads": 1, "head_dim": WIDTH, "batch": BATCH}
    found = compare(graph, **sizes, peers=["message_passing"], repeats=5, limit=5)
    fast, slow = (min(row.ms["forward + backward"]) for row in found.rows)
    return 1 + LAYERS * (slow - fast) / min(ms["auto"]), min(ms["message_passing"]) / min(ms["auto"])


right: dict[tuple[str, bool], list[float]] = {}
print(f"digits named rightly, mean of {options.seeds} seeds, lowest to highest:")
for name, with_positions in [(n, p) for n in graphs for p in (False, True)] if options.all else contrasts:
    found = [accuracy(graphs[name], with_positions, seed) for seed in range(options.seeds)]
    right[name, with_positions] = found
    told = f"{name}, {'learned' if with_positions else 'no'} positions"
    print(f"  {told:36} {sum(found) / len(found):.0%} ({min(found):.0%} to {max(found):.0%})", flush=True)

predicted, measured = slower_by_message_passing(graphs["full"])
print(
    "a training step on the full graph takes with message_passing, in times of auto: "
    f"predicted by the bench {predicted:.1f}, measured {measured:.1f}"
)

bag = max(right["full", False])  # attention on a full graph is permutation invariant: all it has is how often a grey is
assert bag < 0.38
assert min(right["full", True]) > 0.9  # positions say where, to a graph that says nothing
assert min(right["causal", False]) > bag + 0.15  # an order in the edges, none in the features
assert min(right["grid", False]) > bag + 0.2
assert min(right["grid, scrambled", False]) > bag + 0.1  # no neighbour is near, but each has the same part every time
