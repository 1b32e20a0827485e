"""Images of sources in a cell that repeats: which copy of its source each edge reads."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..arguments import check_finite, check_range, check_shape, integers, table
from ..errors import GraphAttnError, GraphError


@dataclass(frozen=True, eq=False)
class Images:
    """The image that each edge reads: its source, moved by ``offsets`` lattice vectors.

    Args:
        offsets: (E, d) int64, in the order of the edges.
        cells: (C, d, d) float64; the rows of a cell are its lattice vectors, in the units of the
            positions.
        cell_of_edge: (E,) int64, the cell of each edge; ``None`` if all edges have the first.
    """

    offsets: Tensor
    cells: Tensor
    cell_of_edge: Tensor | None = None

    def at(self, edges: Tensor) -> "Images":
        """The images of some edges, by numbers or bool (E,)."""
        cell_of_edge = self.cell_of_edge
        if cell_of_edge is not None:
            cell_of_edge = cell_of_edge[edges]
        return Images(self.offsets[edges], self.cells, cell_of_edge)

    def flip(self) -> "Images":
        """The images of the reversed edges: the former target, seen from its source."""
        return Images(-self.offsets, self.cells, self.cell_of_edge)

    def to(self, device: torch.device) -> "Images":
        """Copy on another device."""
        cell_of_edge = self.cell_of_edge
        if cell_of_edge is not None:
            cell_of_edge = cell_of_edge.to(device)
        return Images(self.offsets.to(device), self.cells.to(device), cell_of_edge)

    def extended(self, number: int) -> "Images":
        """The images of the edges and of ``number`` more, which read the source itself."""
        offsets = self.offsets.new_zeros(number, self.offsets.shape[1])
        cell_of_edge = self.cell_of_edge
        if cell_of_edge is not None:
            cell_of_edge = torch.cat((cell_of_edge, cell_of_edge.new_zeros(number)))
        return Images(torch.cat((self.offsets, offsets)), self.cells, cell_of_edge)

    def shifts(self) -> Tensor:
        """(E, d) float64: what is added to the position of each edge's source."""
        return moved(self.offsets, self.cells, self.cell_of_edge)

    def keys(self, key: Tensor) -> Tensor:
        """int64 (E, 1 + d + 1), sorted: numbers of the pairs, ``key`` (E,), offsets and cells."""
        cell = self.cell_of_edge
        if cell is None:
            cell = torch.zeros_like(key)
        columns = torch.cat((key[:, None], self.offsets, cell[:, None]), 1).cpu()
        return columns[lexicographic(columns)]


def moved(offsets: Tensor, cells: Tensor, cell_of_edge: Tensor | None) -> Tensor:
    """``offsets @ cell`` of each edge, (E, d), in the dtype of the cells; differentiable.

    Summed axis by axis: the bits do not depend on the device, and those of ``-offsets`` are the
    same but for the sign.
    """
    steps = offsets.to(cells.dtype)
    total = torch.zeros_like(steps)
    for axis in range(steps.shape[1]):
        vectors = cells[:, axis]
        if cell_of_edge is None:
            along = vectors[0]
        else:
            along = vectors.index_select(0, cell_of_edge)
        total = total + steps[:, axis, None] * along
    return total


def lexicographic(columns: Tensor) -> Tensor:
    """The order (n,) of rows of integers (n, k) on the CPU by the first column, the second, ..."""
    return torch.from_numpy(np.lexsort(columns.numpy().T[::-1]))


def joined_images(parts: Sequence["tuple[Images | None, int]"], device: torch.device) -> Images:
    """The images of graphs side by side, each with its number of edges; some have none."""
    present = [images for images, _ in parts if images is not None]
    axes = {images.offsets.shape[1] for images in present}
    if len(axes) > 1:
        raise GraphError(f"graphs side by side must have cells of as many axes, got {sorted(axes)}")
    (width,) = axes
    offsets = []
    numbers = []
    first = 0
    for images, num_edges in parts:
        number = torch.zeros(num_edges, dtype=torch.int64, device=device)
        if images is None:
            offsets.append(torch.zeros(num_edges, width, dtype=torch.int64, device=device))
            numbers.append(number)
            continue
        if images.cell_of_edge is not None:
            number = images.cell_of_edge
        offsets.append(images.offsets)
        numbers.append(number + first)
        first += len(images.cells)
    cells = torch.cat([images.cells for images in present])
    if len(cells) == 1:
        return Images(torch.cat(offsets), cells)
    return Images(torch.cat(offsets), cells, torch.cat(numbers))


# --- what callers give


def checked_cell(
    cell: object,
    axes: int | None,
    error: type[GraphAttnError] = GraphError,
) -> Tensor:
    """Lattice vectors (d, d), or (C, d, d) of several cells, as real numbers; d is ``axes``."""
    expected = "lattice vectors as rows, (d, d), or (C, d, d) of several cells"
    if not isinstance(cell, Tensor):
        with suppress(TypeError, ValueError):  # which the next line reports
            cell = np.array(cell, np.float64)  # a list, an array, an ASE Cell
    vectors = table(cell, "cell", expected, error)
    if not vectors.is_floating_point():
        vectors = vectors.to(torch.float64)
    shape = tuple(vectors.shape)
    if vectors.dim() not in (2, 3) or shape[-1] == 0 or shape[-2] != shape[-1]:
        raise error(f"cell must be {expected}, got {shape}")
    if axes is not None:
        hint = "as many axes as the positions: add those that do not repeat, and name them in pbc"
        check_shape(vectors, "cell", (..., axes), hint, error)
    check_finite(vectors, "cell", error=error)
    return vectors


def checked_images(
    offsets: object,
    cell: object,
    batch: object,
    target: Tensor,
    num_targets: int,
) -> Images | None:
    """The images of a caller's edges into ``target`` (E,), on its device; None without offsets."""
    if offsets is None:
        for name, value in (("cell", cell), ("batch", batch)):
            if value is not None:
                raise GraphError(
                    f"{name} is for edges with image offsets, got no offsets; make the edges with "
                    "radius(pos, r, cell=cell), or leave it out"
                )
        return None
    cells = checked_cell(cell, None)
    number_of_edge = None
    if cells.dim() == 3 and len(cells) > 1:
        numbers = integers(batch, "batch", "(N,), the cell of each target", GraphError)
        check_shape(numbers, "batch", (num_targets,), "the cell of each target", GraphError)
        number_of_edge = numbers.to(target.device)[target]
    return images_of_edges(offsets, cell, number_of_edge, target)


def images_of_edges(
    offsets: object,
    cell: object,
    cell_of_edge: Tensor | None,
    target: Tensor,
) -> Images:
    """Checked images of the edges into ``target`` (E,), on its device."""
    steps = integers(offsets, "offsets", "(E, d), lattice vectors of each edge", GraphError)
    cells = checked_cell(cell, None).detach().to(torch.float64)
    axes = cells.shape[-1]
    check_shape(steps, "offsets", (target.numel(), axes), "a row for each edge", GraphError)
    steps = steps.to(target.device, copy=True)
    cells = cells.to(target.device, copy=True)
    if cells.dim() == 2:
        cells = cells[None]
    if cell_of_edge is None or len(cells) == 1:
        return Images(steps, cells)
    numbers = integers(cell_of_edge, "batch", "the cell of each target", GraphError)
    check_range(numbers, "batch", len(cells), ", the number of cells", GraphError)
    return Images(steps, cells, numbers.to(target.device))
