"""Hierarchies of cells of a grid: patches along curves, and neighbours for convolutions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ...arguments import check_range, check_shape, several
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.deferred.places import count_of_clouds
from ...graph.listed import listed
from ..arguments import integers, tensor, whole
from .clouds import coordinates, length, lengths
from .clusters import clusters
from .curve_keys import Curve
from .hierarchy import CellNeighbours, Hierarchy, Level, means
from .patches import curve_patches
from .search.reach import warn_of_coarse_cells

_MOST = 1 << 62


def serialized_hierarchy(
    pos: Tensor,
    batch: Tensor | None = None,
    *,
    cell: float | None = None,
    cells: Tensor | None = None,
    levels: int = 5,
    stride: int = 2,
    patch: int = 1024,
    curves: Sequence[Curve] = ("z", "z-trans", "hilbert", "hilbert-trans"),
    bits: int = 16,
    shuffle: bool = False,
) -> Hierarchy:
    """Levels of Point Transformer V3: cells that double in size, along several curves.

    A level's graphs are :func:`curve_patches` of its cells, one for each curve; a coarser level has
    a point in every cell that holds points of the finer level, at their mean. ``cells`` are the
    cells of a level's points, and ``near`` the cells around each, 3 along each axis; for the finest
    level 5 as well.

    Args:
        pos: (N, 3) positions, one in each cell: ``pos[voxel_downsample(pos, cell).kept]``.
        batch: (N,) the cloud of every point, sorted.
        cell: Side of the finest level's cells in the units of ``pos``. Cells are those of
            :func:`~graphattn.shapes.voxel_ids`, counted from the lowest that each cloud has a point
            in.
        cells: The cells instead of ``cell``: int64 (N, 3), at least 0, Pointcept's ``grid_coord``.
        levels: Number of levels, the finest included.
        stride: Ratio of the sides of cells of consecutive levels, a power of 2.
        patch: Points of a patch.
        curves: Curves of the patches, for layers in turn.
        bits: Bits of the finest level's cells, on which Hilbert's curves depend. The published code
            uses the bits of the batch, ``int(cells.max()).bit_length()``; a fixed number keeps
            clouds independent.
        shuffle: Shuffle the order of the curves at every level, as in training.
    Returns:
        A :class:`Hierarchy`, the finest level first.
    Raises:
        GraphError: If two points share a cell, a cell does not fit ``bits``, or neither or both of
            ``cell`` and ``cells`` are given.
    Source:
        Wu et al. 2024 (Point Transformer V3); patches as in its path with FlashAttention, separate
        for each cloud.
    Example:
        >>> pos = torch.cartesian_prod(*[torch.arange(4.0)] * 3)
        >>> shape = serialized_hierarchy(pos, cell=1.0, levels=2, patch=16, curves=("z", "hilbert"))
        >>> shape, shape.levels[1].graphs[0]
        (Hierarchy(64 -> 8 points, 1 cloud), AttentionGraph(curve_patches(patch=16, bits=15, shrink='cloud'): 8 nodes, \
64 edges, density 1, rule))
    """
    step = whole(stride, "stride", 2)
    levels = whole(levels, "levels", 1)
    bits = whole(bits, "bits", 1)
    if step & (step - 1):
        raise GraphError(f"stride must be a power of 2, got {step}")
    names = several(curves, "curves", "must be words for curves", GraphError)
    grid = _grid(pos, batch, cell, cells)
    number = torch.repeat_interleave(lengths(grid, batch))
    keys = _keys(grid, number)
    if torch.unique(keys).numel() < len(grid):
        raise GraphError(
            "two points share a cell; keep one in each, voxel_downsample(pos, cell).kept, or pass a "
            "smaller cell"
        )
    near = (neighbours(grid, number, 3), neighbours(grid, number, 5))
    level = Level(pos, batch, (), near=near, cells=grid)
    result = []
    for depth in range(levels):
        if depth:
            level, grid = _pooled(level, grid, step)
            number = torch.repeat_interleave(lengths(grid, level.batch))
            level = replace(level, near=(neighbours(grid, number, 3),), cells=grid)
        order = list(range(len(names)))
        if shuffle:
            order = torch.randperm(len(names)).tolist()
        fine = max(1, bits - depth * (step.bit_length() - 1))
        graphs = []
        for i in order:
            graph = curve_patches(
                grid, patch, names[i], bits=fine, batch=level.batch, shrink="cloud"
            )
            graphs.append(graph.to(grid.device))
        result.append(replace(level, graphs=tuple(graphs)))
    return Hierarchy(tuple(result), count_of_clouds(batch))


def neighbours(grid: Tensor, number: Tensor, kernel: int) -> CellNeighbours:
    """The neighbours of each cell with their offsets, numbered along the first axis first.

    Args:
        grid: int64 (N, d), distinct cells.
        number: int64 (N,), the cloud of each.
        kernel: Cells along an axis, odd.
    """
    reach = kernel // 2
    size = len(grid)
    keys = _keys(grid, number, reach)
    order = torch.argsort(keys)
    far = keys.new_full((kernel,), torch.iinfo(keys.dtype).max)
    ordered = torch.cat((keys[order], far))
    strides = _strides(grid, reach)[1:]
    sources = []
    targets = []
    offsets = []
    for column, offset in enumerate(product(range(-reach, reach + 1), repeat=grid.shape[1] - 1)):
        lowest = keys + sum(
            steps * stride for steps, stride in zip((*offset, -reach), strides, strict=True)
        )
        # the cells of a column are neighbours in this order
        place = torch.searchsorted(ordered, lowest)
        near_ids = torch.full((kernel, size), -1, device=grid.device)
        for _ in range(kernel):
            height = ordered[place] - lowest
            target = torch.nonzero(height < kernel).flatten()
            near_ids[height[target], target] = order[place[target]]
            place = place + 1
        height, target = torch.nonzero(near_ids >= 0, as_tuple=True)
        sources.append(near_ids[height, target])
        targets.append(target)
        offsets.append(column * kernel + height)
    edges = listed(torch.cat(targets), torch.cat(sources), size, size, has_repeats=False)
    graph = AttentionGraph(edges, f"cells around each, {kernel} along an axis", grid.device)
    return CellNeighbours(graph, torch.cat(offsets), kernel ** grid.shape[1])


def _grid(pos: Any, batch: Tensor | None, cell: Any, cells: Any) -> Tensor:
    place = coordinates(tensor(pos, "pos"), "pos")
    if (cell is None) == (cells is None):
        raise GraphError("pass either cell, the side of the cells of a grid, or cells")
    if cells is None:
        side = length(cell, "cell")
        warn_of_coarse_cells(place, side, pos)
        clouds = (place / side).floor().split(lengths(place, batch).tolist())
        grid = torch.cat([place[:0], *(part - part.amin(0) for part in clouds)])
        finest = 0.0
        if grid.numel():
            finest = float(grid.max())
        if finest >= 2**31:
            raise GraphError(
                f"cell={side:g} cuts the cloud too finely: {finest:g} cells along an axis"
            )
        return grid.long()
    grid = integers_of(cells)
    check_shape(grid, "cells", place.shape, "a cell of each point", GraphError)
    check_range(grid, "cells", 2**31, error=GraphError)
    return grid


def integers_of(cells: Any) -> Tensor:
    """A table (N, d) of integers."""
    table = tensor(cells, "cells")
    return integers(table.flatten(), "cells").view(table.shape)


def _keys(grid: Tensor, number: Tensor, margin: int = 0) -> Tensor:
    """A unique number for each cell of each cloud, (N,), also for cells up to ``margin`` away."""
    if not len(grid):
        return number
    cloud, *strides = _strides(grid, margin)
    total = (int(number.max()) + 1) * cloud
    if total >= _MOST:
        raise GraphError(
            f"the grid has {total:.3g} cells, more than can be numbered; pass a larger cell"
        )
    key = number * cloud
    for stride, side in zip(strides, grid.unbind(1), strict=True):
        key = key + stride * (side + margin)
    return key


def _strides(grid: Tensor, margin: int) -> list[int]:
    """The distances between keys: of clouds, then of neighbours along each axis."""
    if len(grid):
        span = (grid.amax(0) + 1 + 2 * margin).tolist()
    else:
        span = [1] * grid.shape[1]
    return [math.prod(span[axis:]) for axis in range(len(span) + 1)]


def _pooled(fine: Level, grid: Tensor, step: int) -> tuple[Level, Tensor]:
    coarse = torch.div(grid, step, rounding_mode="floor")
    number = torch.repeat_interleave(lengths(grid, fine.batch))
    _, ids = torch.unique(_keys(coarse, number), return_inverse=True)
    order = torch.argsort(ids, stable=True)
    sizes = torch.bincount(ids)
    first = order[torch.cumsum(sizes, 0) - sizes]
    down = clusters(ids)
    pos = means(fine.pos, ids, sizes)
    batch = fine.batch
    if batch is not None:
        batch = batch[first]
    return Level(pos, batch, (), down, down.reverse()), coarse[first]
