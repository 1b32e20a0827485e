"""Triangles and balls as pixels, nearest on top: exact hidden surfaces at any size."""

import math
from dataclasses import dataclass

import numpy as np

from ..compiled import compiled
from .colours import Array, Index


@dataclass(frozen=True)
class Covered:
    """The pixels that something covers.

    Attributes:
        row, column: int64 (P,), pixels; the first row is the lowest.
        item: int64 (P,), the nearest triangle or ball there.
        inside: float64 (P, 3): where in a triangle, as weights of its corners; of a ball its normal
            there, towards the right, up and the eye.
    """

    row: Index
    column: Index
    item: Index
    inside: Array


def triangles(corners: Array, size: tuple[int, int]) -> Covered:
    """Cover pixels by triangles.

    Args:
        corners: (F, 3, 3): x and y in pixels (a pixel's middle is at .5), and nearness, which is
            larger in front.
        size: (height, width) of the picture in pixels.
    """
    item, inside = _triangles(np.ascontiguousarray(corners, dtype=np.float64), *size)
    row, column = np.nonzero(item >= 0)
    return Covered(row, column, item[row, column], inside[row, column])


def balls(centres: Array, radius: Array, size: tuple[int, int]) -> Covered:
    """Cover pixels by balls.

    Args:
        centres: (N, 3): x and y in pixels, and nearness in pixels, which is larger in front.
        radius: (N,) in pixels; a ball smaller than a pixel covers the one that it is in.
        size: (height, width) of the picture in pixels.
    """
    reach = np.maximum(np.broadcast_to(radius, len(centres)), 0.5)
    item = _balls(np.ascontiguousarray(centres, dtype=np.float64), reach, *size)
    row, column = np.nonzero(item >= 0)
    item = item[row, column]
    right, up = (
        (at + 0.5 - centres[item, axis]) / reach[item] for axis, at in enumerate((column, row))
    )
    front = np.sqrt(np.clip(1 - right**2 - up**2, 0, 1))
    return Covered(row, column, item, np.stack((right, up, front), 1))


@compiled
def _triangles(corners, height, width):
    near = np.full((height, width), -np.inf)
    item = np.full((height, width), -1)
    inside = np.zeros((height, width, 3))
    for f in range(len(corners)):
        x0 = corners[f, 0, 0]
        x1 = corners[f, 1, 0]
        x2 = corners[f, 2, 0]
        y0 = corners[f, 0, 1]
        y1 = corners[f, 1, 1]
        y2 = corners[f, 2, 1]
        area = (x1 - x0) * (y2 - y0) - (y1 - y0) * (x2 - x0)
        if not abs(area) > 1e-12:
            continue
        left = max(0.0, min(x0, x1, x2) - 0.5)
        right = min(width - 1.0, max(x0, x1, x2) - 0.5)
        low = max(0.0, min(y0, y1, y2) - 0.5)
        high = min(height - 1.0, max(y0, y1, y2) - 0.5)
        for row in range(math.ceil(low), math.floor(high) + 1):
            for column in range(math.ceil(left), math.floor(right) + 1):
                px = column + 0.5
                py = row + 0.5
                a = ((x1 - px) * (y2 - py) - (y1 - py) * (x2 - px)) / area
                b = ((x2 - px) * (y0 - py) - (y2 - py) * (x0 - px)) / area
                c = 1 - a - b
                depth = a * corners[f, 0, 2] + b * corners[f, 1, 2] + c * corners[f, 2, 2]
                if min(a, b, c) >= -1e-9 and depth > near[row, column]:
                    near[row, column] = depth
                    item[row, column] = f
                    inside[row, column, 0] = a
                    inside[row, column, 1] = b
                    inside[row, column, 2] = c
    return item, inside


@compiled
def _balls(centres, reach, height, width):
    near = np.full((height, width), -np.inf)
    item = np.full((height, width), -1)
    for i in range(len(centres)):
        x = centres[i, 0]
        y = centres[i, 1]
        r = reach[i]
        low = max(0.0, y - r - 0.5)
        high = min(height - 1.0, y + r - 0.5)
        for row in range(math.ceil(low), math.floor(high) + 1):
            half = max(math.sqrt(max(r**2 - (row + 0.5 - y) ** 2, 0.0)), 0.5)
            left = max(0.0, x - half - 0.5)
            right = min(width - 1.0, x + half - 0.5)
            for column in range(math.ceil(left), math.floor(right) + 1):
                out = (column + 0.5 - x) ** 2 + (row + 0.5 - y) ** 2
                depth = centres[i, 2] + math.sqrt(max(r**2 - out, 0.0))
                if depth > near[row, column]:
                    near[row, column] = depth
                    item[row, column] = i
    return item
