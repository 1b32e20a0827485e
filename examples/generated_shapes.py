"""Generated shapes to train on: ``python examples/generated_shapes.py KIND FOLDER``, of the kinds
at the end.

Point clouds of ten families, and of others: any rotation, axes stretched by 0.8 to 1.25, noise of 1
% of the radius. Clouds of stacked parts, with the part of each point; meshes of bumpy balls, with
the curvature at each vertex; meshes of other balls, in classes of local relief; bent tubes, with
the distance that a walk from a marked vertex takes; both with the heat that a marked vertex has
spread; machine parts with defects; simulated LiDAR scans.
"""

import argparse
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.random import Generator, default_rng

import graphattn as ga

TURN = 2 * np.pi


def on_sphere(n: int, r: Generator) -> np.ndarray:
    """Of radius 1."""
    v = r.normal(size=(n, 3))
    return v / np.linalg.norm(v, axis=1, keepdims=True)


def part(areas: list[float], n: int, r: Generator) -> np.ndarray:
    """The part of a surface that each point is on."""
    return r.choice(len(areas), n, p=np.array(areas) / sum(areas))


def polar(radius: np.ndarray | float, angle: np.ndarray, z: np.ndarray | float) -> np.ndarray:
    """(n, 3)."""
    return np.stack(np.broadcast_arrays(radius * np.cos(angle), radius * np.sin(angle), z), 1)


def box(n: int, r: Generator, sides: np.ndarray | None = None) -> np.ndarray:
    """The surface of a box."""
    e = r.uniform(0.6, 1.5, 3) if sides is None else sides
    axis = part([e[1] * e[2], e[0] * e[2], e[0] * e[1]], n, r)
    p = r.uniform(-0.5, 0.5, (n, 3))
    p[np.arange(n), axis] = r.choice([-0.5, 0.5], n)
    return p * e


def cylinder(
    n: int, r: Generator, radius: float = 1.0, height: float | None = None, caps: bool = True
) -> np.ndarray:
    """With its two caps, or open."""
    h = r.uniform(1, 3) if height is None else height
    side = part([h, radius * caps], n, r) == 0
    rho = np.where(side, radius, radius * np.sqrt(r.random(n)))
    z = np.where(side, (r.random(n) - 0.5) * h, r.choice([-0.5, 0.5], n) * h)
    return polar(rho, r.random(n) * TURN, z)


def cone(n: int, r: Generator, radius: float = 1.0, height: float | None = None) -> np.ndarray:
    """With its base at z = 0."""
    h = r.uniform(1.2, 3) if height is None else height
    side, s = part([np.hypot(radius, h), radius], n, r) == 0, np.sqrt(r.random(n))
    return polar(radius * s, r.random(n) * TURN, np.where(side, h * (1 - s), 0))


def torus(n: int, r: Generator) -> np.ndarray:
    """A tube of 0.2 to 0.45 of the ring's radius."""
    a, u = r.uniform(0.2, 0.45), r.random(9 * n) * TURN
    u = u[r.random(9 * n) < (1 + a * np.cos(u)) / (1 + a)][:n]
    return polar(1 + a * np.cos(u), r.random(n) * TURN, a * np.sin(u))


def capsule(n: int, r: Generator) -> np.ndarray:
    """At least 1.5 radii between the half spheres."""
    length = r.uniform(1.5, 3)
    ends, middle = on_sphere(n, r), cylinder(n, r, 1.0, length, caps=False)
    ends[:, 2] += np.sign(ends[:, 2]) * length / 2
    return np.where(part([2, length], n, r)[:, None] == 0, ends, middle)


def annulus(n: int, r: Generator) -> np.ndarray:
    """Flat."""
    a = r.uniform(0, 0.6)
    return polar(np.sqrt(a * a + (1 - a * a) * r.random(n)), r.random(n) * TURN, 0.0)


def helix(n: int, r: Generator) -> np.ndarray:
    """A thin tube of 2 to 4 turns."""
    turns, height, tube = r.uniform(2, 4), r.uniform(1, 3), r.uniform(0.06, 0.12)
    along, around = r.random(n), r.random(n) * TURN
    return polar(
        1 + tube * np.cos(around), along * turns * TURN, height * along + tube * np.sin(around)
    )


def dumbbell(n: int, r: Generator) -> np.ndarray:
    """Two spheres that do not touch."""
    gap, b = r.uniform(1.3, 2.5), r.uniform(0.5, 1)
    second, p = part([1, b * b], n, r) == 1, on_sphere(n, r)
    p[second] *= b
    p[second, 2] += gap * (1 + b) / 2
    return p


