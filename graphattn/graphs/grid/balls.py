"""Grids with neighbourhoods by distance."""

import itertools
import math

import numpy as np
import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.edges import Edges
from ...graph.forms import band, product
from ...graph.limits import refuse_over
from ...graph.runs import Runs
from ..arguments import axes, call, number

_LINE_BYTES = 128  # per line of the grid, during the search for its widest row inside the ball


@sizable
@builder
def grid_ball(
    size: tuple[int, ...],
    r: float,
    *,
    p: float = 2.0,
    strict: bool = False,
) -> AttentionGraph:
    r"""A grid where a node reads the nodes at a distance of at most ``r`` steps.

    .. math::
        \mathcal{N}(t) = \{ s : \lVert s - t \rVert_p \le r \}, \quad
        \lVert d \rVert_p = \Big( \sum_{\text{axes}} |d_a|^p \Big)^{1/p}

    Args:
        size: Length of every axis, (height, width) for an image; any number of axes.
        r: Radius in steps of the grid, at least 0.
        p: The norm, at least 1: 1 counts steps along the axes, 2 is Euclid's, ``inf`` takes the
            longest axis.
        strict: Leave out the nodes at a distance of exactly ``r``.
    Returns:
        A rule, cut at the borders. Distances are float64; whole ``r`` and roots of whole numbers
        are exact for p = 1, 2 and inf. ``r=1`` is 4 neighbours of an image and the node itself,
        ``r=1, p=inf`` is 8.
    Raises:
        GraphError: If ``r`` is negative or not a number, ``p`` is below 1, or the ball has too many
            lines to hold.
    Source:
        ``local_nd_pattern`` of xformers (Lefaudeux et al. 2022), which is ``strict=True``.
    Example:
        >>> graph = grid_ball((5, 5), 1.5)
        >>> print(graph.mask()[12].view(5, 5).long())
        tensor([[0, 0, 0, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 1, 1, 1, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 0, 0, 0]])
    """
    size = axes(size)
    reach = number(r, "r", "a finite number >= 0", lambda r: 0 <= r < math.inf)
    norm = number(p, "p", "a number >= 1", lambda p: p >= 1)
    if norm == math.inf:
        far = math.floor(reach)
        if strict:
            far = math.ceil(reach) - 1
        far = min(far, max(size))
        edges = product([band(length, length, -far, far) for length in size])
    else:
        lines = math.prod(2 * int(min(reach, max(0, length - 1))) + 1 for length in size[:-1])
        refuse_over(
            _LINE_BYTES * lines,
            f"grid_ball of r={r!r}, which reaches {lines:,} lines,",
            "use a smaller r",
        )
        edges = _ball(size, reach, norm, strict)
    return AttentionGraph(edges, call("grid_ball", size, r, p=norm, strict=strict))


def _ball(grid: tuple[int, ...], r: float, p: float, strict: bool) -> Edges:
    """Nodes within ``r``, or nearer if ``strict``, in L_p; float64, rounded as numpy rounds."""
    # largest number of steps on each axis
    reach = [max(0, min(length - 1, int(min(r, length)))) for length in grid]
    steps = np.array(
        list(itertools.product(*(range(-far, far + 1) for far in reach[:-1]))), dtype=np.int64
    )
    few = np.full(len(steps), -1)
    most = np.full(len(steps), reach[-1])
    while (few < most).any():  # bisection for the widest row inside the ball
        middle = few + (most - few + 1) // 2
        distance = _norm(np.concatenate((steps, middle[:, None]), 1), p)
        if strict:
            inside = distance < r
        else:
            inside = distance <= r
        few = np.where(inside, middle, few)
        most = np.where(inside, most, middle - 1)
    near = few >= 0
    # (K, axes - 1), row-major; (K,)
    offset = torch.from_numpy(steps[near])
    half = torch.from_numpy(few[near])

    def rows(target: Tensor) -> Runs:
        here: list[Tensor] = []
        node = target
        for length in reversed(grid):
            here.insert(0, node % length)
            node = node // length
        exists = torch.ones(target.numel(), len(half), dtype=torch.bool)
        line = torch.zeros(target.numel(), len(half), dtype=torch.int64)
        for axis, length in enumerate(grid[:-1]):
            there = here[axis][:, None] + offset[:, axis]
            exists &= (there >= 0) & (there < length)
            line = line * length + there
        row, which = torch.nonzero(exists, as_tuple=True)
        middle = here[-1][row]
        half_width = half[which]
        base = line[row, which] * grid[-1]
        return Runs(
            row,
            base + (middle - half_width).clamp(min=0),
            base + (middle + half_width).clamp(max=grid[-1] - 1) + 1,
        )

    size = math.prod(grid)
    return Edges(size, size, rows, runs_per_row=len(half), grid=grid)


def _norm(steps: np.ndarray, p: float) -> np.ndarray:
    """The L_p norm of rows of whole numbers, float64; exact on the axes."""
    steps = steps.astype(np.float64)
    if p in (1, 2, np.inf):
        return np.linalg.norm(steps, ord=p, axis=1)
    most = np.abs(steps).max(1)  # factored out, so that no power overflows
    return most * np.linalg.norm(steps / np.maximum(most, 1)[:, None], ord=p, axis=1)
