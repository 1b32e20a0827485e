"""Paths along the lines of curves and trees: their length, and how much they turn."""

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ..vectors import angle_between, length_of

#: Lines of the longest path that is followed.
MOST_LINES = 16


def paths(graph: AttentionGraph, lines: AttentionGraph, pos: Tensor) -> Tensor:
    """The length of the path along lines between the ends of each edge, and the sum of its turns.

    A path has as few lines as can be, and of these the least length; both numbers are 0 where it
    would have more than 16, or there is none.

    Args:
        graph: The graph of the edges.
        lines: The points that each point is joined with, in both directions.
        pos: (N, d) positions.

    Returns:
        (E, 2) in the units of ``pos`` and in radians, in the graph's edge order.
    """
    size = len(pos)
    wanted = graph.target * size + graph.source
    ptr = torch.searchsorted(lines.target, torch.arange(size + 1, device=pos.device))
    start, at = lines.target, lines.source
    step = pos[at] - pos[start]
    found = torch.cat((length_of(step), torch.zeros_like(step[:, :1])), 1)
    keys = start * size + at
    every = [(keys, found)]
    between = wanted[graph.source != graph.target].unique()
    left = len(between)
    for _ in range(1, MOST_LINES):
        left -= int(torch.isin(keys, between, assume_unique=True).sum())
        if not len(at) or not left:
            break
        # a point that is joined with the last one is new, or stands in the last two steps
        known = torch.cat([keys for keys, _ in every[-2:]])
        # go on from the end of each path to the points that are joined with it
        count = ptr[at + 1] - ptr[at]
        path = torch.repeat_interleave(count)
        place = torch.arange(len(path), device=pos.device) - (count.cumsum(0) - count)[path]
        end = lines.source[ptr[at[path]] + place]
        is_new = ~torch.isin(start[path] * size + end, known) & (end != start[path])
        path, end = path[is_new], end[is_new]
        onward = pos[end] - pos[at[path]]
        turn = angle_between(step[path], onward)
        found = found[path] + torch.cat((length_of(onward), turn), 1)
        keys = start[path] * size + end
        order = torch.argsort(found[:, 0], stable=True)
        order = order[torch.argsort(keys[order], stable=True)]
        first = torch.ones_like(order, dtype=torch.bool)
        first[1:] = keys[order][1:] != keys[order][:-1]
        order = order[first]
        start, at, step = start[path[order]], end[order], onward[order]
        keys, found = keys[order], found[order]
        every.append((keys, found))
    known = torch.cat([keys for keys, _ in every])
    values = torch.cat([found for _, found in every])
    order = torch.argsort(known)
    place = torch.searchsorted(known[order], wanted).clamp(max=max(0, len(known) - 1))
    if not len(known):
        return pos.new_zeros(len(wanted), 2)
    place = order[place]
    return values[place] * (known[place] == wanted)[:, None]
