"""SWC: neurons, vessels and roots as trees of points with a radius.

Source: Cannon et al. 1998, "An on-line archive of reconstructed hippocampal neurons"; a line is
``number type x y z radius parent``, and the parent of a root is -1.
"""

import numpy as np

from ....io.numbers import clean, rows
from ....io.reading import PathLike, read
from ..raw import Contents, Raw, reads
from .lines import ENDS

_COLUMNS = 7


@reads(
    ".swc",
    contents=Contents(
        read="points, `type`, `radius`, `parent` (a row of the shape, -1 of a root), lines to it",
        noted="points that come before their parent; edges without length, which are warned of",
        refused="numbers that stand twice, parents that are no points, cycles",
    ),
)
def read_swc(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The points and the lines to their parents."""
    blob = clean(read(path, max_bytes), "#")
    table = rows(blob, blob.data, nonfinite=allow_nonfinite)
    expected = "number type x y z radius parent"
    table.refuse(table.width != _COLUMNS, blob, expected, "one point on each line")
    values = table.value.reshape(-1, _COLUMNS)
    number = values[:, 0]
    up = values[:, 6]
    lines = table.start[table.ptr[:-1]]
    order = np.argsort(number, kind="stable")
    twice = order[1:][number[order][1:] == number[order][:-1]]
    if len(twice):
        raise blob.fault(
            "a number for each point",
            f"{number[twice[0]]:g} a second time",
            "number the points once each",
            offset=lines[twice[0]],
        )
    is_root = up < 0
    place = np.searchsorted(number[order], up).clip(max=max(0, len(number) - 1))
    parent = order[place]
    missing = np.flatnonzero(~is_root & (number[parent] != up))
    if len(missing):
        raise blob.fault(
            "a parent that is a point of the file, or -1",
            f"{up[missing[0]]:g}",
            "get the whole file, or make the point a root",
            offset=lines[missing[0]],
        )
    parent[is_root] = -1
    looped = np.flatnonzero(~_reaches_root(parent))
    if len(looped):
        raise blob.fault(
            "a tree: parents that lead to a root",
            f"a cycle through the point {number[looped[0]]:g}",
            "correct the parent, or make one of the points a root (-1)",
            offset=lines[looped[0]],
        )
    at = np.flatnonzero(~is_root)
    notes = []
    late = int((parent[at] > at).sum())
    if late:
        notes.append(f"{late:,} points come before their parent")
    points = {"pos": values[:, 2:5], "radius": values[:, 5], "type": values[:, 1], "parent": parent}
    return Raw(
        blob,
        points,
        others=dict(zip(ENDS, (parent[at], at), strict=True)),
        notes=tuple(notes),
        point_lines=lines,
        text=True,
    )


def _reaches_root(parent: np.ndarray) -> np.ndarray:
    """True for points whose parents lead to a root, (N,): by steps of 1, 2, 4, ... parents."""
    above = np.append(parent, -1)  # the root of roots, of which -1 is the number
    for _ in range(len(parent).bit_length()):
        above = above[above]
    return above[:-1] < 0
