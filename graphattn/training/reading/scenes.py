"""Scenes: large scans that are thinned to a grid, cut into blocks, and stitched together again.

A scene has an axis that points up and a scale of its own: positions are in units of the grid's
cells, heights are above the local ground.
"""

import math
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...graphs import voxel_downsample
from ...io.reading import fault
from ...shapes import Shape
from .data import Prepared
from .inputs import ShapeInputs, rows_of
from .simulations import Windows

AXES = ("x", "y", "z")
MANY = 4096  # mean number of points from which clouds are scenes, if nothing else is said
# points that a scan is thinned to, if 3 spacings are enough for that; points of a block
_THIN = 8192
_LARGE = 1 << 15  # points of a thinned scan from which it is cut
_MARGIN = 0.125  # of a block's side, on each side, that it shares with the next ones
_FEW = 32  # points that a block has at least
CELLS = 1 << 30  # of a scan from end to end
_WINDOW = 21  # cells of the ground: what is narrower stands on it


class Scenes:
    """The blocks of some shapes of a folder, each a shape, in the place of the folder.

    Args:
        folder: Shapes by number, each with a ``name``.
        numbers: Which of them.
        inputs: Inputs of the model, of which ``grid``, ``block`` and ``upward`` are read.
        vote: Grids and blocks of another vote start elsewhere.
    """

    def __init__(self, folder: Any, numbers: list[int], inputs: ShapeInputs, vote: int = 0) -> None:
        self.folder = folder
        self.numbers = numbers
        self.up = inputs.upward
        self._above: dict[int, Tensor] = {}
        self._cell: dict[int, Tensor] = {}
        self._spacing: dict[int, float] = {}
        self._last: tuple[int, Any] = (-1, None)
        self._rows: list[tuple[int, Tensor]] = []  # number of the file and rows of each block
        self._names: list[str] = []
        self.labels: list[Tensor] = []
        # Roberts' sequence
        shift = torch.tensor([0.755, 0.570, 0.430], dtype=torch.float64) * vote % 1
        for number in numbers:
            shape = folder[number]
            name = folder.name(number)
            pos = _checked(shape, name)
            extent = float((pos.amax(0) - pos.amin(0)).max())
            if extent > CELLS * inputs.grid:
                raise fault(
                    name,
                    f"at most {CELLS:,} cells in a row",
                    f"{extent:g} long",
                    "a file without the points that lie far away, or a larger grid",
                )
            sample = voxel_downsample(pos + shift * inputs.grid, inputs.grid)
            sample_rows = sample.kept
            if extent < inputs.grid or len(sample_rows) < 2:
                raise fault(
                    name,
                    "a scan larger than a cell",
                    f"grid={inputs.grid}, and {extent:.3g} from end to end",
                    "a smaller grid, in the units of the files",
                )
            self._cell[number] = sample.cell
            if inputs.upward:
                self._above[number] = above_ground(pos, inputs.upward, 2 * inputs.grid)
            side = block_of(pos[sample_rows], inputs)
            if side:
                blocks = _blocks(pos[sample_rows], inputs.upward, side, shift)
            else:
                blocks = [torch.arange(len(sample_rows))]
            for block, rows in enumerate(blocks, 1):
                self._rows.append((number, sample_rows[rows]))
                self._names.append(f"{name}, block {block}" if len(blocks) > 1 else str(name))
                self.labels.append(
                    shape.y[sample_rows[rows]] if "y" in shape else torch.full((len(rows),), -1)
                )
        self.sizes = torch.tensor([len(rows) for _, rows in self._rows])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Shape:
        number, rows = self._rows[index]
        shape = self._file(number)
        tensors = {name: x[rows] for name, x in rows_of(shape, len(shape.pos)).items()}
        if self.up:
            tensors["above_ground"] = self._above[number][rows]
        return Shape(tensors)

    def _file(self, number: int) -> Shape:
        """The file of that number; the latest one is kept, as its blocks are read in turn."""
        if self._last[0] != number:
            self._last = number, self.folder[number]
        return self._last[1]

    def name(self, index: int) -> str:
        """The file, and the number of the block if there are several."""
        return self._names[index]

    def spacing(self, index: int) -> float:
        """Spacing of the points of a block's file, before it was thinned."""
        number, _ = self._rows[index]
        if number not in self._spacing:
            self._spacing[number] = spacing(self._file(number).pos)
        return self._spacing[number]

    def stitched(self, answers: list[Tensor]) -> list[Tensor]:
        """Answers for every point of each file: its cell's, averaged over blocks."""
        file_answers = []
        for number in self.numbers:
            size = len(self._cell[number])
            total = answers[0].new_zeros(size, *answers[0].shape[1:])
            counts = torch.zeros(size)
            for (file_number, rows), answer in zip(self._rows, answers, strict=True):
                if file_number == number:
                    total[rows] += answer
                    counts[rows] += 1
            covered = counts.nonzero().flatten()
            mean = total[covered] / counts[covered].view(-1, *[1] * (total.ndim - 1)).to(
                total.dtype
            )
            file_answers.append(mean[self._cell[number]])
        return file_answers


