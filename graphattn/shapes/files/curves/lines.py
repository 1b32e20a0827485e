"""Lines between points: edges of curves and trees, of files that have no faces."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ....io.reading import Blob
from ..raw import Raw

#: The ends of lines, under the names of PLY.
ENDS = ("edge_vertex1", "edge_vertex2")
#: Columns of points that lines are made of.
ORDERED = ("order", "curve", "closed")


def with_edges(raw: Raw) -> Raw:
    """The contents with ``edge_index`` (2, E) of their lines: sorted, in both directions, once each.

    The ends of lines stay where lines have properties, too. Points that are repeated are noted.
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
    same = int((pos[edges[0]] == pos[edges[1]]).all(1).sum()) // 2
    notes = raw.notes
    if same:
        notes = (*notes, f"{same:,} edges have no length")
    return replace(raw, others=others, notes=notes)


def in_order(blob: Blob, points: dict[str, np.ndarray], lines: np.ndarray) -> dict[str, np.ndarray]:
    """The ends of lines through points by their column ``order``, in each ``curve`` (0 without it).

    A curve of which ``closed`` is not 0 goes back to its first point. ``lines`` are the offsets of
    the points in the file.
    """
    order = points["order"]
    size = len(order)
    curve = points.get("curve", np.zeros(size))
    closed = points.get("closed", np.zeros(size))
    at = np.lexsort((order, curve))
    is_first = np.append(True, np.diff(curve[at]) != 0)
    start = np.flatnonzero(is_first)
    twice = np.flatnonzero(~is_first[1:] & (np.diff(order[at]) == 0))
    if len(twice):
        point = at[twice[0] + 1]
        raise blob.fault(
            "points of a curve in an order",
            f"order {order[point]:g} a second time",
            "number the points of each curve once, with a column curve for several",
            offset=int(lines[point]),
        )
    ends = along(np.append(start, size), closed[at][start] != 0)
    return dict(zip(ENDS, at[ends].T, strict=True))


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
