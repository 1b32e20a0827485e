"""Pooling along a graph: the features of a target's sources as one vector."""

from typing import Any

import torch
from torch import Tensor

from ...arguments import check_shape, one_of
from ...functional import attention
from ...graph import AttentionGraph, need_graph
from ...plans.edge_tensors import EdgeTensors
from ..biases.constant import of_edges, sources, targets
from ..geometry import relative_positions

POOLS = ("mean", "max", "sum")


def pool(x: Tensor, graph: AttentionGraph | EdgeTensors, how: str = "mean") -> Tensor:
    """The mean, maximum or sum of the features of each target's sources, channel by channel.

    The mean is attention whose scores are all 0. Pooling by attention is :class:`GraphAttention` on
    the same graph, and interpolation is :func:`graphattn.attention` with the bias of
    :func:`graphattn.nn.inverse_distance_bias`.

    Args:
        x: (..., S, C).
        graph: T targets and S sources, such as a level's ``down`` or ``up``.
        how: "mean", "max" or "sum".
    Returns:
        (..., T, C); 0 for a target without sources.
    Raises:
        ShapeError: If ``x`` has not one row for each source.
    Example:
        >>> import torch, graphattn as ga
        >>> pool(torch.tensor([[1.0], [3.0], [5.0]]), ga.graphs.clusters(torch.tensor([0, 1, 1])), "max").tolist()
        [[1.0], [5.0]]
    """
    one_of(how, "how", POOLS)
    _check(x, graph, "pool")
    if how == "max":
        blank = x.new_zeros(*x.shape[:-2], graph.num_targets, 1)
        rows = graph.ends(x, blank)[0]
        return largest(rows.index_select(-2, sources(graph, x.device)), graph)
    blank = x.new_zeros(*x.shape[:-2], graph.num_targets, 1, 1)
    mean: Any = attention(blank, x.new_zeros(*x.shape[:-1], 1, 1), x.unsqueeze(-2), graph)
    mean = mean.squeeze(-2)
    if how == "mean":
        return mean
    if graph._is_constant:
        degrees = of_edges(graph, _degrees, device=x.device)
    else:
        degrees = _degrees(graph)
    return mean * graph._own_targets(degrees, 0).to(x.dtype)


def inverse_distance_interpolate(
    x: Tensor, graph: AttentionGraph | EdgeTensors, pos: Tensor, queries: Tensor | None = None
) -> Tensor:
    """The mean of a target's sources, weighed by the inverse squares of their distances.

    Attention with the bias of :func:`graphattn.nn.inverse_distance_bias`, for positions already
    known to be finite; a part of models that torch.compile can trace.

    Args:
        x: (..., S, C).
        graph: T targets and S sources, such as a level's ``up``.
        pos: (S, d) positions of the sources, as in :func:`graphattn.nn.relative_positions`;
            ``queries`` (T, d) those of the targets.
    Returns:
        (..., T, C); a target at the position of sources has their mean.
    Source:
        Qi et al. 2017 (PointNet++), equation 2.
    Example:
        >>> import torch, graphattn as ga
        >>> coarse, fine = torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [3.0]])
        >>> graph = ga.graphs.knn(coarse, 2, queries=fine)
        >>> inverse_distance_interpolate(torch.tensor([[0.0], [5.0]]), graph, coarse, fine).tolist()
        [[1.0], [5.0]]
    """
    _check(x, graph, "interpolate")
    squared = relative_positions(graph, pos, queries).double().square().sum(-1)
    coincident = squared == 0
    target = targets(graph, pos.device)
    has_coincident = (
        coincident.new_zeros(graph._num_target_rows, dtype=torch.int64).index_add(
            0, target, coincident.long()
        )
        > 0
    )
    bias = -squared.masked_fill(coincident, 1.0).log()
    bias = bias.masked_fill(has_coincident[target] & ~coincident, -torch.inf).to(x.dtype)
    blank = x.new_zeros(*x.shape[:-2], graph.num_targets, 1, 1)
    output: Any = attention(
        blank, x.new_zeros(*x.shape[:-1], 1, 1), x.unsqueeze(-2), graph, score_bias=bias
    )
    output = output.squeeze(-2)
    return output


def _check(x: Tensor, graph: AttentionGraph | EdgeTensors, subject: str) -> None:
    if not isinstance(graph, EdgeTensors):
        need_graph(graph, subject)
    check_shape(x, "x", (..., graph.num_sources, "C"), "a row for each source")


def _degrees(graph: AttentionGraph | EdgeTensors) -> Tensor:
    return graph.in_degree.unsqueeze(-1)


def largest(values: Tensor, graph: AttentionGraph | EdgeTensors) -> Tensor:
    """(..., T, C): the largest of ``values`` (..., E, C) over the edges into each target, or 0
    without any.
    """
    slots = targets(graph, values.device).unsqueeze(-1).expand_as(values)
    empty = values.new_zeros(*values.shape[:-2], graph._num_target_rows, values.shape[-1])
    return graph._own_targets(
        empty.scatter_reduce(-2, slots, values, "amax", include_self=False), -2
    )
