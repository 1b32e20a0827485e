"""Farthest points block by block, in Numba."""

import numpy as np

from ....compiled import compiled


@compiled
def choose(place, index, row, count, start):
    """Choices of farthest point sampling, int64 (count,), of points in blocks with bounding boxes.

    Rounding is monotonic, so no point of a box has a smaller computed distance than the box:
    nothing is missed.

    Args:
        place: float64 (axes, blocks, size), coordinates.
        index: int64 (blocks, size), the number of each point.
        row: int64 (points,), where each point stands among the ``blocks * size``; those beyond are
            padding.
        count: Points to choose, at most as many as there are.
        start: The first choice.
    """
    axes, blocks, size = place.shape
    low = np.empty((blocks, axes))
    high = np.empty((blocks, axes))
    for b in range(blocks):
        for a in range(axes):
            low[b, a] = place[a, b].min()
            high[b, a] = place[a, b].max()
    least = np.full((blocks, size), np.inf)
    least.reshape(-1)[len(row) :] = -1.0  # chosen points and padding
    farthest = np.full(blocks, np.inf)
    which = np.zeros(blocks, np.int64)
    chosen = np.empty(count, np.int64)
    point = np.empty(axes)
    current = start
    for i in range(count):
        chosen[i] = current
        block, slot = divmod(row[current], size)
        least[block, slot] = -1.0
        for a in range(axes):
            point[a] = place[a, block, slot]
        best = -np.inf
        current = 0
        for b in range(blocks):
            box = 0.0
            for a in range(axes):
                gap = max(low[b, a] - point[a], point[a] - high[b, a], 0.0)
                box += gap * gap
            if box <= farthest[b]:
                farthest[b] = -np.inf
                which[b] = 0
                for j in range(size):
                    squared = 0.0
                    for a in range(axes):
                        difference = place[a, b, j] - point[a]
                        squared += difference * difference
                    new = min(least[b, j], squared)
                    least[b, j] = new
                    if new > farthest[b] or (new == farthest[b] and index[b, j] < which[b]):
                        farthest[b] = new
                        which[b] = index[b, j]
            if farthest[b] > best or (farthest[b] == best and which[b] < current):
                best = farthest[b]
                current = which[b]
    return chosen
