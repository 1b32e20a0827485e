"""Grids: images (height, width), videos (time, height, width); nodes are numbered row by row."""

import torch
from torch import Tensor

from ...arguments import for_each
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.edges import Edges
from ...graph.forms import band, one_run, product
from ...graph.runs import Runs, spread
from ..arguments import axes, call, per_axis, whole
from .axes import cell_window, divided
from .axes import cells as axis_cells


@sizable
@builder
def window_partition(
    size: tuple[int, ...],
    cell: tuple[int, ...] | int,
    shift: tuple[int, ...] | int | None = None,
    *,
    pad: bool = False,
    read_padding: bool = False,
) -> AttentionGraph:
    r"""A grid cut into cells: a node reads its cell, as in Swin and its shifted windows.

    .. math::
        \mathcal{N}(t) = \{ s : \lfloor (y_s - \delta_y) / M_y \rfloor = \lfloor (y_t - \delta_y) / M_y \rfloor
        \text{ and the same on every axis} \}

    Args:
        size: Length of every axis, (height, width) for an image; any number of axes.
        cell: M, length of a cell on every axis, or one number for all.
        shift: Start of the first whole cell, ``0 <= shift < cell``, on every axis or one number for
            all; 0 by default. Swin's shifted windows have ``shift = cell // 2``. It becomes 0 on
            axes that one cell covers, as in Swin; the graph's name shows the shift in use.
        pad: Allow axes that are not a multiple of ``cell``: their last cell is cut at the border.
            This equals a padded grid whose padding is masked out.
        read_padding: Pad without a mask: targets are the grid, sources the grid padded at its ends
            to whole cells, row by row as ``torch.nn.functional.pad`` returns them.
    Returns:
        A rule: disjoint cliques, self-loops included. ``cell=(1, width)`` reads rows,
        ``cell=(height, 1)`` columns. With ``read_padding`` every target reads a whole cell of
        sources (less the part that a shift cuts off).
    Raises:
        GraphError: If an axis is not a multiple of ``cell`` without padding, or a shift is not
            below its cell.
    Source:
        Liu et al. 2021 (Swin Transformer), section 3.2. Their cyclic roll and mask of -100 give the
        same cells as this floor, which is -1 before the first whole cell. *What differs:*
        torchvision pads with nodes that *are* read (zeros, so their key is the bias of its Linear),
        as do the windows of Segment Anything (Kirillov et al. 2023): ``read_padding``.
        torchvision's Video Swin first shortens a cell to its axis.
    Example:
        >>> print(window_partition((1, 6), (1, 3), shift=(0, 2)))
        AttentionGraph(window_partition((1, 6), (1, 3), shift=(0, 2)): 6 nodes, 14 edges, density 0.389, rule)
        █ █ · · · ·
        █ █ · · · ·
        · · █ █ █ ·
        · · █ █ █ ·
        · · █ █ █ ·
        · · · · · █
    """
    size = axes(size)
    cells = per_axis(cell, len(size), "cell", 1)
    if shift is None:
        shift = 0
    shifts = list(per_axis(shift, len(size), "shift"))
    for axis, (length, side, moved) in enumerate(zip(size, cells, shifts, strict=True)):
        shifts[axis] = moved % side
        if side >= length:  # one cell, which a shift does not change
            shifts[axis] = 0
    divided(size, cells, pad or read_padding)
    parts = [axis_cells(*axis) for axis in zip(size, cells, shifts, strict=True)]
    if read_padding:
        padded = axes(
            tuple(-(-length // side) * side for length, side in zip(size, cells, strict=True))
        )
        parts = [
            cell_window(length, sources, side, side, side, moved, moved)
            for length, sources, side, moved in zip(size, padded, cells, shifts, strict=True)
        ]
    shown = None
    if any(shifts):
        shown = tuple(shifts)
    name = call("window_partition", size, cells, shift=shown, pad=pad, read_padding=read_padding)
    return AttentionGraph(product(parts), name)


@sizable
@builder
def grid_neighbourhood(
    size: tuple[int, ...],
    kernel: tuple[int, ...] | int,
    *,
    dilation: tuple[int, ...] | int = 1,
    stride: tuple[int, ...] | int = 1,
    causal: tuple[bool, ...] | bool,
    clamp: bool = True,
) -> AttentionGraph:
    r"""A node reads the ``kernel`` nodes around it on every axis: NATTEN's rule, or zero-padded.

    .. math::
        \mathcal{N}(t) = \{ s : s \equiv t \bmod d, \;
        -\lfloor k / 2 \rfloor \le \lfloor s / d \rfloor - c(\lfloor t / d \rfloor) \le \lfloor (k - 1) / 2 \rfloor
        \text{ on every axis} \}

    where ``c(p)`` is ``p`` moved inwards until the window fits (``clamp``), or ``p`` itself. With a
    stride ``p`` is replaced by its leader, the middle one of the ``stride`` nodes that share a
    window.

    Args:
        size: Length of every axis, (height, width) for an image; any number of axes.
        kernel: k, nodes read on every axis, counting the target, or one number for all. An even
            kernel reads one more node before the target than after it.
        dilation: d, steps between two sources of a target, on every axis or one number for all.
        stride: Number of neighbouring nodes (of equal residue mod ``dilation``) that share a leader
            and its window; on every axis or one number for all, at most ``kernel``.
        causal: True on axes where only the ``k`` nodes up to the target are read; or one bool for
            all. A causal window is cut at the start of the axis, never moved. With a stride the
            window ends at the last of the nodes that share it, and each reads the part that is not
            ahead.
        clamp: Move the window inwards at the borders, so that every node reads ``k`` nodes on an
            axis (NATTEN). With ``False`` the window is cut at the borders, as by zero padding that
            is masked out.
    Returns:
        A rule, the product of one rule per axis.
    Raises:
        GraphError: If a clamped window does not fit its axis (``kernel * dilation > size``), or a
            stride is wider than its kernel.
    Source:
        Hassani et al. 2023 (Neighborhood Attention Transformer), Hassani and Shi 2022 (DiNAT) for
        the dilation, Hassani et al. 2025 (Generalized Neighborhood Attention) for the stride; equal
        to ``natten.na1d / na2d / na3d``. Ramachandran et al. 2019 (SASA) for ``clamp=False``. *What
        differs:* kernel 1 is allowed. Sliding tile attention (Zhang et al. 2025) is
        ``stride=tile, kernel=n * tile`` with odd ``n``; MaxViT's grid attention (Tu et al. 2022) is
        ``kernel=g, dilation=size // g``.
    Example:
        >>> print(grid_neighbourhood((6,), (3,), causal=False))
        AttentionGraph(grid_neighbourhood((6,), (3,), causal=False): 6 nodes, 18 edges, density 0.5, rule)
        █ █ █ · · ·
        █ █ █ · · ·
        · █ █ █ · ·
        · · █ █ █ ·
        · · · █ █ █
        · · · █ █ █
        >>> print(grid_neighbourhood((6,), (3,), causal=False, clamp=False))
        AttentionGraph(grid_neighbourhood((6,), (3,), causal=False, clamp=False): 6 nodes, 16 edges, density 0.444, rule)
        █ █ · · · ·
        █ █ █ · · ·
        · █ █ █ · ·
        · · █ █ █ ·
        · · · █ █ █
        · · · · █ █
    """
    size = axes(size)
    kernels = per_axis(kernel, len(size), "kernel", 1)
    steps = per_axis(dilation, len(size), "dilation", 1)
    strides = per_axis(stride, len(size), "stride", 1)
    flags = for_each(causal, "causal", len(size), "axis of size", GraphError)
    backwards = tuple(axis_flag for axis_flag in flags)
    shown: tuple[bool, ...] | bool = backwards
    if len(set(backwards)) == 1:
        shown = backwards[0]
    axis_arguments = zip(size, kernels, steps, strides, backwards, strict=True)
    edges = product([_window(*arguments, clamp) for arguments in axis_arguments])
    name = call(
        "grid_neighbourhood",
        size,
        kernels,
        dilation=steps,
        stride=strides,
        causal=shown,
        clamp=clamp,
    )
    return AttentionGraph(edges, name)


def _window(
    length: int,
    kernel: int,
    step: int,
    stride: int,
    causal: bool,
    clamp: bool,
) -> Edges:
    """The rule on one axis."""
    whole(stride, "stride", 1, below=kernel + 1, of=", one more than kernel")
    if clamp and not causal:
        if kernel * step > length > 0:
            raise GraphError(
                f"kernel * dilation must fit the axis, got {kernel} * {step} on an axis of "
                f"{length}; use a smaller kernel or dilation, or clamp=False to cut the window at "
                "the borders"
            )
        return axis_neighbourhood(length, kernel, step, stride=stride)
    if stride > 1:
        return axis_neighbourhood(length, kernel, step, causal, stride=stride, clamp=clamp)
    if causal:
        before = kernel - 1
        after = 0
    else:
        before = kernel // 2
        after = (kernel - 1) // 2
    return band(length, length, -after * step, before * step, step)


def axis_neighbourhood(
    length: int,
    kernel: int,
    dilation: int = 1,
    causal: bool = False,
    *,
    stride: int = 1,
    clamp: bool = True,
) -> Edges:
    """NATTEN's neighbourhood on one axis: ``kernel`` sources, moved inwards at the borders.

    Within the group of positions of equal residue mod ``dilation``, ``stride`` neighbours share a
    leader, the middle one, and target ``p`` reads ``[c - kernel // 2, c + (kernel - 1) // 2]``
    where ``c`` is its leader clamped so that the window fits; without ``clamp`` the window is cut
    at the borders. With ``causal`` the leader is the last of the neighbours, the window of
    ``kernel`` ends at it, and the target reads the part that is not ahead; at the start it shrinks
    instead of moving.
    """
    left = kernel // 2
    right = (kernel - 1) // 2

    def window(target: Tensor) -> tuple[Tensor, Tensor]:
        """First and last position, within the residue's group."""
        place = target // dilation
        last = (length - 1 - target % dilation) // dilation
        if causal:
            leader = torch.minimum(place // stride * stride + stride - 1, last)
            return (leader - kernel + 1).clamp(min=0), place
        leader = place // stride * stride + stride // 2
        if clamp:
            leader = torch.minimum(leader.clamp(min=left), last - right)
        return (leader - left).clamp(min=0), torch.minimum(leader + right, last)

    def ends(target: Tensor) -> tuple[Tensor, Tensor]:
        lo, hi = window(target)
        return lo, hi + 1

    def rows(target: Tensor) -> Runs:
        lo, hi = window(target)
        row, within = spread((hi - lo + 1).clamp(min=0))
        source = (lo[row] + within) * dilation + target[row] % dilation
        return Runs(row, source, source + 1)

    if dilation == 1:
        return one_run(length, length, ends)
    return Edges(length, length, rows, runs_per_row=kernel)
