"""Simulations for examples and benchmarks: advection and diffusion on triangle meshes with holes."""

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.spatial import Delaunay

import graphattn as ga

WIND = np.array([0.5, 0.2])
SUBSTEPS = 40


def holed_square(rng: np.random.Generator, spacing: float = 0.05):
    """Vertices (N, 2) and triangles (F, 3) of a unit square with up to three round holes."""
    holes = []
    for _ in range(8):  # of which those that overlap with one before are left out
        centre, radius = rng.uniform(0.22, 0.78, 2), rng.uniform(0.07, 0.12)
        if all(np.linalg.norm(centre - c) > radius + r + 2 * spacing for c, r in holes[:3]):
            holes.append((centre, radius))
    holes = holes[:3]
    side = np.arange(0, 1 + 1e-9, spacing)
    inner = np.stack(np.meshgrid(side[1:-1], side[1:-1]), -1).reshape(-1, 2)
    inner = inner + rng.uniform(-0.25, 0.25, inner.shape) * spacing
    rim = [np.stack((side, np.full_like(side, edge)), 1) for edge in (0.0, 1.0)]
    rim += [points[1:-1, ::-1] for points in rim]
    for centre, radius in holes:
        inner = inner[np.linalg.norm(inner - centre, axis=1) > radius + 0.5 * spacing]
        angle = np.linspace(0, 2 * np.pi, int(2 * np.pi * radius / spacing) + 1)[:-1]
        rim.append(centre + radius * np.stack((np.cos(angle), np.sin(angle)), 1))
    pos = np.concatenate((inner, *rim))
    faces = Delaunay(pos).simplices
    middle = pos[faces].mean(1)
    for centre, radius in holes:
        faces = faces[np.linalg.norm(middle - centre, axis=1) > radius]
        middle = pos[faces].mean(1)
    return pos, faces, len(inner)


def flow(
    seed: int, steps: int = 51, dt: float = 0.01, spacing: float = 0.05
) -> "ga.shapes.Trajectory":
    """A cloud that a wind carries while it spreads, the faster the denser it is; nothing leaves.

    Linear finite elements with lumped masses: the mass of ``u`` stays the same to rounding.
    """
    rng = np.random.default_rng(seed)
    pos, faces, num_inner = holed_square(rng, spacing)
    corners = pos[faces]
    edge = np.roll(corners, -1, 1) - np.roll(corners, 1, 1)  # opposite to each corner
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]) / 2
    gradient = np.stack((edge[..., 1], -edge[..., 0]), -1) / (2 * area[:, None, None])
    area = np.abs(area)
    mass = np.bincount(faces.ravel(), np.repeat(area / 3, 3))
    gather = coo_matrix(
        (np.ones(faces.size), (faces.ravel(), np.arange(faces.size))), (len(pos), faces.size)
    ).tocsr()
    u = np.zeros(len(pos))
    for centre in rng.uniform(0.15, 0.85, (4, 2)):
        u += rng.uniform(0.4, 1) * np.exp(-((pos - centre) ** 2).sum(1) / (2 * 0.08**2))
    states = [u]
    for _ in range(steps - 1):
        for _ in range(SUBSTEPS):
            of_cell = u[faces].mean(1)
            slope = np.einsum("fc,fcd->fd", u[faces], gradient)
            flux = of_cell[:, None] * WIND - 0.012 * (1 + 2 * of_cell**2)[:, None] * slope
            part = np.einsum("f,fd,fcd->fc", area, flux, gradient)
            u = u + dt / SUBSTEPS * (gather @ part.ravel()) / mass
        states.append(u)
    kinds = torch.zeros(len(pos), dtype=torch.int64)
    kinds[num_inner:] = 1  # walls
    return ga.shapes.Trajectory(
        torch.from_numpy(pos).float(),
        {"u": torch.from_numpy(np.stack(states)).float()},
        cells=[("triangle", torch.from_numpy(faces.astype(np.int64)))],
        kinds=kinds,
        dt=dt,
        name=f"flow {seed}",
    )