def saddle(n: int, r: Generator) -> np.ndarray:
    """z = k (x^2 - y^2)."""
    p = r.uniform(-1, 1, (n, 2))
    return np.c_[p, r.uniform(0.4, 1) * (p[:, 0] ** 2 - p[:, 1] ** 2)]


def sphere(n: int, r: Generator) -> np.ndarray:
    """Of radius 1."""
    return on_sphere(n, r)


FAMILIES: dict[str, Callable[[int, Generator], np.ndarray]] = {
    made.__name__: made
    for made in (sphere, box, cylinder, cone, torus, capsule, annulus, helix, dumbbell, saddle)
}


def tetrahedron(n: int, r: Generator) -> np.ndarray:
    """Regular."""
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1.0]])
    weights = r.dirichlet(np.ones(3), n)
    faces = np.array([[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]])[r.integers(4, size=n)]
    return (weights[:, :, None] * corners[faces]).sum(1)


def bowl(n: int, r: Generator) -> np.ndarray:
    """A half sphere, open."""
    p = on_sphere(n, r)
    return np.c_[p[:, :2], abs(p[:, 2])]


def moebius(n: int, r: Generator) -> np.ndarray:
    """A band with a half turn."""
    a, across = r.random(n) * TURN, r.uniform(-0.4, 0.4, n)
    return polar(1 + across * np.cos(a / 2), a, across * np.sin(a / 2))


def cross(n: int, r: Generator) -> np.ndarray:
    """Three bars at right angles."""
    bar, length = box(n, r, np.array([0.3, 0.3, r.uniform(1.5, 2.5)])), r.integers(3, size=n)
    return np.stack([np.roll(row, k) for row, k in zip(bar, length, strict=True)])


def knot(n: int, r: Generator) -> np.ndarray:
    """A thin trefoil."""
    t, wide = r.random(n) * TURN, 0.08 * r.normal(size=(n, 3))
    return (
        np.stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)], 1)
        + wide
    )


def angle(n: int, r: Generator) -> np.ndarray:
    """Two plates at a right angle."""
    p = np.c_[r.random((n, 2)) * [1, r.uniform(0.5, 1.5)], np.zeros(n)]
    return np.where(r.random((n, 1)) < 0.5, p, p[:, [2, 1, 0]])


def shells(n: int, r: Generator) -> np.ndarray:
    """A sphere in a sphere."""
    return on_sphere(n, r) * np.where(r.random((n, 1)) < 0.7, 1, r.uniform(0.4, 0.6))


def waves(n: int, r: Generator) -> np.ndarray:
    """A sheet of 1 to 2 waves."""
    p = r.uniform(-1, 1, (n, 2))
    return np.c_[p, 0.25 * np.sin(TURN * r.uniform(0.5, 1) * p[:, 0] + r.uniform(0, TURN))]


OTHERS = {
    made.__name__: made for made in (tetrahedron, bowl, moebius, cross, knot, angle, shells, waves)
}


def rotation(r: Generator) -> np.ndarray:
    """(3, 3), any."""
    q, upper = np.linalg.qr(r.normal(size=(3, 3)))
    q = q * np.sign(np.diag(upper))
    return q * np.sign(np.linalg.det(q))


def turned(points: np.ndarray, r: Generator, noise: float = 0.01) -> np.ndarray:
    """Stretched, centred, of radius 1, turned, with noise."""
    p = points * r.uniform(0.8, 1.25, 3)
    p -= p.mean(0)
    p /= np.linalg.norm(p, axis=1).max()
    return p @ rotation(r).T + noise * r.normal(size=p.shape)