def prepared(
    inputs: ShapeInputs,
    folder: Any,
    numbers: list[int],
    augment: tuple[str, ...] = (),
    like: Prepared | None = None,
    vote: int | None = None,
) -> Prepared:
    """Some shapes of a folder as a model reads them, whole or in blocks.

    Those of a vote are read once. Trajectories are whole with ``like``, else windows to train on.
    """
    if inputs.simulation is not None:
        is_whole = like is not None
        windows = Windows(folder, numbers, inputs.simulation, inputs.levels_of, is_whole)
        return Prepared(windows, list(range(len(windows))), inputs)
    if not inputs.grid:
        return Prepared(folder, numbers, inputs, augment, like)
    scenes = Scenes(folder, numbers, inputs, vote or 0)
    data = Prepared(scenes, list(range(len(scenes))), inputs, augment)
    if vote is not None:
        data.keep_nothing()
    return data


def _checked(shape: Any, name: str) -> Tensor:
    pos: Tensor = shape.pos.double()
    is_finite = bool(torch.isfinite(pos).all())
    is_shaped = len(pos) > 0 and pos.shape[1:] == (3,)
    if is_finite and is_shaped:
        return pos
    got = "NaN or infinity"
    if is_finite:
        got = f"{tuple(pos.shape)}"
    raise fault(name, "finite positions (N, 3), N > 0", got, "repair it")


def above_ground(pos: Tensor, up: str, side: float) -> Tensor:
    """Heights (N,) above the local ground, float32.

    The ground is the lowest point of each cell of that side, without what is narrower than 21 cells
    (a morphological opening of what lies above or below their common plane), and linear between the
    cells.

    Source: Zhang et al. 2003, "A progressive morphological filter", with one window.
    """
    from scipy import ndimage  # needed for training alone

    axis = AXES.index(up)
    z = pos[:, axis].double().numpy()
    plane = np.delete(pos.double().numpy(), axis, 1)
    plane = plane - plane.min(0)
    side = max(side, float(plane.max()) / 4000)
    cell = np.floor(plane / side).astype(int)
    low = np.full(cell.max(0) + 1, np.inf)
    np.minimum.at(low, tuple(cell.T), z)
    occupied = np.isfinite(low)
    tilted = (
        np.stack((*np.indices(low.shape), np.ones(low.shape)), -1)
        @ np.linalg.lstsq(np.c_[np.argwhere(occupied), np.ones(occupied.sum())], low[occupied])[0]
    )
    ground = ndimage.minimum_filter(low - tilted, _WINDOW, mode="constant", cval=np.inf)
    ground[np.isinf(ground)] = -np.inf
    ground = ndimage.maximum_filter(ground, _WINDOW, mode="constant", cval=-np.inf)
    under = ndimage.map_coordinates(ground + tilted, plane.T / side - 0.5, order=1, mode="nearest")
    return torch.from_numpy(z - under).float()


