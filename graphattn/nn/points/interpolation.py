"""Interpolation between points as attention: scores whose softmax weighs sources by distance."""

import numpy as np
import torch
from torch import Tensor

from ...arguments import check_shape
from ...graph import AttentionGraph
from ...graphs.arguments import number
from ...graphs.points.clouds import coordinates


def inverse_distance_bias(
    graph: AttentionGraph,
    pos: Tensor | np.ndarray,
    queries: Tensor | np.ndarray | None = None,
    *,
    power: float = 2.0,
) -> Tensor:
    r"""The ``score_bias`` whose softmax is inverse distance weighting.

    .. math::
        b_{s \to t} = -p \log \|p_s - p_t\|, \quad
        \operatorname{softmax}_s b_{s \to t} = \frac{\|p_s - p_t\|^{-p}}{\sum_{s'} \|p_{s'} - p_t\|^{-p}}

    A target at the position of a source reads that source alone (or the mean of all at that
    position): their bias is 0, that of the target's other sources -inf. With queries of 0 attention
    is the interpolation alone.

    Args:
        graph: The sources that each target interpolates, such as ``knn(coarse, 3, queries=fine)``.
        pos: (S, d) coordinates of the sources; gradients flow, but not for a target at the position
            of a source.
        queries: (T, d) coordinates of the targets; ``pos`` itself by default.
        power: p.
    Returns:
        (E,) in the dtype of ``pos``, at least float32, in the order of the graph's edges. Computed
        in float64.
    Raises:
        ShapeError: If ``pos`` or ``queries`` has not one row for each source or target.
        GraphError: If ``graph`` is not a graph, ``power`` is not above 0 or a coordinate is not
            finite.
    Source:
        Shepard 1968; Qi et al. 2017 (PointNet++), equation (2), with p = 2 and 3 sources, and PyG's
        ``knn_interpolate``. *What differs:* no small number is added to a distance (1e-8 in
        pointops, which has p = 1).
    Example:
        >>> from graphattn.graphs import knn
        >>> coarse, fine = torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [3.0]])
        >>> bias = inverse_distance_bias(knn(coarse, 2, queries=fine), coarse, fine, power=1.0)
        >>> bias.view(2, 2).softmax(1)
        tensor([[0.6667, 0.3333],
                [1.0000, 0.0000]])
    """
    power = number(power, "power", "a number above 0", lambda p: 0 < p < float("inf"))
    places = []
    for rows, points, argument in (
        (graph.num_sources, pos, "pos"),
        (graph.num_targets, queries, "queries"),
    ):
        if points is None:
            points = pos
        check_shape(
            coordinates(points, argument), argument, (rows, "d"), "a row for each node of the graph"
        )
        if not isinstance(points, Tensor):
            points = torch.from_numpy(np.array(points, order="C"))
        places.append(points)
    sources, targets = places
    difference = sources.double()[graph.source] - targets.double()[graph.target]
    squared = (difference * difference).sum(1)
    there = squared == 0
    bias = -0.5 * power * torch.where(there, 1.0, squared).log()
    taken = torch.zeros(graph.num_targets, dtype=torch.bool, device=bias.device)
    taken[graph.target[there]] = True
    dtype = torch.promote_types(sources.dtype, torch.float32)
    return bias.masked_fill(taken[graph.target] & ~there, -torch.inf).to(dtype)
