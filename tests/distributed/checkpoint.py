"""Run by :mod:`ranks`: an encoder under FSDP2 on a shared graph, whose state is saved and read as
the guide says.
"""

import json
import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import graphattn as ga

PAGE = (Path(__file__).parents[2] / "examples/guide/many_processes.md").read_text("utf-8")
recipe = {}
exec(
    next(
        block
        for block in re.findall(r"^```py\n(.*?)^```", PAGE, re.M | re.S)
        if "def save(" in block
    ),
    recipe,
)
N, FOLDER = 101, Path(sys.argv[1])
draw = torch.Generator().manual_seed(0)
pos, x, y = (torch.rand(N, width, generator=draw, dtype=torch.float64) for width in (3, 8, 8))
mine = ga.distributed.shard(ga.graphs.knn(pos, 5), partition="rcb", pos=pos, heads=2, head_dim=4)
torch.manual_seed(1 + dist.get_world_size())
model = ga.models.Encoder(2, 8, 2).double()
for part in (*model.layers, model):
    fully_shard(part)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
begin, losses = recipe["load"](FOLDER, model, optimizer), []
for step in range(begin, 6):
    if step == 3 and not begin:
        recipe["save"](FOLDER, step, model, optimizer)
    optimizer.zero_grad()
    loss = ga.distributed.mean((model(mine.scatter(x), mine) - mine.scatter(y)) ** 2, mine)
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
if dist.get_rank() == 0:
    print(json.dumps({"name": "losses", "begin": begin, "losses": losses}))
    print(json.dumps({"done": True}))