def _blocks(pos: Tensor, up: str, side: float, shift: Tensor) -> list[Tensor]:
    """Rows of overlapping blocks, squares across ``up`` or cubes, which cover all points."""
    from scipy.spatial import cKDTree

    axes = [axis for axis, name in enumerate(AXES) if name != up]
    place = (pos[:, axes] - pos[:, axes].amin(0)) / side + shift[axes]
    home_cell = place.floor()
    sides = [column.unique() for column in home_cell.T]
    occupied = _numbered(home_cell, sides).unique()
    pairs = []
    # a point is in its own block, and in the next ones near a side
    for step in product((-1, 0, 1), repeat=len(axes)):
        cell = home_cell + torch.tensor(step)
        near = ((place >= cell - _MARGIN) & (place < cell + 1 + _MARGIN)).all(1).nonzero().flatten()
        cell_ids = _numbered(cell[near], sides)
        block = torch.searchsorted(occupied, cell_ids).clamp(max=len(occupied) - 1)
        pairs.append(torch.stack((block, near))[:, occupied[block] == cell_ids])
    block, row = torch.cat(pairs, 1)
    key = (block * len(pos) + row).unique()  # far from 0 a cell and the next are one number
    rows = list((key % len(pos)).split(torch.bincount(key // len(pos)).tolist()))
    tree = None
    for number, block_rows in enumerate(rows):
        if len(block_rows) < _FEW:
            if tree is None:
                tree = cKDTree(pos.numpy())
            more = torch.from_numpy(
                tree.query(pos[block_rows].mean(0).numpy(), min(_FEW, len(pos)))[1]
            ).flatten()
            rows[number] = torch.cat((more, block_rows)).unique()
    return rows


def _numbered(cell: Tensor, sides: list[Tensor]) -> Tensor:
    """Cells (N, d) as numbers in lexicographic order; -1 of one that is not in ``sides``."""
    number = torch.zeros(len(cell), dtype=torch.int64)
    is_listed = torch.ones(len(cell), dtype=torch.bool)
    for column, side in zip(cell.T, sides, strict=True):
        at = torch.searchsorted(side, column.contiguous()).clamp(max=len(side) - 1)
        number = number * len(side) + at
        is_listed = is_listed & (side[at] == column)
    return torch.where(is_listed, number, -1)


def spacing(pos: Tensor) -> float:
    """Median distance to the nearest other place, over some 2,000 points; 0 if there is none."""
    from scipy.spatial import cKDTree  # an extra of graphs of points

    places = pos.double().numpy()
    # the build takes longer than the search
    tree = cKDTree(places, balanced_tree=False, compact_nodes=False)
    distances = tree.query(places[:: max(1, len(places) // 2000)], 2)[0][:, 1]
    distances = distances[(distances > 0) & np.isfinite(distances)]
    if len(distances):
        return float(np.median(distances))
    return 0.0


def grid_of(folder: Any, numbers: list[int]) -> float:
    """Side of the cells that scans are thinned to: three spacings, less for small scans."""
    sides = []
    for number in numbers[:: max(1, len(numbers) // 8)]:
        pos = _checked(folder[number], folder.name(number))
        side = 3 * spacing(pos)
        if len(pos) < 16 * _THIN:
            least = min(_THIN // 2, 0.9 * len(pos))
            while side and len(voxel_downsample(pos, side).kept) < least:
                side /= 2
        sides.append(side)
    side = median(sides)
    if not side > 0:
        raise fault(folder.name(numbers[0]), "points at different places", "all at one", "grid=0")
    return nice(side)


def block_of(pos: Tensor, inputs: ShapeInputs) -> float:
    """Side of the blocks of a thinned scan: the run's, or that of some 8,192 points of a large one.

    0 means one block.
    """
    if inputs.block or len(pos) <= _LARGE:
        return inputs.block
    axes = [axis for axis, name in enumerate(AXES) if name != inputs.upward]
    width = 8 * inputs.grid
    cell = (pos[:, axes] / width).floor()
    occupied = len(_numbered(cell, [column.unique() for column in cell.T]).unique())
    return nice(width * (_THIN * occupied / len(pos)) ** (1 / len(axes)))


def nice(side: float) -> float:
    """The nearest of 1, 2 and 5 times a power of ten.

    Example:
        >>> nice(0.39), nice(13.0)
        (0.5, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(side))
    best = min((1, 2, 5, 10), key=lambda step: abs(math.log(step * power / side)))
    return float(f"{best * power:.3g}")
