"""Generated shapes to train on: ``python examples/generated_shapes.py classes|parts|curvature FOLDER``.

Point clouds of ten families: any rotation, axes stretched by 0.8 to 1.25, noise of 1 % of the radius.
"""

import argparse
from collections.abc import Callable
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


def cylinder(n: int, r: Generator, radius: float = 1.0, height: float | None = None, caps: bool = True) -> np.ndarray:
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
    return polar(1 + tube * np.cos(around), along * turns * TURN, height * along + tube * np.sin(around))


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
    made.__name__: made for made in (sphere, box, cylinder, cone, torus, capsule, annulus, helix, dumbbell, saddle)
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


def classes(folder: str | Path, *, each: int = 50, test: int = 0, seed: int = 0, families: dict | None = None) -> None:
    """A folder for each family, of clouds of 200 to 400 points; with ``test``, above them train and test."""
    for number, (name, make) in enumerate((families or FAMILIES).items()):
        draw = default_rng((seed, number))
        for index in range(each + test):
            above = Path(folder) / ("" if not test else "train" if index < each else "test")
            cloud = turned(make(int(draw.integers(200, 401)), draw), draw)
            save(cloud, above / name / f"{index:03}.ply")


FOLDERS = {"classes": classes}


def main() -> None:
    """Write a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
