"""Cells that read beyond their border, and cells pooled into one node."""

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.edges import Edges
from ...graph.forms import product
from ..arguments import axes, call, per_axis
from .axes import cell_window, divided


@sizable
@builder
def halo(
    size: tuple[int, ...],
    cell: tuple[int, ...] | int,
    halo: tuple[int, ...] | int,
    *,
    pad: bool = False,
    read_padding: bool = False,
) -> AttentionGraph:
    r"""A grid cut into cells: a node reads its cell and a border of ``halo`` nodes around it.

    .. math::
        \mathcal{N}(t) = \{ s : -h \le s - M \lfloor t / M \rfloor < M + h \text{ on every axis} \}

    Args:
        size: Length of every axis, (height, width) for an image; any number of axes.
        cell: M, length of a cell (a "block" in the paper) on every axis, or one number for all.
        halo: h, nodes read beyond the cell at both its ends, on every axis or one number for all.
        pad: Allow axes that are not a multiple of ``cell``: their last cell is cut at the border.
        read_padding: Pad without a mask: targets are the grid, sources the grid padded to whole
            cells and then by ``halo`` at both ends of every axis, row by row as
            ``torch.nn.functional.pad`` returns them. Without it nothing is read beyond the border.
    Returns:
        A rule. All nodes of a cell read the same nodes; with ``read_padding`` each reads ``M + 2h``
        on every axis. ``halo=0`` is :func:`window_partition`; ``cell=1`` has a window of ``2h + 1``
        around every node (SASA).
    Raises:
        GraphError: If an axis is not a multiple of ``cell`` and nothing is padded.
    Source:
        Vaswani et al. 2021 (HaloNet). ``read_padding`` is timm's ``HaloAttn``, whose padded keys
        and values are zeros that stay in the softmax. *What differs:* the grid of timm must be a
        multiple of ``cell``. Without ``read_padding`` it is
        ``grid_neighbourhood(size, M + 2h, stride=M, clamp=False)``.
    Example:
        >>> print(halo((6,), 2, 1))
        AttentionGraph(halo((6,), (2,), (1,)): 6 nodes, 20 edges, density 0.556, rule)
        █ █ █ · · ·
        █ █ █ · · ·
        · █ █ █ █ ·
        · █ █ █ █ ·
        · · · █ █ █
        · · · █ █ █
        >>> print(halo((4,), 2, 1, read_padding=True))
        AttentionGraph(halo((4,), (2,), (1,), read_padding=True): 6 sources -> 4 targets, 16 edges, density 0.667, rule)
        █ █ █ █ · ·
        █ █ █ █ · ·
        · · █ █ █ █
        · · █ █ █ █
    """
    size = axes(size)
    cells = per_axis(cell, len(size), "cell", 1)
    border = per_axis(halo, len(size), "halo")
    divided(size, cells, pad or read_padding)
    parts: list[Edges] = []
    for length, side, around in zip(size, cells, border, strict=True):
        if read_padding:
            sources = -(-length // side) * side + 2 * around
            start = 0
        else:
            sources = length
            start = -around
        parts.append(cell_window(length, sources, side, side, side + 2 * around, start))
    axes(tuple(part.num_sources for part in parts))  # the padded grid fits in int64, too
    name = call("halo", size, cells, border, pad=pad, read_padding=read_padding)
    return AttentionGraph(product(parts), name)


@sizable
@builder
def cell_pooling(
    size: tuple[int, ...],
    cell: tuple[int, ...] | int,
    *,
    pad: bool = False,
) -> AttentionGraph:
    r"""Every cell of a grid becomes one node of a coarser grid, which reads the nodes of its cell.

    .. math::
        \mathcal{N}(t) = \{ s : \lfloor s / r \rfloor = t \text{ on every axis} \}

    Args:
        size: Length of every axis of the fine grid, (height, width) for an image; any number of
            axes.
        cell: r, length of a cell on every axis, or one number for all.
        pad: Allow axes that are not a multiple of ``cell``: their last cell is cut at the border.
    Returns:
        A rule from the fine grid (sources) to the coarse grid (targets), ``ceil(size / r)`` on
        every axis. Its ``reverse()`` lets every fine node read the coarse node of its cell.
    Raises:
        GraphError: If an axis is not a multiple of ``cell`` and ``pad=False``.
    Source:
        Pooling of PVT (Wang et al. 2021), Twins (Chu et al. 2021) and SegFormer (Xie et al. 2021),
        which make the coarse nodes by a convolution of kernel and stride r, not by attention; all
        fine nodes then read all coarse nodes, :func:`~graphattn.graphs.cross`.
    Example:
        >>> print(cell_pooling((2, 6), (2, 3)))
        AttentionGraph(cell_pooling((2, 6), (2, 3)): 12 sources -> 2 targets, 12 edges, density 0.5, rule)
        █ █ █ · · · █ █ █ · · ·
        · · · █ █ █ · · · █ █ █
    """
    size = axes(size)
    cells = per_axis(cell, len(size), "cell", 1)
    divided(size, cells, pad)
    sides = zip(size, cells, strict=True)
    parts: list[Edges] = [
        cell_window(-(-length // side), length, 1, side, side) for length, side in sides
    ]
    return AttentionGraph(product(parts), call("cell_pooling", size, cells, pad=pad))
