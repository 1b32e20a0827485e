"""Grids read by distance."""

import math

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.algebra import refuse_over
from ...graph.edge_set import EdgeSet
from ...graph.expression import builder
from ...graph.pattern import sizable
from ...graph.rules import Band
from ...graph.rules_grid import Ball
from ..arguments import axes, call, flag, number
from .axes import every_axis

_LINE_BYTES = 128  # of a line of the grid, while its widest row inside the ball is looked for


@sizable
@builder
def grid_ball(size: tuple[int, ...], r: float, *, p: float = 2.0, strict: bool = False) -> AttentionGraph:
    r"""A grid where a node reads the nodes at a distance of at most ``r`` steps.

    .. math::
        \mathcal{N}(t) = \{ s : \lVert s - t \rVert_p \le r \}, \quad
        \lVert d \rVert_p = \Big( \sum_{\text{axes}} |d_a|^p \Big)^{1/p}

    Args:
        size: Length of every axis, (height, width) for an image; any number of axes.
        r: Radius in steps of the grid, at least 0.
        p: The norm, at least 1: 1 counts steps along the axes, 2 is Euclid's, ``inf`` takes the longest axis.
        strict: Leave out the nodes at a distance of exactly ``r``.
    Returns:
        A rule, cut at the borders. Distances are float64; whole ``r`` and roots of whole numbers are exact for p = 1, 2
        and inf. ``r=1`` is 4 neighbours of an image and the node itself, ``r=1, p=inf`` is 8.
    Raises:
        GraphError: If ``r`` is negative or not a number, ``p`` is below 1, or the ball has too many lines to hold.
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
    size, strict = axes(size), flag(strict, "strict")
    reach = number(r, "r", "a number >= 0", lambda r: r >= 0)
    norm = number(p, "p", "a number >= 1", lambda p: p >= 1)
    if not math.isfinite(reach):
        raise GraphError(f"r must be finite, got {r!r}; a node that reads the whole grid is full(num_nodes)")
    if norm == math.inf:
        far = min(math.ceil(reach) - 1 if strict else math.floor(reach), max(size))
        parts: list[EdgeSet] = [Band(length, length, -far, far) for length in size]
        edges = every_axis(parts)
    else:
        lines = math.prod(2 * int(min(reach, max(0, length - 1))) + 1 for length in size[:-1])
        refuse_over(_LINE_BYTES * lines, f"grid_ball of r={r!r}, which reaches {lines:,} lines,", "use a smaller r")
        edges = Ball(size, reach, norm, strict)
    return AttentionGraph(edges, call("grid_ball", size, r, p=(norm, 2.0), strict=(strict, False)))
