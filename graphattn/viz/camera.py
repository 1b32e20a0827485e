"""A camera: where places in space are on the page, and how near they are to the eye."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .colours import Array

_AWAY = 4.0  # of the eye from the middle, in radii of what is seen


@dataclass(frozen=True)
class Camera:
    """A perspective view of places (N, 3).

    Attributes:
        elevation, azimuth: Of the eye, degrees.
        centre: (3,), what the eye looks at.
        distance: Of the eye from the centre.
    """

    elevation: float
    azimuth: float
    centre: Array
    distance: float

    @classmethod
    def around(cls, at: Array, elevation: float, azimuth: float) -> "Camera":
        """The camera that has all of some places before it."""
        if len(at):
            centre = (at.min(0) + at.max(0)) / 2
        else:
            centre = np.zeros(3)
        radius = float(np.linalg.norm(at - centre, axis=1).max(initial=0.0)) or 1.0
        return cls(elevation, azimuth, centre, _AWAY * radius)

    @cached_property
    def turn(self) -> Array:
        """Rows right, up, towards the eye."""
        e, a = np.radians((self.elevation, self.azimuth))
        return np.array([
            [-np.sin(a), np.cos(a), 0],
            [-np.sin(e) * np.cos(a), -np.sin(e) * np.sin(a), np.cos(e)],
            [np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)],
        ])  # fmt: skip

    def __call__(self, at: Array) -> Array:
        """Places (N, 3) on the page: to the right, up and nearness, in which planes stay planes."""
        projected = (at - self.centre) @ self.turn.T
        return projected * (self.distance / (self.distance - projected[:, 2:]))


def angles_of(out: Array) -> tuple[float, float]:
    """Elevation and azimuth of a direction, degrees."""
    return float(np.degrees(np.arctan2(out[2], np.hypot(*out[:2])))), float(
        np.degrees(np.arctan2(out[1], out[0]))
    )


def facing(at: Array, centre: Array) -> tuple[float, float]:
    """Elevation and azimuth that look from outside at the plane nearest to some places."""
    normal = np.linalg.svd(at - at.mean(0), full_matrices=False)[2][-1]
    if normal @ (at.mean(0) - centre) < 0 or (abs(normal[2]) > 0.7 and normal[2] < 0):
        normal = -normal
    return angles_of(normal)
