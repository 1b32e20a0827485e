"""Shapes before they are read: a part of their points, centred and scaled."""

from typing import Any

import torch
from torch import Tensor

from ...io.reading import fault
from ...nn.points.mesh_geometry import in_space
from ...shapes import Shape
from ...shapes.files.curves.lines import is_motion, over_time
from ...shapes.seeded import seeded


def radius_of(pos: Tensor) -> Tensor:
    """The largest distance of positions (N, d) from their mean."""
    return (pos - pos.mean(0)).norm(dim=1).max()


def placed(pos: Tensor, scale: float, name: str) -> Tensor:
    """Positions (N, 3) from their mean in units of ``scale``, or of the largest distance from it.

    Points of a plane get a third coordinate of 0.
    """
    if not len(pos):
        raise fault(name, "points", "none", "leave the file out")
    pos = in_space(pos.double())
    if not torch.isfinite(pos).all():
        raise fault(name, "finite positions", "NaN or infinity", "repair it")
    pos = pos - pos.mean(0)
    radius = float(pos.norm(dim=1).max())
    if not radius > 1e-12:
        if len(pos) == 1:
            got = "one point"
        else:
            got = f"{len(pos)} points at one place"
        raise fault(name, "points at different places", got, "leave the file out")
    return (pos / (scale or radius)).float()


def sampled(shape: Any, size: int) -> Any:
    """Points, ``size`` of them and the same each time: on faces, with ``face_normal``, or some of a cloud.

    Of a motion every k-th frame, for at most so many points, or the first frame.
    """
    num_points = len(shape.pos)
    if num_points > size and is_motion(shape):
        return _of_frames(shape, size)
    points = {name: x for name, x in shape.items() if name != "edge_index" or num_points <= size}
    floats = {
        name: x
        for name, x in points.items()
        if torch.is_tensor(x) and len(x) == num_points and x.is_floating_point()
    }
    with seeded(0):
        if "face" in shape:
            corners, share, normal = _on_faces(shape.pos.float(), shape.face, size)
            if len(share):
                interpolated = {
                    name: torch.einsum("nk,nk...->n...", share, x[corners].float())
                    for name, x in floats.items()
                }
                return Shape({"y": shape.get("y"), "face_normal": normal} | interpolated)
        if num_points <= size:
            return shape
        keep = torch.randperm(num_points)[:size].sort().values
    rows = {
        name: value[keep]
        for name, value in points.items()
        if torch.is_tensor(value) and len(value) == num_points
    }
    return Shape(points | rows)


def _of_frames(shape: Any, size: int) -> Any:
    """Every k-th frame of a motion, and lines within it and from one to the next."""
    num_points = len(shape.pos)
    joints = int(shape.joint.max()) + 1
    frames = num_points // joints
    kept = torch.arange(0, frames, -(-frames // max(1, size // joints)))
    rows = (joints * kept[:, None] + torch.arange(joints)).flatten()
    tree = shape.edge_index[:, (shape.edge_index < joints).all(0)]
    lines = torch.from_numpy(over_time(tree.T.numpy(), joints, len(kept))).T
    tensors = {name: x for name, x in shape.items() if torch.is_tensor(x)}
    thinned = {name: x[rows] for name, x in tensors.items() if len(x) == num_points}
    return Shape(
        {**shape, **thinned, "edge_index": torch.cat((lines, lines.flip(0)), 1).unique(dim=1)}
    )


def _on_faces(pos: Tensor, face: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Points drawn by area: corners of their faces, barycentric shares, normals, (size, 3).

    There are none on faces without area.
    """
    a, b, c = pos[face]
    across = torch.linalg.cross(b - a, c - a)
    area = across.norm(dim=1)
    if not (len(area) and torch.isfinite(area).all() and area.any()):
        return face.new_zeros(0, 3), pos.new_zeros(0, 3), pos.new_zeros(0, 3)
    u, v = torch.rand(2, size)
    u, v = torch.where(u + v > 1, torch.stack((1 - u, 1 - v)), torch.stack((u, v)))
    face_ids = torch.multinomial(area, size, replacement=True)
    return (
        face[:, face_ids].T,
        torch.stack((1 - u - v, u, v), 1),
        across[face_ids] / area[face_ids, None],
    )
