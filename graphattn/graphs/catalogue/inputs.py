"""Small inputs for the patterns that need some: points and faces, the same on every machine."""

import math

import torch

__all__ = ["cells", "octahedron_faces", "sphere", "square", "two_clouds"]


def _fibonacci_sphere(num_points: int) -> torch.Tensor:
    step = torch.arange(num_points, dtype=torch.float64) + 0.5
    height, angle = 1 - 2 * step / num_points, step * math.pi * (3 - math.sqrt(5))
    ring = (1 - height**2).sqrt()
    return torch.stack((ring * angle.cos(), ring * angle.sin(), height), 1)


#: 48 points spread evenly on the unit sphere, from top to bottom; float64 (48, 3).
sphere = _fibonacci_sphere(48)

_powers = torch.tensor([0.7548776662, 0.5698402910], dtype=torch.float64)
#: 48 points spread over the unit square, in no order that follows their places; float64 (48, 2). (Roberts' sequence:
#: multiples of the powers of 1 / 1.3247..., the root of x**3 = x + 1, without their whole parts.)
square = torch.arange(1, 49)[:, None] * _powers % 1

#: The cloud of every point where ``square`` or ``sphere`` is taken for two, of 20 and 28 points; int64 (48,).
two_clouds = (torch.arange(48) >= 20).long()

#: The cells of a grid of 8 x 8, row by row; int64 (64, 2).
cells = torch.cartesian_prod(torch.arange(8), torch.arange(8))

#: The 8 triangles over 6 vertices; int64 (8, 3).
octahedron_faces = torch.tensor(
    [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1], [5, 2, 1], [5, 3, 2], [5, 4, 3], [5, 1, 4]]
)
