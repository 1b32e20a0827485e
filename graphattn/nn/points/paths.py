"""Paths along the lines of curves and trees: their length, and how much they turn."""

import torch
from torch import Tensor

from ...arguments import check_shape
from ...graph import AttentionGraph, need_square
from ..vectors import angle_between, length_of

#: Lines of the longest path that is followed.
MOST_LINES = 16


def paths(graph: AttentionGraph, lines: AttentionGraph, pos: Tensor) -> Tensor:
    """The length of the path along lines between the ends of each edge, and the sum of its turns.

    A path has as few lines as can be, and of these the least length; both numbers are 0 where it
    would have more than 16, or there is none. Lines without length, between points at one place,
    have no direction to turn from.

    Args:
        graph: The graph of the edges.
        lines: The points that each point is joined with, in either direction or both.
        pos: (N, 3) positions.

    Returns:
        (E, 2) in the units of ``pos`` and in radians, in the graph's edge order.
    """
    need_square(lines, "lines")
    size = lines.num_targets
    check_shape(pos, "pos", (size, 3), "a row for each node of lines")
    edges = graph.target * size + graph.source
    both = (lines.target * size + lines.source, lines.source * size + lines.target)
    keys = torch.cat(both).unique()
    start = keys // size
    neighbour = keys % size
    at = neighbour  # the ends of paths that begin at start
    ptr = torch.searchsorted(start, torch.arange(size + 1, device=pos.device))
    step = pos[at] - pos[start]
    sums = torch.cat((length_of(step), torch.zeros_like(step[:, :1])), 1)
    parts = [(keys, sums)]
    unreached = edges[graph.source != graph.target].unique()
    num_left = len(unreached)
    for _ in range(1, MOST_LINES):
        num_left -= int(torch.isin(keys, unreached, assume_unique=True).sum())
        if not len(at) or not num_left:
            break
        # a point that is joined with the last one is new, or stands in the last two steps
        known = torch.cat([keys for keys, _ in parts[-2:]])
        # go on from the end of each path to the points that are joined with it
        count = ptr[at + 1] - ptr[at]
        path = torch.repeat_interleave(count)
        place = torch.arange(len(path), device=pos.device) - (count.cumsum(0) - count)[path]
        end = neighbour[ptr[at[path]] + place]
        is_new = ~torch.isin(start[path] * size + end, known) & (end != start[path])
        path = path[is_new]
        end = end[is_new]
        onward = pos[end] - pos[at[path]]
        turn = angle_between(step[path], onward)
        length = length_of(onward)
        sums = sums[path] + torch.cat((length, turn), 1)
        onward = torch.where(length > 0, onward, step[path])  # the direction of the last length
        keys = start[path] * size + end
        order = torch.argsort(sums[:, 0], stable=True)
        order = order[torch.argsort(keys[order], stable=True)]
        first = torch.ones_like(order, dtype=torch.bool)
        first[1:] = keys[order][1:] != keys[order][:-1]
        order = order[first]
        start = start[path[order]]
        at = end[order]
        step = onward[order]
        keys = keys[order]
        sums = sums[order]
        parts.append((keys, sums))
    known = torch.cat([keys for keys, _ in parts])
    values = torch.cat([sums for _, sums in parts])
    order = torch.argsort(known)
    place = torch.searchsorted(known[order], edges).clamp(max=max(0, len(known) - 1))
    if not len(known):
        return pos.new_zeros(len(edges), 2)
    place = order[place]
    return values[place] * (known[place] == edges)[:, None]
