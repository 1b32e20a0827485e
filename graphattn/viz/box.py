"""The box of a cell that repeats: the lines between its corners."""

import itertools
from typing import Any

import numpy as np
import torch

from .colours import Array


def box_of(shape: Any, graph: Any = None) -> Array | None:
    """Both ends of each side of the box, (sides, 2, d), of a shape with ``cell``, or of a graph in
    one cell; ``None`` for others.

    Vectors of zeros have no side: nothing repeats there.
    """
    cell = None
    if hasattr(shape, "keys"):
        cell = getattr(shape, "cell", None)
    images = getattr(graph, "images", None)
    if cell is None and images is not None and len(images.cells) == 1:
        cell = images.cells[0]
    if not isinstance(cell, torch.Tensor) or cell.dim() != 2 or cell.shape[0] != cell.shape[1]:
        return None
    vectors = cell.detach().cpu().double().numpy()
    vectors = vectors[np.abs(vectors).any(1)]
    if not len(vectors) or not np.isfinite(vectors).all():
        return None
    sides = []
    for axis in range(len(vectors)):
        for corner in itertools.product((0, 1), repeat=len(vectors)):
            if corner[axis] == 0:
                start = np.array(corner) @ vectors
                sides.append((start, start + vectors[axis]))
    return np.array(sides)
