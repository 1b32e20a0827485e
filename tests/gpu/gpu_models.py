"""Models of the command line with clouds of random points: what a step of training costs and
computes."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphattn.graphs import Hierarchy
from graphattn.training.models.named import MODELS

CLASSES = 5


class Step(NamedTuple):
    """A model, and its inputs on a device."""

    model: nn.Module
    x: Tensor
    levels: Hierarchy
    y: Tensor

    def loss(self) -> Tensor:
        """Of a forward pass."""
        return nn.functional.cross_entropy(self.model(self.x, self.levels).float(), self.y)

    def gradients(self) -> tuple[Tensor | None, ...]:
        """Of a forward and a backward pass."""
        return torch.autograd.grad(self.loss(), list(self.model.parameters()), allow_unused=True)


def training_step(
    name: str, clouds: int, points: int, device: torch.device, dtype: torch.dtype
) -> Step:
    """A model of ``graphattn train`` on clouds of so many points, the same on every device."""
    draw = torch.Generator().manual_seed(0)
    preset = MODELS[name]
    data = [
        preset.of_nodes(Data(pos=torch.rand(points, 3, generator=draw)), f"cloud {i}")
        for i in range(clouds)
    ]
    levels = Hierarchy.join([cloud.levels for cloud in data]).to(device)
    x = torch.cat([cloud.x for cloud in data])
    y = torch.randint(CLASSES, (len(x),), generator=draw)
    torch.manual_seed(0)
    model = preset.make(
        x.shape[1], CLASSES, readout="node", **preset.node
    ).eval()  # without dropout
    return Step(model.to(device, dtype), x.to(device, dtype), levels, y.to(device))
