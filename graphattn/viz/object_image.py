"""A shape drawn in axes: the nearest in front, surfaces shaded, near points larger."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .colours import PLAIN, Array, Colouring, rgb_of
from .creases import SMOOTH, Index, lit

if TYPE_CHECKING:
    from .camera import Camera
    from .raster import Covered

_PIXELS = 600  # along the shorter side of the axes
_LIGHT = np.array([-0.38, 0.52, 0.77])  # to the right, up, towards the eye; a unit vector
_DARKEST = 0.36  # of a colour that no light falls on
# part of the light that comes from the eye: what the other does not reach keeps its form
_LAMP = 0.4
_FADE = 0.35  # of a farthest point's colour is white
_SWELL = 0.45  # how much larger than the middle ones the nearest points are
_SMALL = 0.6  # the size of points there
_SMALLEST, _LARGEST = 1.6, 20.0  # pixels, radius of a point
_NEIGHBOURS = 4  # in whose circle the room of a point is measured
_PALE = 0.7  # how much of a colour the ground of a picture keeps, under what is drawn on it


def paint(
    ax: Any,
    at: Array,
    view: "Camera | None",
    colours: Colouring,
    faces: Index | None,
    gid: str,
    *,
    pale: bool = False,
    smooth: float = SMOOTH,
) -> None:
    """Draw a cloud or a mesh into axes, whose limits are set; what is drawn later is above it.

    Args:
        ax: Axes.
        at: (N, 2) or (N, 3).
        view: The camera of three dimensions; ``None`` of two.
        colours: Of the N nodes; or of the F faces, if there are as many.
        faces: int64 (F, 3), or ``None`` for points.
        gid: What the image is called.
        pale: True for the ground on which something else is drawn.
        smooth: The largest angle of an edge that is no crease, degrees.
    """
    from matplotlib.image import AxesImage

    from .raster import balls, triangles  # numba takes half a second

    low, high = np.stack((ax.get_xlim(), ax.get_ylim()), 1)
    pixel = float(min(high - low)) / _PIXELS
    width, height = (max(1, int(n)) for n in np.ceil((high - low) / pixel - 1e-6))
    if view is None:
        projected = np.concatenate((at, np.zeros((len(at), 1))), 1)
    else:
        projected = view(at)
    projected = (projected - [*low, 0.0]) / pixel
    if faces is not None:
        covered = triangles(projected[faces], (height, width))
        rgb = _of_surface(covered, at, faces, colours, view, smooth)
    else:
        factor = 1.0
        if pale:
            factor = _SMALL
        radius = radius_of(projected[:, :2], (width, height)) * factor
        share = _nearness(projected[:, 2])
        covered = balls(
            projected, radius * (1 + _SWELL * (2 * share - 1) * (view is not None)), (height, width)
        )
        if view is None:
            rgb = colours.rgb[covered.item]
        else:
            far = _FADE * (1 - share[covered.item])[:, None]
            colour = colours.rgb[covered.item]
            ball = 0.5 * colour + 0.5 * _shaded(colour, covered.inside)
            rgb = ball + far * (1 - ball)
    image = np.zeros((height, width, 4), dtype=np.uint8)
    strength = 1.0
    if pale:
        strength = _PALE
    image[covered.row, covered.column, :3] = np.rint(255 * (1 - strength * (1 - rgb)))
    image[covered.row, covered.column, 3] = 255
    box = (low[0], low[0] + width * pixel, low[1], low[1] + height * pixel)
    drawn = AxesImage(
        ax,
        extent=box,
        origin="lower",
        interpolation="antialiased",
        interpolation_stage="rgba",
        zorder=1,
    )
    drawn.set(data=image, gid=gid)
    ax.add_image(drawn)


def radius_of(at: Array, size: tuple[int, int]) -> float:
    """The radius of points (N, 2) in pixels: nearly half the distance in their dense part."""
    from scipy.spatial import KDTree

    at = at[((at >= 0) & (at < size)).all(1)]
    cells = np.unique(at[:, 0].astype(np.int64) + size[0] * at[:, 1].astype(np.int64))
    if len(cells) > _PIXELS:
        at = np.stack((cells % size[0], cells // size[0]), 1)
    if len(at) < 2:
        return _LARGEST
    k = min(_NEIGHBOURS, len(at) - 1)
    sample = at[np.linspace(0, len(at) - 1, min(len(at), 2_000)).astype(np.int64)]
    area = np.pi * KDTree(at).query(sample, k + 1)[0][:, -1] ** 2 / k  # of a point
    return float(np.clip(0.42 * np.sqrt(np.quantile(area, 0.75)), _SMALLEST, _LARGEST))


def _nearness(depth: Array) -> Array:
    """From 0 of the farthest to 1 of the nearest."""
    if len(depth):
        span = float(np.ptp(depth))
    else:
        span = 0.0
    if span > 0:
        return (depth - depth.min()) / span
    return np.ones_like(depth)


def _shaded(rgb: Array, normal: Array) -> Array:
    """Colours under a light; ``normal`` (P, 3) to the right, up and towards the eye."""
    light = np.clip(normal @ _LIGHT, 0, 1)[:, None]
    front = normal[:, 2:]
    diffuse: Array = rgb * (_DARKEST + (1.06 - _DARKEST) * (_LAMP * front + (1 - _LAMP) * light))
    return np.clip(diffuse + 0.10 * light**12, 0, 1)  # a little gloss


def _of_surface(
    covered: "Covered",
    at: Array,
    faces: Index,
    colours: Colouring,
    view: "Camera | None",
    smooth: float,
) -> Array:
    corner = faces[covered.item]
    if len(colours.rgb) == len(faces) and len(faces) != len(at):
        rgb = colours.rgb[covered.item]
    elif colours.is_smooth:
        share = covered.inside
        if np.isfinite(colours.reach):
            away = np.einsum("pk,pkd->pd", share, at[corner])[:, None] - at[corner]
            share = share * np.exp(-((np.linalg.norm(away, axis=2) / colours.reach) ** 4))
        rgb = rgb_of(PLAIN) + np.einsum("pk,pkc->pc", share, colours.rgb[corner] - rgb_of(PLAIN))
    else:
        nearest = covered.inside.argmax(1)
        rgb = colours.rgb[corner[np.arange(len(corner)), nearest]]
    if view is None:
        return rgb
    shade = lit(at, faces, smooth)
    normals = shade.normal @ view.turn.T
    normal = np.einsum("pk,pkc->pc", covered.inside, normals[shade.corner[covered.item]])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
    return _shaded(rgb, np.where(normal[:, 2:] < 0, -normal, normal))