def save(points: np.ndarray, path: Path, **more: torch.Tensor) -> None:
    """As .ply, in float32."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ga.save(ga.shapes.Shape(pos=torch.tensor(points, dtype=torch.float32), **more), path)


def classes(
    folder: str | Path,
    *,
    each: int = 50,
    test: int = 0,
    seed: int = 0,
    families: dict | None = None,
) -> None:
    """A folder for each family, of clouds of 200 to 400 points; with ``test``, above them train and
    test.
    """
    for number, (name, make) in enumerate((families or FAMILIES).items()):
        draw = default_rng((seed, number))
        for index in range(each + test):
            above = Path(folder) / ("" if not test else "train" if index < each else "test")
            cloud = turned(make(int(draw.integers(200, 401)), draw), draw)
            save(cloud, above / name / f"{index:03}.ply")


def others(folder: str | Path, *, each: int = 50, test: int = 0, seed: int = 0) -> None:
    """As ``classes``, of families that the defaults of training were not tuned on."""
    classes(folder, each=each, test=test, seed=seed, families=OTHERS)


def parts(folder: str | Path, *, each: int = 400, test: int = 0, seed: int = 0) -> None:
    """Two or three of box, cylinder and ball on top of each other, 250 to 400 points; ``label``
    says which.
    """
    draw = default_rng((seed, 97))
    for index in range(each + test):
        n, heights, areas, made = int(draw.integers(250, 401)), [], [], []
        order = draw.permutation(3)[: int(draw.integers(2, 4))]
        for kind in order:
            s, h = draw.uniform(0.5, 1), draw.uniform(0.8, 1.6)
            if kind == 0:
                e = np.array([2 * s, 2 * s * draw.uniform(0.6, 1), h])
                made.append(lambda m, e=e: box(m, draw, e))
                areas.append(2 * (e[0] * e[1] + e[1] * e[2] + e[0] * e[2]))
            elif kind == 1:
                h *= 1.3
                made.append(lambda m, s=s, h=h: cylinder(m, draw, s / 2, h))
                areas.append(np.pi * s * h + np.pi * s * s / 2)
            else:
                h = 2 * s
                made.append(lambda m, s=s: on_sphere(m, draw) * s)
                areas.append(4 * np.pi * s * s)
            heights.append(h)
        many = draw.multinomial(n, np.array(areas) / sum(areas))
        above = np.cumsum([0, *heights[:-1]]) * 0.95 + np.array(heights) / 2
        clouds = [
            make(m) + np.array([0, 0, z]) for make, m, z in zip(made, many, above, strict=True)
        ]
        label = torch.tensor(np.repeat(order, many), dtype=torch.int32)
        part = "" if not test else "train" if index < each else "test"
        save(
            turned(np.concatenate(clouds), draw, 0.005),
            Path(folder) / part / f"{index:03}.ply",
            label=label,
        )


def bumpy(directions: torch.Tensor, draw: Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points (n, 3) of a sphere with eight bumps and dents in these directions, and the mean
    curvature there, exact.
    """
    from torch.func import grad, hessian, vmap

    centre = torch.tensor(on_sphere(8, draw))
    height, sharp = torch.tensor(draw.uniform(-0.25, 0.35, 8)), torch.tensor(draw.uniform(3, 15, 8))

    def radius(v: torch.Tensor) -> torch.Tensor:
        return 1 + (height * torch.exp(sharp * (centre @ v - 1))).sum().clamp(-0.6, 3)

    def level(x: torch.Tensor) -> torch.Tensor:
        return x.norm() - radius(x / x.norm())

    x = directions * vmap(radius)(directions)[:, None]
    g, h = vmap(grad(level))(x), vmap(hessian(level))(x)
    size = g.norm(dim=1)
    bend = size**2 * h.diagonal(dim1=1, dim2=2).sum(1) - torch.einsum("ni,nij,nj->n", g, h, g)
    return x, bend / (2 * size**3)


def curvature(folder: str | Path, *, each: int = 80, test: int = 0, seed: int = 0) -> None:
    """Irregular meshes of 642 vertices, moved by a quarter of an edge; ``label`` is the mean
    curvature, at most 3.5.
    """
    import trimesh

    draw, ball = default_rng((seed, 98)), trimesh.creation.icosphere(subdivisions=3)
    for index in range(each + test):
        moved = ball.vertices + 0.25 * 0.14 * draw.normal(size=ball.vertices.shape)
        moved = moved / np.linalg.norm(moved, axis=1, keepdims=True) @ rotation(draw).T
        pos, bend = bumpy(torch.tensor(moved), draw)
        # sharper than 642 vertices show
        while float(pos.norm(dim=1).min()) < 0.6 or float(bend.abs().max()) > 3.5:
            pos, bend = bumpy(torch.tensor(moved), draw)
        part = "" if not test else "train" if index < each else "test"
        face = torch.tensor(np.array(ball.faces).T).long()
        save(pos.numpy(), Path(folder) / part / f"{index:03}.ply", face=face, label=bend.float())


def dimpled(v: np.ndarray, r: Generator) -> np.ndarray:
    """Round dents of a third of a radius across, 0.4 apart or more."""
    centre = on_sphere(400, r)
    kept: list[np.ndarray] = []
    for one in centre:
        if all(one @ other < np.cos(0.4) for other in kept):
            kept.append(one)
    return -np.exp((v @ np.stack(kept).T - 1) / 0.17**2).sum(1)


