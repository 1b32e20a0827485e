"""Triangles and balls as pixels, the nearest on top: exact hidden surfaces for meshes and clouds of any size."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_MOST_AT_ONCE = 4_000_000  # pairs of a pixel and what may cover it


@dataclass(frozen=True)
class Covered:
    """The pixels that something covers.

    Attributes:
        row, column: int64 (P,), pixels; the first row is the lowest.
        item: int64 (P,), the nearest triangle or ball there.
        inside: float64 (P, 3): where in a triangle, as weights of its corners; of a ball its normal there, towards
            the right, up and the eye.
    """

    row: Index
    column: Index
    item: Index
    inside: Array


def triangles(corners: Array, size: tuple[int, int]) -> Covered:
    """Cover pixels by triangles.

    Args:
        corners: (F, 3, 3): x and y in pixels (a pixel's middle is at .5), and nearness, which is larger in front.
        size: (height, width) of the picture in pixels.
    """
    a, b, c = corners.transpose(1, 0, 2)
    area = _cross(b - a, c - a)
    kept = np.flatnonzero(np.abs(area) > 1e-12)
    # The weight of corner i is linear, ``along[:, i] * x + across[:, i] * y + base[:, i]``; all are >= 0 inside.
    starts, sides = np.stack((b, c, a), 1), np.stack((c - b, a - c, b - a), 1)
    size_of = np.where(np.abs(area) > 1e-12, area, 1.0)[:, None]
    along, across = -sides[..., 1] / size_of, sides[..., 0] / size_of
    base = (starts[..., 0] * sides[..., 1] - starts[..., 1] * sides[..., 0]) / size_of
    canvas = _Canvas(size)
    bottom, top = (np.clip(bound(corners[:, :, 1] - 0.5, axis=1), -1, size[0]) for bound in (np.min, np.max))
    for item, y in _spans(kept, np.ceil(bottom).clip(0), np.minimum(top, size[0] - 1)):
        left, right = _row_inside(along[item], (across[item] * (y[:, None] + 0.5)) + base[item], size[1])
        for part, x in _spans(np.arange(len(item)), left, right):
            i, row = item[part], y[part]
            near = sum(
                (along[i, k] * (x + 0.5) + across[i, k] * (row + 0.5) + base[i, k]) * corners[i, k, 2] for k in range(3)
            )
            canvas.put(row, x, near, i)
    row, column, item = canvas.covered()
    inside = along[item] * (column[:, None] + 0.5) + across[item] * (row[:, None] + 0.5) + base[item]
    return Covered(row, column, item, np.clip(inside, 0, 1))


def _row_inside(slope: Array, offset: Array, width: int) -> tuple[Array, Array]:
    """The first and the last pixel of a row at which three weights, ``slope * (x + 0.5) + offset``, are >= 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = -(offset + 1e-9) / slope - 0.5
    left = np.where(slope > 0, zero, np.where((slope == 0) & (offset < -1e-9), np.inf, -np.inf)).max(1)
    right = np.where(slope < 0, zero, np.inf).min(1)
    return np.ceil(left.clip(0, width)), np.floor(right.clip(-1, width - 1))


def balls(centres: Array, radius: Array, size: tuple[int, int]) -> Covered:
    """Cover pixels by balls.

    Args:
        centres: (N, 3): x and y in pixels, and nearness in pixels, which is larger in front.
        radius: (N,) in pixels; a ball smaller than a pixel covers the one that it is in.
        size: (height, width) of the picture in pixels.
    """
    reach = np.maximum(radius, 0.5)
    low, high = (np.clip(centres[:, 1] + sign * reach - 0.5, -1, size[0]) for sign in (-1, 1))
    canvas = _Canvas(size)
    for item, y in _spans(np.arange(len(centres)), np.ceil(low).clip(0), np.minimum(high, size[0] - 1)):
        dy = y + 0.5 - centres[item, 1]
        half = np.maximum(np.sqrt(np.clip(reach[item] ** 2 - dy**2, 0, None)), 0.5)
        left, right = centres[item, 0] - half - 0.5, centres[item, 0] + half - 0.5
        for part, x in _spans(np.arange(len(item)), np.ceil(left).clip(0), np.minimum(right, size[1] - 1)):
            i, row = item[part], y[part]
            out = (x + 0.5 - centres[i, 0]) ** 2 + dy[part] ** 2
            canvas.put(row, x, centres[i, 2] + np.sqrt(np.clip(reach[i] ** 2 - out, 0, None)), i)
    row, column, item = canvas.covered()
    right, up = ((at + 0.5 - centres[item, axis]) / reach[item] for axis, at in enumerate((column, row)))
    front = np.sqrt(np.clip(1 - right**2 - up**2, 0, 1))
    return Covered(row, column, item, np.stack((right, up, front), 1))


class _Canvas:
    """What is nearest at every pixel so far."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.width = size[1]
        self.near = np.full(size[0] * size[1], -np.inf)
        self.item = np.full(size[0] * size[1], -1)

    def put(self, row: Index, column: Index, near: Array, item: Index) -> None:
        pixel = row * self.width + column
        front = np.flatnonzero(near > self.near[pixel])
        front = front[np.argsort(near[front], kind="stable")]  # of several on one pixel the last, nearest, stays
        self.near[pixel[front]], self.item[pixel[front]] = near[front], item[front]

    def covered(self) -> tuple[Index, Index, Index]:
        """Rows, columns and items of the pixels that have one."""
        pixel = np.flatnonzero(self.item >= 0)
        row, column = np.divmod(pixel, self.width)
        return row, column, self.item[pixel]


def _spans(items: Index, first: Array, last: Array) -> Iterator[tuple[Index, Index]]:
    """``(item, n)`` for n from ``first[item]`` to ``last[item]``, some millions of pairs at a time."""
    low = first[items].astype(np.int64)
    count = np.maximum(np.floor(last[items]).astype(np.int64) - low + 1, 0)
    ends = np.cumsum(count)
    start = 0
    while start < len(items):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_AT_ONCE, side="right")))
        many = count[start:stop]
        n = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many) + np.repeat(low[start:stop], many)
        yield np.repeat(items[start:stop], many), n
        start = stop


def _cross(a: Array, b: Array) -> Array:
    """Of the first two axes."""
    product: Array = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    return product
