"""Small inputs for the patterns that need some: points and faces, the same on every machine."""

import math

import torch

__all__ = ["octahedron_faces", "sphere"]


def _fibonacci_sphere(num_points: int) -> torch.Tensor:
    step = torch.arange(num_points, dtype=torch.float64) + 0.5
    height, angle = 1 - 2 * step / num_points, step * math.pi * (3 - math.sqrt(5))
    ring = (1 - height**2).sqrt()
    return torch.stack((ring * angle.cos(), ring * angle.sin(), height), 1)


#: 48 points spread evenly on the unit sphere, from top to bottom; float64 (48, 3).
sphere = _fibonacci_sphere(48)

#: The 8 triangles over 6 vertices; int64 (8, 3).
octahedron_faces = torch.tensor(
    [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1], [5, 2, 1], [5, 3, 2], [5, 4, 3], [5, 1, 4]]
)
