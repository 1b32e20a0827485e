"""Shapes before they are read: a part of their points, centred and scaled."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import SamplePoints

from ..errors import LoaderError
from ..shapes.seeded import seeded


def placed(pos: Tensor, scale: float, name: str) -> Tensor:
    """Positions from their mean in units of ``scale``, or of the largest distance from it."""
    if not len(pos):
        raise LoaderError(f"{name}: expected points, got none. Try: leave the file out.")
    if pos.shape[1:] != (3,):
        raise LoaderError(f"{name}: expected positions (N, 3), got {tuple(pos.shape)}. Try: a third coordinate of 0.")
    if not torch.isfinite(pos).all():
        raise LoaderError(f"{name}: expected finite positions, got NaN or infinity. Try: repair it.")
    pos = pos.double() - pos.double().mean(0)
    radius = float(pos.norm(dim=1).max())
    if not radius > 1e-12:
        got = "one point" if len(pos) == 1 else f"{len(pos)} points at one place"
        raise LoaderError(f"{name}: expected points at different places, got {got}. Try: leave the file out.")
    return (pos / (scale or radius)).float()


def sampled(shape: Any, size: int) -> Any:
    """So many points on the faces, or at most so many of a cloud: the same ones each time."""
    with seeded(0):
        if "face" in shape and shape.face.numel():
            one = Data(pos=shape.pos.float(), face=shape.face)
            one = SamplePoints(size)(one)
            return Data(pos=one.pos, y=shape.get("y"))
        many = len(shape.pos)
        if many <= size:
            return shape
        keep = torch.randperm(many)[:size].sort().values
    rows = {name: value[keep] for name, value in shape.items() if torch.is_tensor(value) and len(value) == many}
    return Data(**{**dict(shape.items()), **rows})
