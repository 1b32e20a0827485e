"""Pairs of calls that make graphs of points and meshes, or read them from files, beside what others take for it."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import ExactnessError
from ..graphs import knn, mesh_vertices, radius
from ..shapes import Shape, load, save
from .makers import icosphere, points

Call = Callable[[], Any]

_points = partial(points, sorted_along_curve=False)


def nearest(size: int) -> tuple[Call, Call]:
    """``knn`` and scipy's tree."""
    from scipy.spatial import cKDTree

    pos = _points(size)
    array = pos.numpy().astype(np.float64)
    return partial(knn, pos, 16), lambda: cKDTree(array).query(array, 17, workers=torch.get_num_threads())


def nearest_of_clouds(clouds: int, size: int) -> tuple[Call, Call]:
    """``knn`` of a batch, and a tree of each cloud."""
    from scipy.spatial import cKDTree

    pos, batch = _points(clouds * size), torch.arange(clouds).repeat_interleave(size)
    arrays = np.split(pos.numpy().astype(np.float64), clouds)
    return partial(knn, pos, 16, batch=batch), lambda: [cKDTree(own).query(own, 17) for own in arrays]


def within(size: int) -> tuple[Call, Call]:
    """``radius`` of about 16 points, and scipy's lists."""
    from scipy.spatial import cKDTree

    pos = _points(size)
    array = pos.numpy().astype(np.float64)
    reach = float(cKDTree(array).query(array[:1000], 17)[0][:, -1].mean())

    def lists() -> Any:
        return cKDTree(array).query_ball_point(array, reach, workers=torch.get_num_threads())

    return partial(radius, pos, reach), lists


def rings(level: int) -> tuple[Call, Call]:
    """``mesh_vertices``, and PyG's ``FaceToEdge``."""
    from torch_geometric.data import Data
    from torch_geometric.transforms import FaceToEdge

    size, faces = icosphere(level)
    transform = FaceToEdge(remove_faces=False)
    return partial(mesh_vertices, faces, size), lambda: transform(Data(face=faces.T, num_nodes=size))


def ply(size: int) -> tuple[Call, Call]:
    """``load``, and ``np.fromfile`` behind the header."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "points.ply"
    save(Shape(pos=_points(size)), path)

    def by_hand() -> torch.Tensor:
        with path.open("rb") as file:
            while file.readline() != b"end_header\n":
                pass
            return torch.from_numpy(np.fromfile(file, "<f4").reshape(size, 3))

    def ours(folder: Any = folder) -> Any:  # which lives as long as the call
        return load(path)

    if not torch.equal(ours().pos, by_hand()):
        raise ExactnessError(f"{path}: np.fromfile reads other positions than ga.load")
    return ours, by_hand