def ridged(v: np.ndarray, r: Generator) -> np.ndarray:
    """Waves side by side, 0.6 long, that bend."""
    turn = rotation(r)
    a, b, _ = (v @ turn).T
    return np.cos(10 * a + 1.5 * np.sin(3 * b) + r.uniform(0, TURN))


def smooth(v: np.ndarray, r: Generator) -> np.ndarray:
    """None."""
    return np.zeros(len(v))


RELIEFS = {made.__name__: made for made in (smooth, dimpled, ridged)}


def relief(folder: str | Path, *, each: int = 40, test: int = 0, seed: int = 0) -> None:
    """A folder for each local relief, smooth, dimpled or ridged, of meshes of 642 vertices that
    differ more at large.

    Dents and waves are as high as each other, 3 to 5 % of the radius; the balls have six broad
    bumps and dents of up to 30 %, axes stretched by 0.8 to 1.25, and any rotation.
    """
    import trimesh

    ball = trimesh.creation.icosphere(subdivisions=3)
    face = torch.tensor(np.array(ball.faces).T).long()
    for number, (name, make) in enumerate(RELIEFS.items()):
        draw = default_rng((seed, 99, number))
        for index in range(each + test):
            moved = ball.vertices + 0.2 * 0.14 * draw.normal(size=ball.vertices.shape)
            v = moved / np.linalg.norm(moved, axis=1, keepdims=True) @ rotation(draw).T
            at_large = np.exp(
                draw.uniform(2, 4, 6) * (v @ on_sphere(6, draw).T - 1)
            ) @ draw.uniform(-0.3, 0.3, 6)
            local = make(v, draw)
            local = local / max(1e-9, local.std()) * draw.uniform(0.03, 0.05)
            above = Path(folder) / ("" if not test else "train" if index < each else "test")
            shape = turned(v * (1 + at_large + local)[:, None], draw, 0.002)
            save(shape, above / name / f"{index:03}.ply", face=face)


