"""Nearest neighbours of more points than fit in memory with their edges, part by part."""

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import whole
from ..errors import GraphError
from ..graph.sort import offsets
from ..graphs.points.clouds import coordinates, refuse_extreme
from ..graphs.points.search.balls import squared_distance
from ..graphs.points.search.nearest import nearest, self_first
from ..io.arrays import map_array
from ..io.reading import PathLike
from .files import EdgeFiles, empty_folder, write
from .own import OwnEdges
from .partition import index_dtype, rcb

_USUAL = 100_000  # points of a part


def knn_parts(pos: Any, k: int, folder: PathLike, *, parts: int | None = None) -> EdgeFiles:
    """The edges of ``ga.graphs.knn(pos, k)``, written into a folder in parts of near points.

    A part's points search their own part, and then those parts that their balls reach. In memory
    are one part and, while points are bisected, some 15 bytes for each: 0.8 GiB for 10^7 points of
    16 neighbours, whose files take 1.4 GB, and 1.7 GiB for 10^8.

    Args:
        pos: Coordinates (N, d) of points, an array or the path of a .npy file, which is mapped and
            not loaded.
        k: Sources of every target.
        folder: A new or empty folder.
        parts: Number of parts, by recursive coordinate bisection; by default of some 100,000
            points.

    Raises:
        GraphError: If there are too few points, or a coordinate is not finite.
        OptionError: If the folder is not empty.
        LoaderError: If a file cannot be written.

    Example:
        >>> import tempfile, torch, graphattn as ga
        >>> pos = torch.rand(500, 3)
        >>> ga.distributed.knn_parts(pos, 4, tempfile.mkdtemp(), parts=3)
        EdgeFiles(500 sources -> 500 targets, 2000 edges, in 3 parts)
    """
    if isinstance(pos, str | os.PathLike):
        points = map_array(pos)
    else:
        if isinstance(pos, Tensor):
            points = coordinates(pos, "pos").cpu().numpy()
        else:
            points = np.asarray(pos)
    k = whole(k, "k", 1)
    if points.ndim != 2 or not points.shape[1] or points.dtype.kind != "f":
        raise GraphError(
            f"pos must be floating point (N, d) with d >= 1, got {points.shape} of {points.dtype}"
        )
    if len(points) <= k:
        raise GraphError(f"k={k} needs at least {k + 1} points, got {len(points)}; use a smaller k")
    if parts is None:
        num_parts = -(-len(points) // _USUAL)
    else:
        num_parts = whole(parts, "parts", 1, below=10**5)
    slices = (points[i : i + _USUAL].astype(np.float64) for i in range(0, len(points), _USUAL))
    refuse_extreme(map(torch.from_numpy, slices), "pos")
    path = empty_folder(folder)
    with tempfile.TemporaryFile(dir=path.parent) as file:
        edges = _Points(points, min(num_parts, len(points)), file).edges(k)
        return write(path, (len(points), len(points)), edges)


class _Points:
    """Positions by part, in a file; and the box of each part."""

    def __init__(self, pos: np.ndarray, parts: int, file: Any) -> None:
        self.file = file
        self.axes = pos.shape[1]
        part = rcb(pos, parts).numpy()
        self.first = np.concatenate(([0], np.cumsum(np.bincount(part, minlength=parts))))
        self.order = np.argsort(part, kind="stable").astype(index_dtype(len(pos)))
        self.boxes = np.empty((parts, 2, self.axes))
        self.dtype = pos.dtype
        for p in range(parts):
            points = np.asarray(pos[self.ids(p)])
            self.boxes[p] = points.min(0), points.max(0)
            points.tofile(file)

    def ids(self, part: int) -> np.ndarray:
        """The numbers of a part's points, ascending."""
        return self.order[self.first[part] : self.first[part + 1]]

    def places(self, part: int) -> Tensor:
        """Their positions, float64 (n, d)."""
        first, last = self.first[part : part + 2]
        start = int(first) * self.axes * self.dtype.itemsize
        self.file.seek(start)
        values = np.fromfile(self.file, self.dtype, int(last - first) * self.axes)
        return torch.from_numpy(values.reshape(-1, self.axes).astype(np.float64))

    def edges(self, k: int) -> Iterator[tuple[Tensor, OwnEdges]]:
        """Targets of each part, and the edges into them by target and then by source."""
        for part in range(len(self.boxes)):
            targets = torch.from_numpy(self.ids(part).astype(np.int64))
            neighbours = self_first(self._nearest(part, targets, k + 1), targets)[:, 1:]
            source, order = torch.sort(neighbours, 1)
            own_edges = (
                offsets(torch.full((targets.numel(),), k)),
                source.flatten(),
                (targets[:, None] * k + order).flatten(),
            )
            yield targets, OwnEdges(*own_edges)

    def _nearest(self, part: int, ids: Tensor, count: int) -> Tensor:
        """The nearest of all points to a part's, by (squared distance, index): int64 (n, count)."""
        points = self.places(part)
        best = _Best(points, ids, count)
        best.search(slice(None), points, ids)
        gap = np.maximum(
            self.boxes[:, 0] - self.boxes[part, 1], self.boxes[part, 0] - self.boxes[:, 1]
        ).clip(0)
        far = (gap**2).sum(1)
        for other in np.argsort(far, kind="stable"):  # near parts first, so that balls shrink
            if far[other] > float(best.squared[:, -1].max()) * (1 + 1e-9):
                break
            if other != part:
                low, high = torch.from_numpy(self.boxes[other])
                reached = _outside(points, low, high) <= best.squared[:, -1] * (1 + 1e-9)
                if bool(reached.any()):
                    self._search(best, torch.nonzero(reached).flatten(), int(other))
        return best.ids

    def _search(self, best: "_Best", rows: Tensor, other: int) -> None:
        """Search the points of another part that lie in the box of some balls."""
        reach = (best.squared[rows, -1:] * (1 + 1e-9)).sqrt()
        centres = best.centres[rows]
        low = (centres - reach).amin(0)
        high = (centres + reach).amax(0)
        there = self.places(other)
        ids = self.ids(other)
        inside = torch.nonzero(((there >= low) & (there <= high)).all(1)).flatten()
        if inside.numel():
            best.search(rows, there[inside], torch.from_numpy(ids[inside.numpy()].astype(np.int64)))


class _Best:
    """The nearest points so far of some targets, by (squared distance, number)."""

    def __init__(self, centres: Tensor, ids: Tensor, count: int) -> None:
        self.centres = centres
        self.count = count
        self.squared = torch.full((len(centres), count), torch.inf, dtype=torch.float64)
        self.ids = torch.full((len(centres), count), torch.iinfo(torch.int64).max)

    def search(self, rows: Any, points: Tensor, ids: Tensor) -> None:
        """Merge points of ascending numbers."""
        centres = self.centres[rows]
        near = nearest(points, centres, min(self.count, len(points)))
        squared = squared_distance(points, near, centres, torch.arange(len(centres))[:, None])
        numbers, order = torch.sort(torch.cat((self.ids[rows], ids[near]), 1), 1)
        squared = torch.gather(torch.cat((self.squared[rows], squared), 1), 1, order)
        squared, order = torch.sort(squared, dim=1, stable=True)
        self.squared[rows] = squared[:, : self.count]
        self.ids[rows] = torch.gather(numbers, 1, order)[:, : self.count]


def _outside(points: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The squared distance of each point to a box."""
    return torch.maximum(low - points, points - high).clamp(min=0).square().sum(1)
