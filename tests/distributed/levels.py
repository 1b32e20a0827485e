"""Run by :mod:`ranks`: models of points on a shared hierarchy beside one process."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn

import graphattn as ga
from graphattn.distributed import mean, shard, sync_batch_norms

RANK, WORLD = dist.get_rank(), dist.get_world_size()
N = 90
torch.manual_seed(0)
POS, X = torch.rand(N, 3, dtype=torch.float64), torch.randn(N, 5, dtype=torch.float64)
NORMALS = nn.functional.normalize(torch.randn(N, 3, dtype=torch.float64), dim=1)
BATCH = (torch.arange(N) >= 50).long()
CELLS = torch.randperm(6**3)[:N].sort().values
CELLS = torch.stack((CELLS // 36, CELLS // 6 % 6, CELLS % 6), 1)
KEPT = ga.graphs.hierarchy(POS, BATCH, ratio=(0.4, 0.5), normals=NORMALS).with_signals(
    X[:, :2].tanh()
)
GRID = ga.graphs.hierarchy(POS, cell=(0.3, 0.6))
CURVES = ga.graphs.serialized_hierarchy(CELLS.double(), cells=CELLS, levels=2, patch=16)
ONE, TWO = (ga.graphs.hierarchy(POS, BATCH, ratio=ratio, normals=NORMALS) for ratio in (None, 0.3))
WIDTHS, EDGES = (8, 12, 16), ("distance", "pair", "frame")

MODELS = {
    "unet": (lambda: ga.models.UNet(5, 2, WIDTHS, 2, edges=EDGES), KEPT),
    "unet, max": (lambda: ga.models.UNet(5, 2, WIDTHS, 2, pooling="max", readout="shape"), KEPT),
    "unet, cells": (lambda: ga.models.UNet(5, 2, WIDTHS, 2, pooling="mean"), GRID),
    "point transformer": (lambda: ga.models.PointTransformer(5, 2, (8, 16, 16), 1), KEPT),
    "version 2": (
        lambda: ga.models.PointTransformerV2(5, 2, (8, 16, 16), 1, readout="shape"),
        GRID,
    ),
    "version 3": (
        lambda: sync_batch_norms(
            ga.models.PointTransformerV3(5, 2, (12, 18), 1, (12,), 1, head_dim=6, rotary=9.0)
        ),
        CURVES,
    ),
    "stratified": (
        lambda: ga.models.StratifiedTransformer(
            5, 2, (8, 8, 8), 1, 2, step=0.2, reach=6, signals=2
        ),
        KEPT,
    ),
    "encode, process, decode": (lambda: ga.models.EncodeProcessDecode(5, 2, 8, 2, 2), TWO),
    "mesh graph net": (lambda: ga.models.MeshGraphNet(5, 2, 8, 3), ONE),
    "mesh": (lambda: ga.models.MeshTransformer(5, 2, 8, 2, 2, spectrum=0), ONE),
}


def told(name, **facts):
    every = torch.tensor(list(facts.values()), dtype=torch.float64)
    dist.all_reduce(every, op=dist.ReduceOp.MAX)
    if RANK == 0:
        print(
            json.dumps(
                {"name": f"levels: {name}", **dict(zip(facts, every.tolist(), strict=True))}
            ),
            flush=True,
        )


def compare(name, plan):
    make, shape = MODELS[name]
    torch.manual_seed(3)
    model = make().double()
    wanted = model(X, shape)
    own = shard(shape, partition="rcb", plan=plan, heads=2)
    nodes = own.levels[0].graph if len(wanted) == N else own.clouds
    label = torch.randn(
        wanted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4)
    )
    loss = ((wanted - label) ** 2).mean()
    grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    made = model(own.levels[0].graph.scatter(X), own)
    average = mean((made - nodes.scatter(label)) ** 2, nodes)
    errors, moved = [], 0.0
    parts = torch.autograd.grad(average, list(model.parameters()), allow_unused=True)
    for grad, part in zip(grads, parts, strict=True):
        if grad is not None:
            part = torch.zeros_like(grad) if part is None else part.clone()
            dist.all_reduce(part)  # as DDP does
            errors.append(float((part / WORLD - grad).abs().max()))
            moved = max(moved, float(grad.abs().max()))
    output = float((made - nodes.scatter(wanted)).detach().abs().max()) if made.numel() else 0.0
    told(
        f"{name}, {plan}",
        output=output,
        loss=float((average - loss).detach().abs()),
        gradient=max(errors),
        moved=moved,
    )


for name in MODELS:
    for plan in ("halo", "queries") if name == "unet" and "some" not in sys.argv else ("halo",):
        compare(name, plan)
x = torch.randn(N, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
down = KEPT.levels[1].down
for how, plan in (("max", "halo"), ("sum", "halo"), *[("max", "heads")] * (WORLD < 3)):
    own = shard(down, plan=plan, heads=2)
    wanted = ga.nn.pool(x, down, how)[own.owned]
    apart = float((ga.nn.pool(x[own.owned_sources], own, how) - wanted).abs().max())
    told(f"pool, {how}, {plan}", output=apart, loss=0, gradient=0, moved=float(wanted.std()))
if RANK == 0:
    print(json.dumps({"done": True}), flush=True)
