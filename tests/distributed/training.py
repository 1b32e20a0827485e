"""Run by :mod:`ranks`: 20 steps of an encoder on a shared graph, by DDP and by FSDP2, beside one
process.
"""

import copy
import json

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import graphattn as ga
from graphattn.distributed import mean, shard

RANK, WORLD = dist.get_rank(), dist.get_world_size()
N = 401


def seeded(seed):
    return torch.Generator().manual_seed(seed)


POS = torch.rand(N, 3, generator=seeded(0), dtype=torch.float64)
X = torch.randn(N, 16, generator=seeded(1), dtype=torch.float64)
Y = torch.randn(N, 16, generator=seeded(2), dtype=torch.float64)
GRAPH = ga.graphs.knn(POS, 9)


def fit(model, graph, x, y, average, steps=20):
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-2), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = average(((model(x, graph) - y) ** 2).mean(1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss))
    return losses


def whole(p):
    return p.full_tensor() if hasattr(p, "full_tensor") else p


torch.manual_seed(3)
start = ga.models.Encoder(2, 16, 4, num_kv_heads=2).double()
reference = copy.deepcopy(start)
with torch.no_grad():
    output = reference(X, GRAPH)
losses = fit(reference, GRAPH, X, Y, torch.mean)
for plan, uneven in (
    ("halo", False),
    ("halo", True),
    *[(plan, False) for plan in ("heads", "queries")] * (WORLD == 2),
):
    part = torch.searchsorted(torch.tensor([0.7, 0.95]), torch.arange(N) / N).clamp(max=WORLD - 1)
    mine = shard(
        GRAPH, partition=part if uneven else "rcb", pos=POS, plan=plan, heads=4, kv_heads=2
    )
    x, y = mine.scatter(X), mine.scatter(Y)
    for how in ("ddp", "fsdp"):
        model = copy.deepcopy(start)
        with torch.no_grad():
            apart = float((model(x, mine) - mine.scatter(output)).abs().max())
        if how == "ddp":
            model = DistributedDataParallel(model)
        else:
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)
        other = fit(model, mine, x, y, lambda each, mine=mine: mean(each, mine))
        error = max(abs(a - b) / abs(a) for a, b in zip(losses, other, strict=True))
        found = [whole(p) for p in model.parameters()]
        drift = max(
            float((a - b).abs().max()) for a, b in zip(found, reference.parameters(), strict=True)
        )
        row = {
            "name": f"{how}, {plan}, uneven={uneven}",
            "output": apart,
            "losses": error,
            "parameters": drift,
        }
        if RANK == 0:
            print(json.dumps({**row, "fall": losses[-1] / losses[0]}), flush=True)
if RANK == 0:
    print(json.dumps({"done": True}), flush=True)