def tube(rings: int, around: int, r: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of a closed bent tube: 200 to 300 degrees of a ring of radius 1, or of a
    turn of a helix.
    """
    s, turn = np.linspace(0, 1, rings), np.arange(around) / around * TURN
    a, swell = (
        s * r.uniform(3.5, 5.2),
        1 + 0.25 * np.sin(TURN * r.uniform(1, 3) * s + r.uniform(0, TURN)),
    )
    radius = r.uniform(0.2, 0.35) * swell * np.sqrt(np.clip(1 - abs(2 * s - 1) ** 8, 0.02, 1))
    outward, up = polar(1.0, a, 0.0), np.array([0, 0, 1.0])
    middle = outward + np.outer(r.uniform(0, 0.5) * s, up)
    across = np.cos(turn)[None, :, None] * outward[:, None] + np.sin(turn)[None, :, None] * up
    skin = middle[:, None] + radius[:, None, None] * across
    n = np.arange(rings * around).reshape(rings, around)
    here, there, last = n[:-1], n[1:], rings * around
    side, ahead = np.roll(here, -1, 1), np.roll(there, -1, 1)
    flip = r.random(here.shape) < 0.5  # either diagonal
    first = np.stack([here, side, np.where(flip, there, ahead)], -1)
    second = np.stack([np.where(flip, side, here), ahead, there], -1)
    ends = [(last, *pair) for pair in zip(np.roll(n[0], -1), n[0], strict=True)]
    ends += [(last + 1, *pair) for pair in zip(n[-1], np.roll(n[-1], -1), strict=True)]
    faces = np.concatenate([first.reshape(-1, 3), second.reshape(-1, 3), np.array(ends)])[:, ::-1]
    return np.concatenate([skin.reshape(-1, 3), middle[:1], middle[-1:]]), faces


def geodesic(
    folder: str | Path,
    *,
    each: int = 60,
    test: int = 0,
    seed: int = 0,
    rings: int = 40,
    around: int = 12,
) -> None:
    """Bent tubes with a marked vertex; ``label`` is the log of its exact distance on the surface
    over ``straight``.

    ``straight`` is the distance through space. ``edges``, for comparison alone, is the label of the
    shortest path along the edges (Dijkstra). Where the mark is, all are 0. An error in ``label`` is
    a relative error of a distance.
    """
    from pygeodesic.geodesic import PyGeodesicAlgorithmExact
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import dijkstra

    draw = default_rng((seed, 100))
    for index in range(each + test):
        points, faces = tube(rings, around, draw)
        points = (points + 0.004 * draw.normal(size=points.shape) - points.mean(0)) @ rotation(
            draw
        ).T
        size, mark = len(points), int(draw.integers(len(points)))
        exact, _ = PyGeodesicAlgorithmExact(points, faces.astype(np.int32)).geodesicDistances(
            np.array([mark])
        )
        a, b = faces.ravel(), np.roll(faces, -1, 1).ravel()
        length = np.linalg.norm(points[a] - points[b], axis=1)
        # each edge is there both ways
        walk = dijkstra(coo_matrix((length, (a, b)), (size, size)).tocsr(), indices=mark)
        straight = np.linalg.norm(points - points[mark], axis=1)
        beside = np.where(straight > 0, straight, 1)
        log = [np.log(np.where(straight > 0, far / beside, 1)) for far in (exact, walk)]
        rows = {"mark": np.eye(size)[mark], "straight": straight, "label": log[0], "edges": log[1]}
        part = "" if not test else "train" if index < each else "test"
        more = {name: torch.tensor(value).float() for name, value in rows.items()}
        save(
            points,
            Path(folder) / part / f"{index:03}.ply",
            face=torch.tensor(faces.T.copy()),
            **more,
        )


def heat(folder: str | Path, *, each: int = 80, test: int = 0, seed: int = 0) -> None:
    """Bumpy balls and bent tubes in turn; ``label`` is the log of the heat that a marked vertex has
    spread, ``mark``.

    One implicit step of (M + t L) u = mark, with cotangents and t of 25 squared edges, as a share
    of the largest.
    """
    import trimesh
    from scipy.sparse import coo_matrix, diags
    from scipy.sparse.linalg import spsolve

    draw, ball = default_rng((seed, 102)), trimesh.creation.icosphere(subdivisions=3)
    for index in range(each + test):
        if index % 2:
            points, faces = tube(30, 12, draw)
        else:
            faces, moved = (
                np.array(ball.faces),
                ball.vertices + 0.03 * draw.normal(size=ball.vertices.shape),
            )
            points = bumpy(
                torch.tensor(moved / np.linalg.norm(moved, axis=1, keepdims=True)), draw
            )[0].numpy()
        size, corners = len(points), points[faces]
        area = (
            np.linalg.norm(
                np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
            )
            / 2
        )
        mass = np.bincount(faces.ravel(), np.repeat(area / 3, 3), size)
        apex, one, two = (np.roll(corners, -k, 1) for k in range(3))
        weight = ((one - apex) * (two - apex)).sum(2) / (4 * area[:, None])
        i, j = np.roll(faces, -1, 1).ravel(), np.roll(faces, -2, 1).ravel()
        half = coo_matrix((np.maximum(weight.ravel(), 1e-3), (i, j)), (size, size))
        pull = half + half.T
        edge, mark = (
            np.linalg.norm(points[i] - points[j], axis=1).mean(),
            np.eye(size)[draw.integers(size)],
        )
        system = diags(mass) + 25 * edge**2 * (diags(np.asarray(pull.sum(1)).ravel()) - pull)
        spread = spsolve(system.tocsc(), mark)
        rows = {
            "mark": torch.tensor(mark).float(),
            "label": torch.tensor(np.log(spread / spread.max())).float(),
        }
        part = "" if not test else "train" if index < each else "test"
        save(
            points @ rotation(draw).T,
            Path(folder) / part / f"{index:03}.ply",
            face=torch.tensor(faces.T.copy()),
            **rows,
        )


UP = np.array([0, 0, 1.0])


def extruded(outline: np.ndarray, hole: float, height: float) -> list[np.ndarray]:
    """Triangles between an outline (n, 2) and a round hole, above and below, and their walls."""
    n = len(outline)
    angle = np.arctan2(outline[:, 1], outline[:, 0])
    ring = hole * np.c_[np.cos(angle), np.sin(angle)]
    low, high = (
        np.stack([np.c_[p, np.full(n, z)] for p in (outline, ring)]) for z in (0.0, height)
    )
    walls = [(low[0], high[0]), (high[0], high[1]), (high[1], low[1]), (low[1], low[0])]
    return [corner for a, b in walls for corner in strip(a, b)]


def strip(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """Triangles between two closed lines (n, 3)."""
    after, above = np.roll(a, -1, 0), np.roll(b, -1, 0)
    return [*np.stack((a, after, b), 1), *np.stack((after, above, b), 1)]


def revolved(profile: np.ndarray, around: int = 28) -> list[np.ndarray]:
    """Triangles of a closed profile (n, 2) of radii and heights."""
    turn = np.arange(around) / around * TURN
    rings = [polar(radius, turn, height) for radius, height in profile]
    return [
        corner for a, b in zip(rings, rings[1:] + rings[:1], strict=True) for corner in strip(a, b)
    ]


def outline(n: int, radius: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """(n, 2)."""
    a = np.arange(n) / n * TURN
    return radius(a)[:, None] * np.c_[np.cos(a), np.sin(a)]


def hexagon(a: np.ndarray) -> np.ndarray:
    """Radius by angle, 1 to its sides."""
    return 1 / np.cos((a % (TURN / 6)) - TURN / 12)


def nut(r: Generator) -> list[np.ndarray]:
    return extruded(outline(36, hexagon), r.uniform(0.45, 0.7), r.uniform(0.5, 1.0))


def gear(r: Generator) -> list[np.ndarray]:
    teeth, deep = int(r.integers(9, 18)), r.uniform(0.12, 0.22)
    return extruded(
        outline(8 * teeth, lambda a: 1 - deep * (np.sin(teeth * a) < 0)),
        r.uniform(0.2, 0.5),
        r.uniform(0.25, 0.6),
    )


def bolt(r: Generator) -> list[np.ndarray]:
    long, wide = r.uniform(2, 4), r.uniform(0.4, 0.6)
    shaft = revolved(np.array([[1e-3, -long], [wide, -long], [wide, 0], [1e-3, 0]]))
    return extruded(outline(36, hexagon), 1e-3, r.uniform(0.5, 0.8)) + shaft


def pulley(r: Generator) -> list[np.ndarray]:
    hole, deep, w = r.uniform(0.2, 0.4), r.uniform(0.2, 0.35), r.uniform(0.4, 0.7)
    return revolved(
        np.array(
            [[hole, 0], [1, 0], [1, w / 4], [1 - deep, w / 2], [1, 3 * w / 4], [1, w], [hole, w]]
        )
    )


def elbow(r: Generator) -> list[np.ndarray]:
    """A bent pipe with a wall."""
    bend, wide, turn = (
        r.uniform(0.8, 1.3) * TURN / 4,
        r.uniform(0.25, 0.4),
        np.arange(20) / 20 * TURN,
    )
    made = []
    for radius in (wide, 0.75 * wide):
        rings = [
            polar(1 + radius * np.cos(turn), np.full(20, a), 0.0)
            + np.outer(radius * np.sin(turn), UP)
            for a in np.linspace(0, bend, 16)
        ]
        made += [corner for a, b in pairwise(rings) for corner in strip(a, b)]
    return made


def bracket(r: Generator) -> list[np.ndarray]:
    """Two plates at a right angle and a rib."""
    import trimesh

    thick, wide, high = r.uniform(0.08, 0.15), r.uniform(0.5, 1.0), r.uniform(0.6, 1.2)
    sizes = [
        ([1, wide, thick], [0.5, 0, 0]),
        ([thick, wide, high], [0, 0, high / 2]),
        ([0.5, thick, 0.5], [0.25, 0, 0.25]),
    ]
    made = []
    for size, place in sizes:
        solid = trimesh.creation.box(size).subdivide().subdivide()
        made += list((solid.vertices + place)[solid.faces])
    return made


PARTS = {made.__name__: made for made in (nut, gear, bolt, pulley, elbow, bracket)}


def defects(folder: str | Path, *, each: int = 36, test: int = 18, seed: int = 0) -> None:
    """Meshes of six kinds of machine parts as scanners and converters leave them, in five formats.

    Triangles share no corners in a third of them, a third of them are turned inside out in places,
    up to 8 % are lost, corners move by up to 2 % of the radius, and sizes are in millimetres or in
    metres.
    """
    import trimesh

    for number, (name, make) in enumerate(PARTS.items()):
        draw = default_rng((seed, 103, number))
        for index in range(each + test):
            corners = np.stack(make(draw))
            corners = corners[draw.random(len(corners)) > draw.uniform(0, 0.08)]
            if index % 3 == 0:
                flip = draw.random(len(corners)) < draw.uniform(0, 0.3)
                corners[flip] = corners[flip][:, ::-1]
            points, face = np.unique(corners.reshape(-1, 3).round(6), axis=0, return_inverse=True)
            if index % 3 == 1:
                points, face = corners.reshape(-1, 3), np.arange(3 * len(corners))
            points = turned(points, draw, 0.0) + draw.uniform(0, 0.02) / 3**0.5 * draw.normal(
                size=points.shape
            )
            points = points * draw.choice([1.0, 60.0])
            ending = ("ply", "off", "stl", "obj", "glb")[index % 5]
            path = (
                Path(folder) / ("train" if index < each else "test") / name / f"{index:03}.{ending}"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            trimesh.Trimesh(points, face.reshape(-1, 3), process=False).export(path)


SCENE = ("ground", "tree", "building", "car", "pole", "fence")


def scene(r: Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, 3) in metres, classes and reflected intensities (n,) of a scan from 1.8 m above a
    slope.
    """
    tilt, phase = r.uniform(-0.04, 0.04, 2), r.uniform(0, TURN, 2)

    def ground(xy: np.ndarray) -> np.ndarray:
        return xy @ tilt + 0.4 * np.sin(xy[:, 0] / 9 + phase[0]) * np.sin(xy[:, 1] / 11 + phase[1])

    far = 45 * np.sqrt(r.random(260_000))
    clouds = [(polar(far, r.random(len(far)) * TURN, 0.0), 0)]
    for kind, fewest, most in ((1, 6, 14), (2, 2, 4), (3, 3, 7), (4, 3, 7), (5, 2, 4)):
        for _ in range(int(r.integers(fewest, most + 1))):
            turn, at = (
                r.uniform(0, TURN),
                polar(r.uniform(5 if kind > 2 else 9, 38), r.uniform(0, TURN, 1), 0.0)[0],
            )
            if kind == 1:
                h, w = r.uniform(4, 9), r.uniform(1.2, 2.4)
                crown = (
                    on_sphere(9000, r) * r.uniform(0.6, 1, (9000, 1)) * [w, w, h / 3]
                    + 0.66 * h * UP
                )
                made = np.r_[crown, cylinder(2000, r, 0.18, h * 0.7, caps=False) + 0.35 * h * UP]
            elif kind == 2:
                size = np.array([r.uniform(8, 16), r.uniform(6, 12), r.uniform(3, 8)])
                made = box(40_000, r, size) + size[2] / 2 * UP
            elif kind == 3:
                body = box(5000, r, np.array([4.2, 1.8, 0.8])) + 0.75 * UP
                made = np.r_[
                    body, box(2500, r, np.array([2.2, 1.6, 0.6])) + np.array([-0.2, 0, 1.4])
                ]
            elif kind == 4:
                h = r.uniform(3, 8)
                made = cylinder(3500, r, r.uniform(0.06, 0.15), h, caps=False) + h / 2 * UP
            else:
                long, high = r.uniform(6, 18), r.uniform(0.9, 1.6)
                made = r.random((8000, 3)) * [long, 0.06, high] - [long / 2, 0.03, 0]
            c, s = np.cos(turn), np.sin(turn)
            clouds.append((made @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1.0]]) + at, kind))
    points, label = (
        np.concatenate([p for p, _ in clouds]),
        np.repeat([k for _, k in clouds], [len(p) for p, _ in clouds]),
    )
    points[:, 2] += ground(points[:, :2])
    ray = points - [0, 0, 1.8 + float(ground(np.zeros((1, 2)))[0])]
    distance = np.linalg.norm(ray, axis=1)
    turn = np.floor(np.arctan2(ray[:, 1], ray[:, 0]) / np.deg2rad(0.8)).astype(int)
    ring = np.floor(np.arcsin(ray[:, 2] / distance) / np.deg2rad(0.8)).astype(int)
    order = np.lexsort((distance, ring, turn))  # the nearest point along each ray is seen
    first = np.r_[True, (np.diff(turn[order]) != 0) | (np.diff(ring[order]) != 0)]
    seen = order[first & (distance[order] < 45) & (distance[order] > 1.5)]
    seen = seen[r.random(len(seen)) < 0.9]
    usual = np.array([0.35, 0.45, 0.55, 0.5, 0.6, 0.4])[label[seen]]
    return (
        points[seen] + 0.02 * r.normal(size=(len(seen), 3)),
        label[seen],
        (usual + 0.12 * r.normal(size=len(seen))).clip(0, 1),
    )


