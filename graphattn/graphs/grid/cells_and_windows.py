"""Grids: images (height, width), videos (time, height, width); nodes are numbered row by row."""

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.edge_set import EdgeSet
from ...graph.rules import Band, Cells, Neighbourhood, Product
from ..arguments import axes, call, flag, per_axis


def _product(parts: list[EdgeSet]) -> EdgeSet:
    return parts[0] if len(parts) == 1 else Product(tuple(parts))


def cell_partition(
    size: tuple[int, ...],
    cell: tuple[int, ...] | int,
    shift: tuple[int, ...] | int | None = None,
    *,
    pad: bool = False,
) -> AttentionGraph:
    r"""A grid cut into cells: a node reads the nodes of its own cell, as in Swin and its shifted windows.

    .. math::
        \mathcal{N}(t) = \{ s : \lfloor (y_s - \delta_y) / M_y \rfloor = \lfloor (y_t - \delta_y) / M_y \rfloor
        \text{ and the same on every axis} \}

    Args:
        size: Length of every axis, (height, width) for an image; any number of axes.
        cell: M, length of a cell on every axis, or one number for all.
        shift: Where the first whole cell starts, ``0 <= shift < cell``, on every axis or one number for all; no shift
            by default. Swin's shifted windows have ``shift = cell // 2``. It is 0 on axes that one cell covers, as in
            Swin; the graph's name shows the shift in use.
        pad: Allow axes that are not a multiple of ``cell``: their last cell is cut at the border. This is a padded grid
            whose padding is masked out.
    Returns:
        A rule: disjoint cliques, self-loops included. ``cell=(1, width)`` reads rows, ``cell=(height, 1)`` columns.
    Raises:
        GraphError: If an axis is not a multiple of ``cell`` and ``pad=False``, or a shift is not below its cell.
    Source:
        Liu et al. 2021 (Swin Transformer), section 3.2. Their cyclic roll and mask of -100 give the same cells as this
        floor, which is -1 before the first whole cell. *What differs:* torchvision and timm pad with nodes that *are*
        read (zeros, so their key is the bias of its Linear); for that, pad the features and give the padded size.
    Example:
        >>> print(cell_partition((1, 6), (1, 3), shift=(0, 2)))
        AttentionGraph(cell_partition((1, 6), (1, 3), shift=(0, 2)): 6 nodes, 14 edges, density 0.389, rule)
        █ █ · · · ·
        █ █ · · · ·
        · · █ █ █ ·
        · · █ █ █ ·
        · · █ █ █ ·
        · · · · · █
    """
    size = axes(size)
    cells = per_axis(cell, len(size), "cell", 1)
    wanted = per_axis(0 if shift is None else shift, len(size), "shift")
    pad = flag(pad, "pad")
    for axis, (length, side, moved) in enumerate(zip(size, cells, wanted, strict=True)):
        if moved >= side:
            raise GraphError(
                f"shift must be below cell on every axis, got shift={moved} and cell={side} on axis {axis}; "
                f"the cells are the same with shift={moved % side}"
            )
        if length % side and not pad:
            raise GraphError(
                f"size must be a multiple of cell on every axis, got size={length} and cell={side} on axis {axis}; "
                "pass pad=True to cut the last cell at the border, or a cell that divides the axis"
            )
    used = tuple(0 if side >= length else moved for length, side, moved in zip(size, cells, wanted, strict=True))
    edges = _product([Cells(*axis) for axis in zip(size, cells, used, strict=True)])
    none = (0,) * len(size)
    return AttentionGraph(edges, call("cell_partition", size, cells, shift=(used, none), pad=(pad, False)))


