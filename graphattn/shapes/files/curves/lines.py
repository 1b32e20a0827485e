"""Lines between points: edges of curves and trees, of files that have no faces."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..raw import Raw

#: The ends of lines, under the names of PLY.
ENDS = ("edge_vertex1", "edge_vertex2")
#: Columns of points that lines are made of.
ORDERED = ("order", "curve", "closed")


def with_edges(raw: Raw) -> Raw:
    """The contents with ``edge_index`` (2, E) of their lines: sorted, in both directions, once each.

    The ends of lines stay where lines have properties, too. Points that are repeated are a doubt.
    """
    if not set(ENDS) <= set(raw.others) or "edge_index" in raw.others:
        return raw
    ends = np.stack([raw.others[name] for name in ENDS]).astype(np.int64)
    count = len(raw.points["pos"])
    bad = np.flatnonzero(((ends < 0) | (ends >= count)).any(0))
    if len(bad):
        raise raw.blob.fault(
            f"edges of vertices 0 to {count - 1}",
            str(ends[:, bad[0]].tolist()),
            "check that counting starts at 0",
            at=f"edge {bad[0]}",
        )
    both = np.concatenate((ends, ends[::-1]), 1)
    edges = np.unique(both[:, both[0] != both[1]], axis=1)
    others = dict(raw.others)
    if edges.size:
        others["edge_index"] = edges
    if not any(name.startswith("edge_") for name in {*raw.others} - {*ENDS}):
        for name in ENDS:
            del others[name]
    pos = raw.points["pos"]
    same = edges[1, (pos[edges[0]] == pos[edges[1]]).all(1) & (edges[0] < edges[1])]
    doubt = raw.doubt
    if len(same) and "joint" not in raw.points:  # which may rest from frame to frame
        place = f"point {same.min()}"
        if raw.point_lines is not None:
            place = f"line {raw.blob.line(raw.point_lines[same.min()])}"
        doubt += f" {len(same):,} edges have no length, the first at {place}: leave repeats out"
    return replace(raw, others=others, doubt=doubt.strip())


def in_order(raw: Raw) -> Raw:
    """The contents of a text with lines through points by their column ``order``, in each ``curve``
    (0 without it).

    A curve of which ``closed`` is 1 goes back to its first point; a last point at the same place is
    left out.
    """
    assert raw.point_lines is not None  # of a text
    none = np.zeros(len(raw.point_lines))
    order, curve, closed = (raw.points.get(name, none) for name in ORDERED)
    at = np.lexsort((order, curve))
    before = np.roll(at, 1)
    is_same = curve[at] == curve[before]
    is_same[0] = False
    start = np.flatnonzero(~is_same)
    bad = is_same & ((order[at] == order[before]) | (closed[at] != closed[before]))
    bad |= ~np.isfinite(order + curve)[at] | ~np.isin(closed[at], (0, 1))
    if bad.any():
        point = at[bad.argmax()]
        raise raw.blob.fault(
            "in each curve every order once, and closed of 0 throughout or of 1",
            f"order {order[point]:g}, closed {closed[point]:g} in curve {curve[point]:g}",
            "number the points of each curve; one whose closed is 1 goes back to its first point",
            offset=raw.point_lines[point],
        )
    first = at[start]
    last = at[np.append(start[1:], len(at)) - 1]
    pos = raw.points["pos"]
    repeats = (closed[first] == 1) & (first != last) & (pos[first] == pos[last]).all(1)
    if repeats.any():
        keep = np.delete(np.arange(len(at)), last[repeats])
        points = {name: values[keep] for name, values in raw.points.items()}
        note = f"{repeats.sum():,} points left out, at which a closed curve repeats its first"
        lines = raw.point_lines[keep]
        return in_order(replace(raw, points=points, point_lines=lines, notes=(*raw.notes, note)))
    ends = along(np.append(start, len(at)), closed[first] == 1)
    return replace(raw, others=dict(zip(ENDS, at[ends].T, strict=True)))


def over_time(lines: np.ndarray, size: int, count: int) -> np.ndarray:
    """The ends of ``lines`` (L, 2) among ``size`` points in each of ``count`` frames, and of lines
    from each point to itself in the next frame.

    Example:
        >>> over_time(np.array([[0, 1]]), 2, 2).tolist()
        [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    frames = size * np.arange(count)
    within = (frames[:, None, None] + lines).reshape(-1, 2)
    before = np.arange(size * max(0, count - 1))
    return np.concatenate((within, np.stack((before, before + size), 1)))


def is_motion(shape: Any) -> bool:
    """True for the joints of a skeleton, frame by frame, as :func:`over_time` joins them."""
    if any(name not in shape for name in ("frame", "joint", "edge_index")):
        return False
    place = torch.arange(len(shape.pos))
    count = int(shape.joint.max()) + 1
    first = place - place % count
    return bool(((shape.joint == place - first) & (shape.frame == shape.frame[first])).all())


def along(start: np.ndarray, closed: np.ndarray | bool = False) -> np.ndarray:
    """The ends (L, 2) of lines along curves, of which each begins at a ``start`` (C + 1,).

    Example:
        >>> along(np.array([0, 3, 5])).tolist()
        [[0, 1], [1, 2], [3, 4]]
        >>> along(np.array([0, 3]), closed=True).tolist()
        [[0, 1], [1, 2], [2, 0]]
    """
    first = start[:-1]
    last = start[1:] - 1
    at = np.arange(start[-1])
    keep = np.ones(len(at), bool)
    keep[last] = closed
    following = at + 1
    following[last] = first
    return np.stack((at, following), 1)[keep]
