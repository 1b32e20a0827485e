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

from ..errors import LoaderError
from ..graphs import grid_sample
from ..shapes import Shape
from .data import Prepared
from .inputs import Inputs, rows_of

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
        inputs: Of the model: ``grid``, ``block``, ``upward``.
        vote: Grids and blocks of another vote start elsewhere.
    """

    def __init__(self, folder: Any, numbers: list[int], inputs: Inputs, vote: int = 0) -> None:
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
            wide = float((pos.amax(0) - pos.amin(0)).max())
            if wide > CELLS * inputs.grid:
                fix = "a file without the points that lie far away, or a larger grid"
                raise LoaderError(
                    f"{name}: expected at most {CELLS:,} cells in a row, got {wide:g} long. Try: "
                    f"{fix}."
                )
            sample = grid_sample(pos + shift * inputs.grid, inputs.grid)
            kept = sample.kept
            if wide < inputs.grid or len(kept) < 2:
                got = f"grid={inputs.grid}, and {wide:.3g} from end to end"
                fix = "a smaller grid, in the units of the files"
                raise LoaderError(
                    f"{name}: expected a scan larger than a cell, got {got}. Try: {fix}."
                )
            self._cell[number] = sample.cell
            if inputs.upward:
                self._above[number] = above_ground(pos, inputs.upward, 2 * inputs.grid)
            side = block_of(pos[kept], inputs)
            if side:
                blocks = _blocks(pos[kept], inputs.upward, side, shift)
            else:
                blocks = [torch.arange(len(kept))]
            for block, rows in enumerate(blocks, 1):
                self._rows.append((number, kept[rows]))
                self._names.append(f"{name}, block {block}" if len(blocks) > 1 else str(name))
                self.labels.append(
                    shape.y[kept[rows]] if "y" in shape else torch.full((len(rows),), -1)
                )
        self.sizes = torch.tensor([len(rows) for _, rows in self._rows])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Shape:
        number, rows = self._rows[index]
        shape = self._file(number)
        own = {name: x[rows] for name, x in rows_of(shape, len(shape.pos)).items()}
        if self.up:
            own["above_ground"] = self._above[number][rows]
        return Shape(own)

    def _file(self, number: int) -> Shape:
        """The file of that number; the latest one is kept, as its blocks are read in turn."""
        if self._last[0] != number:
            self._last = number, self.folder[number]
        return self._last[1]

    def name(self, index: int) -> str:
        """The file, and the number of the block if there are several."""
        return self._names[index]

    def spacing(self, index: int) -> float:
        """Of the points of a block's file, before it was thinned."""
        number, _ = self._rows[index]
        if number not in self._spacing:
            self._spacing[number] = spacing(self._file(number).pos)
        return self._spacing[number]

    def stitched(self, answers: list[Tensor]) -> list[Tensor]:
        """Answers for every point of each file: its cell's, averaged over blocks."""
        found = []
        for number in self.numbers:
            size = len(self._cell[number])
            total = answers[0].new_zeros(size, *answers[0].shape[1:])
            many = torch.zeros(size)
            for (own, rows), answer in zip(self._rows, answers, strict=True):
                if own == number:
                    total[rows] += answer
                    many[rows] += 1
            kept = many.nonzero().flatten()
            mean = total[kept] / many[kept].view(-1, *[1] * (total.ndim - 1)).to(total.dtype)
            found.append(mean[self._cell[number]])
        return found


