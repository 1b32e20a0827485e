"""Positions, clouds and faces that patterns take in place of a size."""

from typing import Any

import torch
from torch import Tensor

from ...arguments import check_shape, integers
from ...errors import GraphError

#: Arguments of builders that may be open, beside sizes.
PLACES = ("pos", "faces", "cells")


def counts(batch: object, rows: int, argument: str = "batch") -> dict[int, int]:
    """Number of points of each cloud that is not empty; one cloud without a batch."""
    if batch is None:
        return {0: rows}
    numbers = integers(batch, argument, "(N,)", GraphError).cpu()
    check_shape(numbers, argument, (rows,), "the cloud of each point", GraphError)
    if rows and (bool((numbers.diff() < 0).any()) or int(numbers[0]) < 0):
        raise GraphError(
            f"{argument} must be >= 0 and sorted; sort the points first: order = "
            f"torch.argsort({argument}, stable=True)"
        )
    cloud, count = torch.unique_consecutive(numbers, return_counts=True)
    return dict(zip(cloud.tolist(), count.tolist(), strict=True))


def count_of_clouds(batch: Tensor | None) -> int:
    """B of a sorted batch, empty clouds before the last point included; 1 without a batch."""
    if batch is None:
        return 1
    if len(batch):
        return int(batch[-1]) + 1
    return 0


def no_places(arguments: dict[str, Any]) -> None:
    """Refuse clouds, queries, faces and cells without positions."""
    for name, value in arguments.items():
        if value is not None:
            raise GraphError(f"{name} needs positions, got no pos; pass recipe(pos, batch)")
