"""Run by :mod:`ranks`: a model with batch norms, trained on shapes that processes share, beside one
process.
"""

import copy
import json

import torch
import torch.distributed as dist
from torch import nn

import graphattn as ga
from graphattn.shapes.batches import PointBatches
from graphattn.training.reading.inputs import ShapeInputs
from graphattn.training.running import loop
from graphattn.training.running.team import Team
from graphattn.training.tasks import Regress

RANK, WORLD = dist.get_rank(), dist.get_world_size()
SIZES = (5, 9, 4, 7, 6, 3, 8)


def shape(number, size):
    draw = torch.Generator().manual_seed(number)
    data = ShapeInputs(("position",))(
        ga.shapes.Shape(pos=torch.randn(size, 3, generator=draw)), str(number)
    )
    data.x = number + torch.randn(size, 3, generator=draw, dtype=torch.float64)
    data.y = data.x.sin().sum(1)
    return data


class Shapes:
    """What a training asks of its shapes; a batch of 12 points has one or two of them, or three."""

    def __init__(self, sizes):
        self.shapes = [shape(*of_shape) for of_shape in enumerate(sizes)]

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, number):
        return self.shapes[number]

    def chances(self, weights):
        return None

    def labels(self):
        return [data.y for data in self.shapes]

    def batches(self, points, **options):
        return PointBatches(
            self.shapes, points, sizes=[len(data.x) for data in self.shapes], **options
        )


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        # Adam makes steps of a gradient of 0
        first, last = (nn.Linear(width, 5, bias=False) for width in (3, 5))
        norm = nn.BatchNorm1d(5, affine=False, momentum=None)
        self.body = nn.Sequential(first, nn.BatchNorm1d(5), nn.GELU(), last, norm, nn.Linear(5, 1))

    def forward(self, x, levels):
        return self.body(x)


def trained(model, alone):
    team = Team()
    if alone:
        team.number, team.share = 1, (0, 1)
    how = loop.Schedule(epochs=4, points=12, seed=2, lr=0.1, average=0.9)
    training = loop.TrainingState(model, Regress("node"), how, Shapes(SIZES), Shapes(()), team=team)
    training.run(None, lambda progress: None)
    return (
        [line["loss"] for line in training.history],
        list(training.best.values()),
        training.batches,
    )


torch.manual_seed(0)
model = Network().double()
losses, state, batches = trained(copy.deepcopy(model), alone=True)
few = sum(len(batch) < WORLD for batch in batches.plan())
for name in ("synced", "control"):
    if name == "control":
        loop.sync_batch_norms = lambda model: model
    other, parts, _ = trained(copy.deepcopy(model), alone=False)
    apart = max(abs(a - b) for a, b in zip(losses, other, strict=True))
    drift = max(float((a - b).abs().max()) for a, b in zip(state, parts, strict=True))
    if RANK == 0:
        moved = float((state[0] - model.body[0].weight.detach()).abs().max())
        told = {
            "name": f"batch norms, {name}",
            "losses": apart,
            "state": drift,
            "few": few,
            "moved": moved,
        }
        print(json.dumps(told), flush=True)
if RANK == 0:
    print(json.dumps({"done": True}), flush=True)
