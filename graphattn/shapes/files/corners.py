"""Texture coordinates and normals that differ between the corners at a vertex: seams."""

from dataclasses import replace

import numpy as np

from .polygons import merge
from .raw import Raw

#: By the word of points: the name where corners differ.
OF_CORNERS = {"uv": "face_texcoord", "normal": "face_corner_normal"}
_ENDS = ("edge_vertex1", "edge_vertex2", "edge_index")  # numbers of vertices


def at_vertices(
    vertex: np.ndarray, values: np.ndarray, num: int, word: str
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], tuple[str, ...]]:
    """Values (K, k) of corners as those of points, or of corners where they differ, and a note.

    Points have normals in both cases: the direction of the mean of those that differ.
    """
    points = np.zeros((num, values.shape[1]), values.dtype)
    points[vertex] = values
    differs = np.unique(vertex[(points[vertex] != values).any(1)])
    if not len(differs):
        return {word: points}, {}, ()
    name = OF_CORNERS[word]
    note = (
        f"{word} differs between the corners of {len(differs):,} vertices: {name} has it by corner"
    )
    if word == "uv":
        return {}, {name: values}, (note,)
    return (
        {word: mean_normals(vertex, values, num)},
        {name: values},
        (f"{note}, normal is the mean",),
    )


def mean_normals(vertex: np.ndarray, normals: np.ndarray, num: int) -> np.ndarray:
    """The direction (N, 3) of the mean of the distinct normals at each vertex; 0 without one.

    Where all are the same, it is as long as they are. A polygon that is cut into triangles changes
    nothing.

    Example:
        >>> mean_normals(np.array([0, 0, 1]), np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 2]]), 2).round(3).tolist()
        [[0.707, 0.707, 0.0], [0.0, 0.0, 2.0]]
    """
    normals = normals.astype(np.result_type(normals, np.float32), copy=False)
    pairs, first = np.unique(np.column_stack((vertex, normals)), axis=0, return_index=True)
    owner = vertex[first]
    count = np.bincount(owner, minlength=num)
    length = np.linalg.norm(pairs[:, 1:], axis=1, keepdims=True)
    unit = pairs[:, 1:] / np.maximum(length, np.finfo(float).tiny)
    total = np.stack([np.bincount(owner, column, num) for column in unit.T], axis=1)
    length = np.linalg.norm(total, axis=1, keepdims=True)
    out = (total / np.maximum(length, np.finfo(float).tiny)).astype(normals.dtype)
    alone = count[owner] == 1
    out[owner[alone]] = normals[first][alone]
    return out


def welded(raw: Raw) -> Raw:
    """Faces with one vertex per place; what differs there goes to corners."""
    pos, number = merge(raw.points["pos"])
    joined = len(number) - len(pos)
    if not joined:
        return raw
    if not len(raw.corner):
        raise raw.blob.fault("a mesh with faces to weld", "points alone", "weld=False")
    first = np.full(len(pos), len(number))
    np.minimum.at(first, number, np.arange(len(number)))
    corner = number[raw.corner]
    points = {"pos": pos}
    corners = dict(raw.corners)
    notes = [*raw.notes, f"{joined:,} vertices joined with another at the same place"]
    for name, values in raw.points.items():
        if name == "pos":
            continue
        if name in OF_CORNERS and OF_CORNERS[name] not in corners:
            by_vertex, by_corner, words = at_vertices(corner, values[raw.corner], len(pos), name)
            points |= by_vertex
            corners |= by_corner
            notes += words
            continue
        points[name] = values[first]
        other = points[name][number] != values
        differs = len(np.unique(number[other.reshape(len(number), -1).any(1)]))
        if differs:
            notes.append(f"{name} differs at {differs:,} places: that of the first vertex is kept")
    others = dict(raw.others)
    for name in _ENDS:
        if name in others and others[name].dtype.kind in "iu":
            others[name] = number[others[name]]
    # a line of the file is no longer a row
    return replace(
        raw,
        points=points,
        corner=corner,
        corners=corners,
        others=others,
        notes=tuple(notes),
        point_lines=None,
    )