def scenes(folder: str | Path, *, each: int = 40, test: int = 0, seed: int = 0) -> None:
    """Simulated LiDAR scans of 12 to 21 thousand points; ``label`` numbers the words of
    ``SCENE``.
    """
    draw = default_rng((seed, 101))
    for index in range(each + test):
        points, label, intensity = scene(draw)
        part = "" if not test else "train" if index < each else "test"
        more = {
            "label": torch.tensor(label, dtype=torch.int32),
            "intensity": torch.tensor(intensity).float(),
        }
        save(points, Path(folder) / part / f"{index:03}.ply", **more)


def tile(r: Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Points (n, 3) in metres, and dimensions of LAS (n,), of an airborne scan of 20 m x 20 m.

    Ground (2), low (3) and medium (4) vegetation below 2 % each, trees (5) and a house (6).
    """
    tilt, phase = r.uniform(-0.1, 0.1, 2), r.uniform(0, TURN, 2)

    def ground(xy: np.ndarray) -> np.ndarray:
        waves = np.sin(xy[:, 0] / 7 + phase[0]) * np.sin(xy[:, 1] / 5 + phase[1])
        return xy @ tilt + 0.3 * waves

    size = int(r.integers(1500, 4701))
    flat = np.c_[r.uniform(0, 20, (size, 2)), np.zeros(size)]
    clouds = [(flat, 2)]
    for kind, share, high in (
        (3, 0.012, (0.2, 0.6)),
        (4, 0.015, (0.8, 2.0)),
        (5, 0.3, (4.0, 12.0)),
    ):
        plants = int(r.integers(2, 6))
        for _ in range(plants):
            many = int(share * size * r.uniform(0.7, 1.3) / plants)
            top, place = r.uniform(*high), np.append(r.uniform(2, 18, 2), 0.0)
            crown = r.normal(size=(many, 3)) * [0.3 * top, 0.3 * top, 0.17 * top]
            crown[:, 2] = (crown[:, 2] + 0.66 * top).clip(0.05)
            clouds.append((crown + place, kind))
    if r.random() < 0.7:  # a house with a roof of two sides, and some points of its walls
        sides, eaves, ridge = r.uniform(5, 9, 2), r.uniform(2.5, 5), r.uniform(0.5, 2)
        many = int(0.15 * size)
        across = r.uniform(-0.5, 0.5, (many, 2))
        wall = r.random(many) < 0.1
        across[wall, 0] = r.choice([-0.5, 0.5], wall.sum())
        up = eaves + ridge * (1 - 2 * abs(across[:, 0]))
        up[wall] = r.uniform(0.2, eaves, wall.sum())
        clouds.append((np.c_[across * sides, up] + [*r.uniform(5, 15, 2), 0.0], 6))
    points = np.concatenate([p for p, _ in clouds])
    label = np.repeat([k for _, k in clouds], [len(p) for p, _ in clouds])
    height = points[:, 2].copy()
    points[:, 2] += ground(points[:, :2])
    returns = np.where(label == 5, r.integers(1, 5, len(points)), 1)
    usual = np.array([0, 0, 0.5, 0.45, 0.4, 0.35, 0.55])[label]
    # what stands above a point of the ground hides it
    roofs = np.c_[points[label == 6][:, :2], height[label == 6]]
    hidden = np.zeros(len(points), bool)
    if len(roofs):
        low, far = roofs[:, :2].min(0), roofs[:, :2].max(0)
        hidden = (label < 5) & ((points[:, :2] > low) & (points[:, :2] < far)).all(1)
    seen = ~hidden
    more = {
        "classification": label.astype(np.uint8),
        "intensity": (60_000 * (usual + 0.15 * r.normal(size=len(points))).clip(0, 1)).astype(
            np.uint16
        ),
        "number_of_returns": returns.astype(np.uint8),
        "return_number": r.integers(1, returns + 1).astype(np.uint8),
    }
    points = points + 0.03 * r.normal(size=points.shape)
    return points[seen], {name: values[seen] for name, values in more.items()}


def tiles(folder: str | Path, *, each: int = 8, test: int = 0, seed: int = 0) -> None:
    """Airborne scans of 2 to 7 thousand points as .las, with the classes 2 to 6 of LAS."""
    draw = default_rng((seed, 105))
    for index in range(each + test):
        points, dimensions = tile(draw)
        part = "" if not test else "train" if index < each else "test"
        more = {name: torch.from_numpy(values) for name, values in dimensions.items()}
        save(points, Path(folder) / part / f"{index:03}.las", **more)


FOLDERS = {
    made.__name__: made
    for made in (classes, others, parts, curvature, relief, geodesic, heat, defects, scenes, tiles)
}


def main() -> None:
    """Write a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=FOLDERS)
    parser.add_argument("folder")
    parser.add_argument("--each", type=int, help="shapes of each class, or in all")
    parser.add_argument("--test", type=int, help="as many more, in folders train and test")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    many = {name: value for name in ("each", "test") if (value := getattr(asked, name)) is not None}
    FOLDERS[asked.kind](asked.folder, seed=asked.seed, **many)


if __name__ == "__main__":
    main()