def prepared(
    inputs: Inputs,
    folder: Any,
    numbers: list[int],
    augment: tuple[str, ...] = (),
    like: Prepared | None = None,
    vote: int | None = None,
) -> Prepared:
    """Some shapes of a folder as a model reads them, whole or in blocks.

    Those of a vote are read once.
    """
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
    raise LoaderError(
        f"{name}: expected finite positions (N, 3), N > 0, got {got}. Try: repair it."
    )


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
    known = np.isfinite(low)
    tilted = (
        np.stack((*np.indices(low.shape), np.ones(low.shape)), -1)
        @ np.linalg.lstsq(np.c_[np.argwhere(known), np.ones(known.sum())], low[known])[0]
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
    own = place.floor()
    sides = [column.unique() for column in own.T]
    occupied = _numbered(own, sides).unique()
    pairs = []
    # a point is in its own block, and in the next ones near a side
    for step in product((-1, 0, 1), repeat=len(axes)):
        cell = own + torch.tensor(step)
        near = ((place >= cell - _MARGIN) & (place < cell + 1 + _MARGIN)).all(1).nonzero().flatten()
        wanted = _numbered(cell[near], sides)
        block = torch.searchsorted(occupied, wanted).clamp(max=len(occupied) - 1)
        pairs.append(torch.stack((block, near))[:, occupied[block] == wanted])
    block, row = torch.cat(pairs, 1)
    key = (block * len(pos) + row).unique()  # far from 0 a cell and the next are one number
    rows = list((key % len(pos)).split(torch.bincount(key // len(pos)).tolist()))
    tree = None
    for number, found in enumerate(rows):
        if len(found) < _FEW:
            if tree is None:
                tree = cKDTree(pos.numpy())
            more = torch.from_numpy(
                tree.query(pos[found].mean(0).numpy(), min(_FEW, len(pos)))[1]
            ).flatten()
            rows[number] = torch.cat((more, found)).unique()
    return rows


def _numbered(cell: Tensor, sides: list[Tensor]) -> Tensor:
    """Cells (N, d) as numbers in lexicographic order; -1 of one that is not in ``sides``."""
    number = torch.zeros(len(cell), dtype=torch.int64)
    known = torch.ones(len(cell), dtype=torch.bool)
    for column, side in zip(cell.T, sides, strict=True):
        at = torch.searchsorted(side, column.contiguous()).clamp(max=len(side) - 1)
        number = number * len(side) + at
        known = known & (side[at] == column)
    return torch.where(known, number, -1)


def spacing(pos: Tensor) -> float:
    """Median distance to the nearest other place, over some 2,000 points; 0 if there is none."""
    from scipy.spatial import cKDTree  # an extra of graphs of points

    places = pos.double().numpy()
    # the build takes longer than the search
    tree = cKDTree(places, balanced_tree=False, compact_nodes=False)
    far = tree.query(places[:: max(1, len(places) // 2000)], 2)[0][:, 1]
    far = far[(far > 0) & np.isfinite(far)]
    if len(far):
        return float(np.median(far))
    return 0.0


def grid_of(folder: Any, numbers: list[int]) -> float:
    """Side of the cells that scans are thinned to: three spacings, less for small scans."""
    sides = []
    for number in numbers[:: max(1, len(numbers) // 8)]:
        pos = _checked(folder[number], folder.name(number))
        side = 3 * spacing(pos)
        if len(pos) < 16 * _THIN:
            least = min(_THIN // 2, 0.9 * len(pos))
            while side and len(grid_sample(pos, side).kept) < least:
                side /= 2
        sides.append(side)
    side = median(sides)
    if not side > 0:
        raise LoaderError(
            f"{folder.name(numbers[0])}: expected points at different places, got all at one. "
            "Try: grid=0."
        )
    return nice(side)


def block_of(kept: Tensor, inputs: Inputs) -> float:
    """Side of the blocks of a thinned scan: the run's, or that of some 8,192 points of a large one.

    0 means one block.
    """
    if inputs.block or len(kept) <= _LARGE:
        return inputs.block
    axes = [axis for axis, name in enumerate(AXES) if name != inputs.upward]
    wide = 8 * inputs.grid
    cell = (kept[:, axes] / wide).floor()
    occupied = len(_numbered(cell, [column.unique() for column in cell.T]).unique())
    return nice(wide * (_THIN * occupied / len(kept)) ** (1 / len(axes)))


def nice(side: float) -> float:
    """The nearest of 1, 2 and 5 times a power of ten.

    Example:
        >>> nice(0.39), nice(13.0)
        (0.5, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(side))
    best = min((1, 2, 5, 10), key=lambda step: abs(math.log(step * power / side)))
    return float(f"{best * power:.3g}")