def grid_neighbourhood(
    size: tuple[int, ...],
    kernel: tuple[int, ...] | int,
    *,
    dilation: tuple[int, ...] | int = 1,
    causal: tuple[bool, ...] | bool = False,
    clamp: bool = True,
) -> AttentionGraph:
    r"""A grid where a node reads the ``kernel`` nodes around it on every axis: NATTEN's rule, or a zero-padded window.

    .. math::
        \mathcal{N}(t) = \{ s : s \equiv t \bmod d, \;
        -\lfloor k / 2 \rfloor \le \lfloor s / d \rfloor - c(\lfloor t / d \rfloor) \le \lfloor (k - 1) / 2 \rfloor
        \text{ on every axis} \}

    where ``c(p)`` is ``p`` moved inwards just so far that the window fits (``clamp``), or ``p`` itself.

    Args:
        size: Length of every axis, (height, width) for an image; any number of axes.
        kernel: k, nodes read on every axis, counting the target, or one number for all. An even kernel reads one more
            node before the target than after it.
        dilation: d, steps between two nodes that are read, on every axis or one number for all.
        causal: On which axes only nodes up to the target are read, ``k`` of them; or one bool for all. A causal window
            is cut at the start of the axis, never moved.
        clamp: Move the window inwards at the borders, so that every node reads ``k`` nodes on an axis (NATTEN). With
            ``False`` the window is cut at the borders, as by zero padding that is masked out.
    Returns:
        A rule, the product of one rule per axis.
    Raises:
        GraphError: If a clamped window does not fit its axis (``kernel * dilation > size``).
    Source:
        Hassani et al. 2023 (Neighborhood Attention Transformer) and Hassani and Shi 2022 (DiNAT) for the
        dilation; equal to ``natten.na1d / na2d / na3d`` without stride. Ramachandran et al. 2019 (SASA) for
        ``clamp=False``. *What differs:* kernel 1 is allowed.
    Example:
        >>> print(grid_neighbourhood((6,), (3,)))
        AttentionGraph(grid_neighbourhood((6,), (3,)): 6 nodes, 18 edges, density 0.5, rule)
        █ █ █ · · ·
        █ █ █ · · ·
        · █ █ █ · ·
        · · █ █ █ ·
        · · · █ █ █
        · · · █ █ █
        >>> print(grid_neighbourhood((6,), (3,), clamp=False))
        AttentionGraph(grid_neighbourhood((6,), (3,), clamp=False): 6 nodes, 16 edges, density 0.444, rule)
        █ █ · · · ·
        █ █ █ · · ·
        · █ █ █ · ·
        · · █ █ █ ·
        · · · █ █ █
        · · · · █ █
    """
    size = axes(size)
    kernels, steps = per_axis(kernel, len(size), "kernel", 1), per_axis(dilation, len(size), "dilation", 1)
    clamp = flag(clamp, "clamp")
    backwards = tuple(causal) if isinstance(causal, (tuple, list)) else (causal,) * len(size)
    if len(backwards) != len(size) or not all(isinstance(each, bool) for each in backwards):
        raise GraphError(f"causal must be True or False, or {len(size)} of them, one per axis of size, got {causal!r}")
    edges = _product([_window(*axis, clamp) for axis in zip(size, kernels, steps, backwards, strict=True)])
    name = call(
        "grid_neighbourhood",
        size,
        kernels,
        dilation=(steps, (1,) * len(size)),
        causal=(backwards, (False,) * len(size)),
        clamp=(clamp, True),
    )
    return AttentionGraph(edges, name)


def _window(length: int, kernel: int, step: int, causal: bool, clamp: bool) -> EdgeSet:
    """The rule on one axis."""
    if clamp and not causal:
        if kernel * step > length > 0:
            raise GraphError(
                f"kernel * dilation must fit the axis, got {kernel} * {step} on an axis of {length}; use a smaller "
                "kernel or dilation, or clamp=False to cut the window at the borders"
            )
        return Neighbourhood(length, kernel, step)
    before, after = (kernel - 1, 0) if causal else (kernel // 2, (kernel - 1) // 2)
    return Band(length, length, -after * step, before * step, step)
