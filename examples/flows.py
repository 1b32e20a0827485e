"""Simulations for examples and benchmarks: advection and diffusion on triangle meshes with holes,
a tracer in the winds of a sphere, and grains that fall between walls.
"""

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


def whirls(seed: int, steps: int = 31, rows: int = 24) -> "ga.shapes.Trajectory":
    """A tracer that the wind of four moving whirls carries over a sphere; forcing is the wind.

    The nodes are a grid of latitudes and longitudes, the first and the last row half a step from
    the poles. The wind is east and north, in radians a step. The tracer is exact: each node's is
    that of the place where its air was at first, followed back in time.
    """
    rng = np.random.default_rng(seed)
    lat = (np.arange(rows) + 0.5) * 180 / rows - 90
    lon = np.arange(2 * rows) * 180 / rows
    pos = ga.graphs.on_sphere(*np.meshgrid(lat, lon, indexing="ij")).numpy()
    centres, axes, blobs = _directions(rng, 4), _directions(rng, 4), _directions(rng, 6)
    speeds = rng.uniform(0.2, 0.35, 4) * rng.choice([-1, 1], 4)
    widths = rng.uniform(0.25, 0.4, 6) * (24 / rows)  # which the grid resolves
    heights = rng.uniform(0.5, 1, 6)
    still = (centres * axes).sum(1, keepdims=True) * axes

    def wind(x, time):
        angle = 0.06 * time  # of the centres about their axes
        place = still + (centres - still) * np.cos(angle) + np.cross(axes, centres) * np.sin(angle)
        return np.cross((speeds * np.exp((x @ place.T - 1) / 0.5**2)) @ place, x)

    states = []
    for step in range(steps):
        x = pos
        for time in range(step, 0, -1):  # Runge and Kutta's fourth order, backwards
            a = wind(x, time)
            b = wind(x - a / 2, time - 0.5)
            c = wind(x - b / 2, time - 0.5)
            d = wind(x - c, time - 1)
            x = x - (a + 2 * b + 2 * c + d) / 6
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
        states.append((heights * np.exp((x @ blobs.T - 1) / widths**2)).sum(1))
    east = np.cross([0, 0, 1], pos)
    east = east / np.linalg.norm(east, axis=1, keepdims=True)
    axes_here = np.stack((east, np.cross(pos, east)), 1)  # (N, 2, 3)
    winds = np.stack([np.einsum("nad,nd->na", axes_here, wind(pos, t)) for t in range(steps)])
    return ga.shapes.Trajectory(
        torch.from_numpy(pos).float(),
        {"tracer": torch.from_numpy(np.stack(states)).float()},
        forcing={"wind": torch.from_numpy(winds).float()},
        name=f"whirls {seed}",
    )


def _directions(rng: np.random.Generator, number: int) -> np.ndarray:
    """Unit vectors (number, 3)."""
    vectors = rng.normal(size=(number, 3))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


GRAINS = 36
BOX = "cell=((1, 0), (0, 1)), pbc=(True, False)"  # periodic along x


def grains(seed: int, steps: int = 61) -> "ga.shapes.Trajectory":
    """Soft discs of diameter 0.1 that fall, collide and pile up, in a box that is periodic along x.

    The walls, below at 0 and above at 1, are nodes that are fixed, of a kind of their own.
    Positions go on across the border of the box: none jumps.
    """
    diameter, stiffness, friction, gravity, substeps = 0.1, 0.08, 0.06, 4e-4, 10
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid((np.arange(9) + 0.5) / 9, (np.arange(8) + 0.5) / 8), -1)
    pos = rng.permutation(places.reshape(-1, 2))[:GRAINS] + rng.uniform(-5e-3, 5e-3, (GRAINS, 2))
    speed = rng.normal(0, 6e-3, (GRAINS, 2))
    speed[:, 0] += rng.uniform(-8e-3, 8e-3)
    states = [pos]
    for _ in range(steps - 1):
        for _ in range(substeps):
            offset = pos[:, None] - pos
            offset[..., 0] -= np.round(offset[..., 0])
            distance = np.linalg.norm(offset, axis=2) + np.eye(GRAINS)
            normal = offset / distance[..., None]
            overlap = np.maximum(diameter - distance, 0)
            apart = ((speed[:, None] - speed) * normal).sum(2)
            push = stiffness * overlap - friction * apart * (overlap > 0)
            force = (push[..., None] * normal).sum(1)
            force[:, 1] -= gravity
            for wall, side in ((0, 1), (1, -1)):
                overlap = np.maximum(diameter / 2 - side * (pos[:, 1] - wall), 0)
                force[:, 1] += 2 * side * stiffness * overlap
                force[:, 1] -= friction * speed[:, 1] * (overlap > 0)
            speed = speed + force / substeps
            pos = pos + speed / substeps
        states.append(pos)
    along = np.arange(0, 1, diameter / 2)
    walls = np.concatenate([np.stack((along, np.full_like(along, y)), 1) for y in (0, 1)])
    walls = np.broadcast_to(walls, (steps, *walls.shape))
    nodes = torch.from_numpy(np.concatenate((np.stack(states), walls), 1)).float()
    kinds = (torch.arange(nodes.shape[1]) >= GRAINS).long()
    return ga.shapes.Trajectory(
        nodes, {"pos": nodes}, fixed=kinds == 1, kinds=kinds, name=f"grains {seed}"
    )
