"""Random changes of shapes that carry normals and faces along, as transforms of PyG.

PyG's own ``RandomJitter`` and ``RandomScale`` move no normal and are right as they are. Its
``RandomRotate`` and ``RandomFlip`` leave normals where they were, its ``FixedPoints`` leaves faces
that name points which are gone; it has none that stretches each axis. All draw from torch's random
numbers.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_shape, positive, probability, real, whole
from ..errors import OptionError, ShapeError
from ..graph.modes import without_autocast
from ..pyg import BaseTransform
from .shape import LATTICE


class _Linear(BaseTransform):
    """A matrix for positions and the cell, its inverse transpose for normals.

    Faces are reversed by a mirror.
    """

    def matrix(self) -> Tensor:
        """(3, 3) float64, drawn anew at each call."""
        raise NotImplementedError

    def forward(self, data: Any) -> Any:
        """The shape, changed."""
        matrix = self.matrix()
        pos = data.pos
        if "normal" in data:
            normal = data.get("normal")
        else:
            normal = None
        for name, value in (("pos", pos), ("normal", normal)):
            if value is not None:
                check_shape(value, f"{self!r}: {name}", (len(pos), 3))
            # a matrix in the type of integers would be truncated
            if value is not None and not value.is_floating_point():
                raise ShapeError(
                    f"{self!r}: {name} must be floats, got {value.dtype}; data.{name}.float() first"
                )
        with without_autocast(pos.device.type):
            data.pos = pos @ matrix.to(pos).T
            if data.get("cell") is not None:
                data.cell = data.cell @ matrix.to(data.cell).T
        if normal is not None:
            data.normal = _turned(normal, matrix)
        mirrored = bool(torch.linalg.det(matrix) < 0)
        for name in ("face_corner_normal", "face_texcoord"):
            if name in data:
                corner = data[name].unflatten(1, (3, -1))
                if name == "face_corner_normal":
                    corner = _turned(corner, matrix)
                if mirrored:
                    order = [0, 2, 1]
                else:
                    order = [0, 1, 2]
                data[name] = corner[:, order].flatten(1)
        if "face" in data and mirrored:
            data.face = data.face[[0, 2, 1]]
        return data


def _turned(normal: Tensor, matrix: Tensor) -> Tensor:
    """Normals (..., 3) that stay at right angles to what a matrix moves, as long as they were."""
    with without_autocast(normal.device.type):
        turned = normal @ torch.linalg.inv(matrix).to(normal)
    long = normal.norm(dim=-1, keepdim=True) / turned.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return turned * long


class RandomRotation(_Linear):
    r"""A rotation about any axis, or about one of them.

    Args:
        axis: 0, 1 or 2 for x, y, z; ``None`` draws from all rotations alike.
        degrees: Of the largest angle about ``axis``, either way.

    Example:
        >>> from torch_geometric.data import Data
        >>> cube = Data(pos=torch.eye(3), normal=torch.eye(3))
        >>> turned = RandomRotation()(cube)
        >>> torch.allclose(turned.pos, turned.normal)
        True
    """

    def __init__(self, axis: int | None = None, degrees: float = 180.0) -> None:
        if axis is None:
            self.axis = None
        else:
            self.axis = _axis(axis)
        self.degrees = real(degrees, "degrees")

    def matrix(self) -> Tensor:
        """Rotation matrix of a random unit quaternion, or of a random angle."""
        if self.axis is None:
            w, *xyz = torch.nn.functional.normalize(torch.randn(4, dtype=torch.float64), dim=0)
            turn = _cross(torch.stack(xyz))
            return torch.eye(3, dtype=torch.float64) + 2 * w * turn + 2 * turn @ turn
        angle = math.radians(self.degrees) * (2 * torch.rand((), dtype=torch.float64) - 1)
        turn = _cross(torch.eye(3, dtype=torch.float64)[self.axis])
        return (
            torch.eye(3, dtype=torch.float64) + angle.sin() * turn + (1 - angle.cos()) * turn @ turn
        )


class RandomStretch(_Linear):
    """Each axis scaled by its own factor, log-uniform from ``low`` to ``high``."""

    def __init__(self, low: float = 0.8, high: float = 1.25) -> None:
        self.low = positive(low, "low")
        self.high = positive(high, "high")
        if self.low > self.high:
            raise OptionError(f"low must not be above high, got {low} and {high}")

    def matrix(self) -> Tensor:
        """Diagonal."""
        low = math.log(self.low)
        high = math.log(self.high)
        return torch.diag(torch.exp(low + (high - low) * torch.rand(3, dtype=torch.float64)))


class RandomMirror(_Linear):
    """One axis mirrored with probability ``p``, normals and the order of face corners too."""

    def __init__(self, axis: int = 0, p: float = 0.5) -> None:
        self.axis = _axis(axis)
        self.p = probability(p, "p")

    def matrix(self) -> Tensor:
        """Diagonal."""
        sign = torch.ones(3, dtype=torch.float64)
        if torch.rand(()) < self.p:
            sign[self.axis] = -1.0
        else:
            sign[self.axis] = 1.0
        return torch.diag(sign)


class RandomDrop(BaseTransform):
    r"""Points dropped with a probability drawn from 0 to ``most``; at least one stays.

    Every tensor with a row for each point loses the same rows; faces that lose a corner and edges
    that lose an end go, the others are renumbered.
    """

    def __init__(self, most: float = 0.5) -> None:
        self.most = probability(most, "most")

    def forward(self, data: Any) -> Any:
        """The shape with fewer points."""
        size = len(data.pos)
        before_joined("RandomDrop", data)
        keep = torch.rand(size) >= self.most * torch.rand(())
        keep[torch.randint(size, ())] = True
        carried = of_faces(data)
        of_edges = _of_edges(data)
        keep_rows(data, keep, apart=("face", "edge_index", *carried, *of_edges))
        if "edge_index" in data:
            both_ends = keep[data.edge_index].all(0)
            data.edge_index = (keep.cumsum(0) - 1)[data.edge_index[:, both_ends]]
            for name in of_edges:
                data[name] = data[name][both_ends]
        if "face" in data:
            whole_faces = keep[data.face].all(0)
            data.face = (keep.cumsum(0) - 1)[data.face[:, whole_faces]]
            for name in carried:
                data[name] = data[name][whole_faces]
        return data


def of_faces(data: Any) -> list[str]:
    """Names of the tensors with a row for each face."""
    if "face" not in data:
        return []
    faces = data.face.shape[1]
    names = [name for name in data.keys() if name.startswith("face_")]  # noqa: SIM118 (no mapping)
    return [name for name in names if _has_rows(data[name], faces)]


def _of_edges(data: Any) -> list[str]:
    """Names of the tensors with a row for each edge."""
    if "edge_index" not in data:
        return []
    edges = data.edge_index.shape[1]
    return [
        name
        for name, value in data.items()
        if name.startswith(("edge_", "offsets")) and _has_rows(value, edges)
    ]


def _has_rows(value: Any, number: int) -> bool:
    """True for a tensor with so many rows."""
    return isinstance(value, Tensor) and value.shape[:1] == (number,)


def keep_rows(data: Any, keep: Tensor, apart: Sequence[str] = ()) -> None:
    """Keep points by index or bool (N,) in every tensor with a row for each, but those ``apart``.

    Of a shape of one point only the places have one: what else has one row may be about the whole
    shape.
    """
    size = len(data.pos)
    for name, value in list(data.items()):
        if name in (*apart, *LATTICE) or not _has_rows(value, size):
            continue
        if size > 1 or name == "pos":
            data[name] = value[keep]


def before_joined(transform: str, data: Any) -> None:
    """Refuse a batch, whose pointers name points."""
    if "batch" in data:
        raise ShapeError(
            f"{transform}: a batch; choose points of each shape before they are joined"
        )


def _axis(axis: object) -> int:
    number = whole(axis, "axis", 0)
    if number > 2:
        raise OptionError(f"axis must be 0, 1 or 2, got {number}")
    return number


def _cross(axis: Tensor) -> Tensor:
    """The matrix of the cross product with ``axis``."""
    x, y, z = axis
    zero = torch.zeros((), dtype=axis.dtype)
    return torch.stack((zero, -z, y, z, zero, -x, -y, x, zero)).reshape(3, 3)
