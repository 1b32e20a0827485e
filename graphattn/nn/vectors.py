"""Products, lengths and angles of vectors, with gradients of 0 where they are undefined."""

import torch
from torch import Tensor


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Products (..., 1) of vectors, an axis at a time: torch sums rows of three numbers slowly."""
    if a.shape[-1] > 8:
        return (a * b).sum(-1, keepdim=True)
    return sum(x * y for x, y in zip(a.split(1, -1), b.split(1, -1), strict=True))


def length_of(x: Tensor) -> Tensor:
    """Lengths (..., 1), with a gradient of 0 at 0."""
    squared = dot(x, x)
    return squared.masked_fill(squared == 0, 1.0).sqrt() * (squared != 0)


def angle_between(a: Tensor, b: Tensor) -> Tensor:
    """Angles between vectors (..., 3), in [0, pi]; 0 if one is 0."""
    (a1, a2, a3), (b1, b2, b3) = a.split(1, -1), b.split(1, -1)
    squared = (a2 * b3 - a3 * b2) ** 2 + (a3 * b1 - a1 * b3) ** 2 + (a1 * b2 - a2 * b1) ** 2
    across = squared.masked_fill(squared == 0, 1.0).sqrt() * (squared != 0)
    along = dot(a, b)
    return torch.atan2(across, along.masked_fill((across == 0) & (along == 0), 1.0))


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosines (..., 1) of the angles between vectors; 1 if one is 0."""
    lengths = length_of(a) * length_of(b)
    nothing = lengths == 0
    return (
        (dot(a, b) / lengths.masked_fill(nothing, 1.0)).masked_fill(nothing, 1.0).clamp(-1.0, 1.0)
    )
