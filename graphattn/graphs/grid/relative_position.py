"""Relative positions of the ends of edges, as rows of a table of biases."""

import math

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.advice import no_graph
from ..arguments import axes, per_axis


def relative_position_index(
    graph: AttentionGraph,
    size: tuple[int, ...],
    window: tuple[int, ...] | int,
    *,
    source_size: tuple[int, ...] | None = None,
) -> Tensor:
    r"""The row of every edge in Swin's table of relative positions: position of the target minus that of the source.

    .. math:: \text{index}(s \to t) = (y_t - y_s + M_y - 1)(2 M_x - 1) + (x_t - x_s + M_x - 1)

    and so on for more axes. A table of biases (rows, H) gives ``score_bias = table[index]``, (E, H).

    Args:
        graph: A graph on a grid, numbered row by row.
        size: Length of every axis, (height, width) for an image; any number of axes.
        window: M, on every axis or one number for all: targets and sources are less than M steps apart. The cell of a
            partition; the kernel of a neighbourhood (``(kernel - 1) * dilation + 1`` of a dilated one).
        source_size: Length of every axis of the sources, if they are another grid that starts at the same node:
            the padded grid of ``window_partition(..., read_padding=True)``. ``size`` by default.
    Returns:
        int64 (E,) in the graph's edge order, on its device; the table has ``prod(2 M - 1)`` rows.
    Raises:
        GraphError: If the grid has another number of nodes, or an edge is longer than the table allows.
    Source:
        Liu et al. 2021 (Swin), ``relative_position_index``; Liu et al. 2022 (Video Swin) for three axes. *What
        differs:* T5 counts source minus target; a table that does is read at row ``prod(2 M - 1) - 1 - index``.
    Example:
        >>> from graphattn.graphs import window_partition
        >>> relative_position_index(window_partition((2, 2), 2), (2, 2), 2).view(4, 4)
        tensor([[4, 3, 1, 0],
                [5, 4, 2, 1],
                [7, 6, 4, 3],
                [8, 7, 5, 4]])
    """
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, "graph must be an AttentionGraph")
    targets = axes(size)
    sources = targets if source_size is None else axes(source_size)
    if len(sources) != len(targets):
        raise GraphError(f"source_size must have {len(targets)} axes as size, got {source_size!r}")
    wide = per_axis(window, len(targets), "window", 1)
    for argument, grid, count, side in (
        ("size", targets, graph.num_targets, "targets"),
        ("source_size", sources, graph.num_sources, "sources"),
    ):
        if math.prod(grid) != count:
            raise GraphError(f"{argument} must be a grid of the graph's {count} {side}, got {grid}")
    index, stride = torch.zeros_like(graph.target), 1
    t, s = graph.target, graph.source
    for axis in reversed(range(len(targets))):
        away, most = t % targets[axis] - s % sources[axis], wide[axis] - 1
        if away.numel() and int(away.abs().max()) > most:
            raise GraphError(
                f"window must be above the length of every edge, got window={wide[axis]} on axis {axis} "
                f"and an edge of {int(away.abs().max())} steps"
            )
        index += (away + most) * stride
        t, s, stride = t // targets[axis], s // sources[axis], stride * (2 * most + 1)
    return index
