"""Windows in space: points that share a cube."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...arguments import check_range, for_each
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.algebra import union
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.forms import partition
from ..arguments import call, integers, number
from .clouds import coordinates, device_of, length, lengths
from .sampling.farthest import farthest_points
from .search.reach import warn_of_coarse_cells, warn_of_windows

Lengths = float | tuple[float, ...]


def voxel_ids(
    pos: Tensor | np.ndarray,
    window: Lengths,
    *,
    shift: Lengths = 0.0,
    batch: Tensor | None = None,
) -> Tensor:
    r"""The number of the cube of each point, the same for points of one cloud in one cube.

    The cube is :math:`\lfloor (p - \delta) / M \rfloor` on every axis.

    Args:
        pos: (N, d) floating point coordinates, a tensor or a numpy array; any d.
        window: M, the side of a cube in the units of ``pos``, or one side for each axis.
        shift: Origin of a cube, in the units of ``pos``, on every axis or one number for all.
        batch: (N,) cloud of every point, sorted; clouds share no cube.
    Returns:
        int64 (N,) on the device of ``pos``: 0, 1, ... without gaps, by cloud, then by first axis,
        second axis, ...
    Raises:
        GraphError: If ``window`` is not above 0, a coordinate is not finite, or ``batch`` is not
            sorted.
    Example:
        >>> voxel_ids(torch.tensor([[0.1, 0.2], [1.7, 0.2], [-0.1, 0.2], [0.3, 0.9]]), 1.0).tolist()
        [1, 2, 0, 1]
    """
    points = coordinates(pos, "pos")
    sides = _per_axis(window, points.shape[1], "window", positive=True)
    starts = _per_axis(shift, points.shape[1], "shift", positive=False)
    warn_of_coarse_cells(points, min(sides), pos)
    label = torch.repeat_interleave(lengths(points, batch))
    for axis, (side, start) in enumerate(zip(sides, starts, strict=True)):
        cell, number = torch.unique(((points[:, axis] - start) / side).floor(), return_inverse=True)
        label = torch.unique(label * cell.numel() + number, return_inverse=True)[1]  # stays below N
    return label.to(device_of(pos))


class VoxelDownsample(NamedTuple):
    """One point of each cell of a grid.

    Attributes:
        kept: int64 (M,), the points kept, ascending: of each cell the nearest to its centre.
        cell: int64 (N,), the cell of every point as a row of ``kept``: ``y[cell]`` brings values of
            the kept points back to all.
        batch: int64 (M,), the cloud of each kept point, or ``None``.
    """

    kept: Tensor
    cell: Tensor
    batch: Tensor | None


def voxel_downsample(
    pos: Tensor | np.ndarray,
    cell: Lengths,
    batch: Tensor | None = None,
) -> VoxelDownsample:
    """Thin clouds to one point in each cell of a grid, and keep the way back.

    Args:
        pos: (N, d) floating point coordinates, a tensor or a numpy array; any d. Computed in
            float64.
        cell: Side of a cell in the units of ``pos``, or one side for each axis. Cells are those of
            :func:`voxel_ids`, so that they do not move with the points that are kept:
            :func:`serialized_hierarchy` finds one in each.
        batch: (N,) cloud of every point, sorted; clouds share no cell.
    Raises:
        GraphError: If ``cell`` is not above 0, a coordinate is not finite, or ``batch`` is not
            sorted.
    Example:
        >>> sample = voxel_downsample(torch.tensor([[0.1, 0.2], [0.4, 0.6], [1.7, 0.2], [1.6, 0.4]]), 1.0)
        >>> sample.kept.tolist(), sample.cell.tolist()
        ([1, 3], [0, 0, 1, 1])
    """
    points = coordinates(pos, "pos")
    cells = points / points.new_tensor(_per_axis(cell, points.shape[1], "cell", positive=True))
    ids = voxel_ids(pos, cell, batch=batch)
    order = torch.argsort((cells - cells.floor() - 0.5).square().sum(1).to(ids.device), stable=True)
    # by cell, then by distance from its centre
    order = order[torch.argsort(ids[order], stable=True)]
    sizes = torch.bincount(ids)
    indices, place = order[sizes.cumsum(0) - sizes].sort()
    row = torch.empty_like(place)
    row[place] = torch.arange(len(place), device=place.device)
    if batch is not None:
        batch = batch.to(indices.device)[indices]
    return VoxelDownsample(indices, row[ids], batch)


@sizable
@builder
def voxel_windows(
    pos: Tensor | np.ndarray,
    window: Lengths,
    *,
    shift: Lengths = 0.0,
    batch: Tensor | None = None,
) -> AttentionGraph:
    r"""Space cut into cubes: a point reads the points in its own cube.

    .. math::
        \mathcal{N}(t) = \{ s : \lfloor (p_s - \delta) / M \rfloor = \lfloor (p_t - \delta) / M \rfloor
        \text{ on every axis} \}

    Args:
        pos: (N, d) floating point coordinates, a tensor or a numpy array; any d. Computed in
            float64.
        window: M, the side of a cube in the units of ``pos``, or one side for each axis.
        shift: Origin of a cube, in the units of ``pos``, on every axis or one number for all;
            shifted windows have half the side. Cubes are counted from the origin: pass
            ``pos - pos.amin(0)`` to start at a cloud's corner.
        batch: (N,) cloud of every point, sorted; a point reads its own cloud only.
    Returns:
        A rule on the device of ``pos``: disjoint cliques, self-loops included.
    Raises:
        GraphError: If ``window`` is not above 0, a coordinate is not finite, or ``batch`` is not
            sorted.
    Source:
        Yang et al. 2023 (Swin3D), after Liu et al. 2021; Lai et al. 2022 (Stratified Transformer),
        whose windows start at the smallest coordinates.
    Example:
        >>> line = torch.tensor([[0.0], [0.4], [0.6], [1.2], [1.4]])
        >>> print(voxel_windows(line, 1.0))
        AttentionGraph(voxel_windows(window=1.0): 5 nodes, 13 edges, density 0.52, rule)
        █ █ █ · ·
        █ █ █ · ·
        █ █ █ · ·
        · · · █ █
        · · · █ █
        >>> print(voxel_windows(line, 1.0, shift=0.5))
        AttentionGraph(voxel_windows(window=1.0, shift=0.5): 5 nodes, 13 edges, density 0.52, rule)
        █ █ · · ·
        █ █ · · ·
        · · █ █ █
        · · █ █ █
        · · █ █ █
    """
    ids = voxel_ids(pos, window, shift=shift, batch=batch)
    warn_of_windows(ids, window, coordinates(pos, "pos"))
    name = call("voxel_windows", window=window, shift=shift)
    return AttentionGraph(partition(ids.cpu()), name, ids.device)


@sizable
@builder
def stratified_windows(
    pos: Tensor | np.ndarray,
    window: Lengths,
    sampled: Tensor | float,
    *,
    wide: float = 2.0,
    shift: Lengths = 0.0,
    batch: Tensor | None = None,
) -> AttentionGraph:
    r"""Near points densely, far ones sparsely: a point reads its cube, and samples of a wider cube.

    .. math::
        \mathcal{N}(t) = \{ s : u_M(s) = u_M(t) \} \cup \{ s \in P : u_{wM}(s) = u_{wM}(t) \}, \quad
        u_M(i) = \lfloor (p_i - \delta) / M \rfloor

    Args:
        pos: (N, d) floating point coordinates, a tensor or a numpy array; any d. Computed in
            float64.
        window: M, the side of a cube in the units of ``pos``, or one side for each axis.
        sampled: P, indices (M,) of the points read from afar; or the fraction of each cloud, in (0,
            1], that :func:`~graphattn.shapes.farthest_points` takes.
        wide: Ratio of the sides of the wider cubes and the cubes.
        shift: Origin of a cube, in the units of ``pos``; the wider cubes start at ``wide * shift``.
            Shifted layers have half the window. Cubes are counted from the origin: pass
            ``pos - pos.amin(0)`` to start at a cloud's corner.
        batch: (N,) cloud of every point, sorted; a point reads its own cloud only.
    Returns:
        A rule on the device of ``pos``; self-loops included, a point in both sets is read once.
    Raises:
        GraphError: If ``window`` is not above 0, ``wide < 1``, a coordinate is not finite, or
            ``batch`` is not sorted.
        GraphIndexError: If ``sampled`` has an index out of range.
    Source:
        Lai et al. 2022 (Stratified Transformer), section 3.2; their code doubles the window and
        samples one point in ``downsample_scale``. *What differs:* their windows start at the
        smallest coordinates.
    Example:
        >>> line = torch.arange(6.0)[:, None]
        >>> print(stratified_windows(line, 2.0, torch.tensor([0, 3])))
        AttentionGraph(stratified_windows(window=2.0, sampled=[0, 3]): 6 nodes, 16 edges, density 0.444, rule)
        █ █ · █ · ·
        █ █ · █ · ·
        █ · █ █ · ·
        █ · █ █ · ·
        · · · · █ █
        · · · · █ █
    """
    near = voxel_ids(pos, window, shift=shift, batch=batch)
    wide = number(wide, "wide", "a number >= 1", lambda wide: 1 <= wide < float("inf"))
    far = voxel_ids(pos, _times(window, wide), shift=_times(shift, wide), batch=batch)
    shown: object = sampled
    if isinstance(sampled, float):
        sampled = farthest_points(pos, ratio=sampled, batch=batch)
    n = near.numel()
    few = integers(sampled, "sampled")
    check_range(few, "sampled", n, ", the points")
    read = -1 - torch.arange(n, device=far.device)  # a unique cube, which holds no target
    read[few.to(far.device)] = far[few.to(far.device)]
    edges = union(partition(near.cpu()), partition(far.cpu(), read.cpu()))
    if not isinstance(shown, float):
        shown = few
    name = call("stratified_windows", window=window, sampled=shown, wide=wide, shift=shift)
    return AttentionGraph(edges, name, near.device)


def _times(value: Lengths, factor: float) -> Lengths:
    if isinstance(value, (tuple, list)):
        return tuple(side * factor for side in value)
    return value * factor


def _per_axis(value: Lengths, axes: int, argument: str, positive: bool) -> tuple[float, ...]:
    """One length for every axis; a single number is for all of them."""
    values = for_each(value, argument, axes, "axis of pos", GraphError)
    if positive:
        return tuple(length(side, argument) for side in values)
    expected = "finite numbers in the units of pos"
    return tuple(
        number(side, argument, expected, lambda start: abs(start) < 1e150) for side in values
    )
