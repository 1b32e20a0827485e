"""A shape in axes as it is seen: the nearest in front, surfaces shaded smoothly, near points larger."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .colours import Array, Colouring

if TYPE_CHECKING:
    from .raster import Covered

Index = NDArray[np.int64]

_PIXELS = 600  # along the shorter side of the axes
_LIGHT = np.array([-0.38, 0.52, 0.77])  # to the right, up, towards the eye; a unit vector
_DARKEST = 0.42  # of a colour that no light falls on
_CREASE = 0.62  # cosine: a vertex's normal farther from its face's belongs to a corner of the shape
_FADE = 0.35  # of a farthest point's colour is white
_SWELL = 0.45  # how much larger than the middle ones the nearest points are
_SMALL = 0.6  # the size of points there
_PALE = 0.7  # how much of a colour the ground of a picture keeps, under what is drawn on it


def paint(ax: Any, at: Array, colours: Colouring, faces: Index | None, gid: str, *, pale: bool = False) -> Any:
    """Draw a cloud or a mesh into axes, whose limits and camera are set; what is drawn later is above it.

    Args:
        ax: Axes, in two dimensions or three.
        at: (N, 2) or (N, 3), as many as the axes have dimensions.
        colours: Of the N nodes; or of the F faces, if there are as many.
        faces: int64 (F, 3), or ``None`` for points.
        gid: What the image is called.
        pale: True for the ground on which something else is drawn.
    """
    from matplotlib.image import AxesImage

    from .raster import balls, triangles  # numba takes half a second

    seen, turn, unit, middle = _seen(ax, at)
    if len(seen) == 0:
        return None
    low, high = seen[:, :2].min(0), seen[:, :2].max(0)
    pixel = float(min(unit)) / _PIXELS
    side = 0.0 if faces is not None else _radius(len(at), (high - low) / pixel)
    side *= _SMALL if pale else 1.0
    low, high = low - (2 * side + 1) * pixel, high + (2 * side + 1) * pixel
    width, height = (max(1, int(n)) for n in np.ceil((high - low) / pixel))
    seen = (seen - [*low, middle]) / pixel
    if faces is not None:
        covered = triangles(seen[faces], (height, width))
        rgb = _of_surface(covered, at, faces, colours, turn)
    else:
        share = _nearness(seen[:, 2])
        covered = balls(seen, side * (1 + _SWELL * (share - 0.5) * 2 * (at.shape[1] == 3)), (height, width))
        rgb = colours.rgb[covered.item] if at.shape[1] == 2 else _of_points(covered, colours.rgb, share)
    image = np.zeros((height, width, 4), dtype=np.uint8)
    image[covered.row, covered.column, :3] = np.rint(255 * (1 - (_PALE if pale else 1.0) * (1 - rgb)))
    image[covered.row, covered.column, 3] = 255
    box = (low[0], low[0] + width * pixel, low[1], low[1] + height * pixel)
    drawn = AxesImage(ax, extent=box, origin="lower", interpolation="antialiased", interpolation_stage="rgba", zorder=1)
    drawn.set(data=image, gid=gid, clip_on=False, in_layout=False)
    ax.add_image(drawn)
    return drawn


def _seen(ax: Any, at: Array) -> tuple[Array, Array, Array, float]:
    """Places (N, 3) in the axes' own two coordinates and nearness; rows right, up, eye; the axes' sides; a middle."""
    if at.shape[1] == 2:
        sides = np.abs([np.diff(ax.get_xlim())[0], np.diff(ax.get_ylim())[0]])
        return np.concatenate((at, np.zeros((len(at), 1))), 1), np.eye(3), sides, 0.0
    from mpl_toolkits.mplot3d.proj3d import proj_transform

    x, y, z = proj_transform(*at.T, ax.get_proj())
    e, a = np.radians((ax.elev, ax.azim))
    turn = np.array([
        [-np.sin(a), np.cos(a), 0],
        [-np.sin(e) * np.cos(a), -np.sin(e) * np.sin(a), np.cos(e)],
        [np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)],
    ])  # fmt: skip
    sides = np.array([ax.viewLim.width, ax.viewLim.height])
    return np.stack((x, y, -np.asarray(z)), 1), turn, sides, float(-np.mean(z)) if len(at) else 0.0


def _radius(count: int, spread: Array) -> float:
    """Pixels: about a third of the way to the next point, where they are spread evenly over the picture."""
    return float(np.clip(0.38 * np.sqrt(max(1.0, float(np.prod(np.maximum(spread, 40.0)))) / max(1, count)), 0.6, 20.0))


def _nearness(depth: Array) -> Array:
    """From 0 of the farthest to 1 of the nearest."""
    span = float(np.ptp(depth)) if len(depth) else 0.0
    return (depth - depth.min()) / span if span > 0 else np.ones_like(depth)


def _shaded(rgb: Array, normal: Array) -> Array:
    """Colours under a light; ``normal`` (P, 3) to the right, up and towards the eye."""
    light = np.clip(normal @ _LIGHT, 0, 1)[:, None]
    lit: Array = rgb * (_DARKEST + (1.06 - _DARKEST) * light)
    return np.clip(lit + 0.10 * light**12, 0, 1)  # a little gloss


def _of_points(covered: "Covered", rgb: Array, nearness: Array) -> Array:
    far = _FADE * (1 - nearness[covered.item])[:, None]
    own = rgb[covered.item]
    ball = 0.5 * own + 0.5 * _shaded(own, covered.inside)
    return ball + far * (1 - ball)


def _of_surface(covered: "Covered", at: Array, faces: Index, colours: Colouring, turn: Array) -> Array:
    corner = faces[covered.item]
    if len(colours.rgb) == len(faces) and len(faces) != len(at):
        rgb = colours.rgb[covered.item]
    elif colours.is_smooth:
        rgb = np.einsum("pk,pkc->pc", covered.inside, colours.rgb[corner])
    else:
        nearest = covered.inside.argmax(1)
        rgb = colours.rgb[corner[np.arange(len(corner)), nearest]]
    if at.shape[1] == 2:
        return rgb
    normals = corner_normals(at, faces, turn[2]) @ turn.T
    normal = np.einsum("pk,pkc->pc", covered.inside, normals[covered.item])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
    return _shaded(rgb, np.where(normal[:, 2:] < 0, -normal, normal))


def corner_normals(at: Array, faces: Index, eye: Array) -> Array:
    """Unit normals (F, 3, 3) of the corners of faces: smooth over the surface, but not over its creases.

    Faces that are not wound one way are turned towards the eye first.
    """
    corners = at[faces]
    face = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    if not _is_oriented(faces, len(at)):
        face *= np.where(face @ eye < 0, -1.0, 1.0)[:, None]
    face = face / np.maximum(np.linalg.norm(face, axis=1, keepdims=True), 1e-300)
    weighted = face[:, None] * _angles(corners)[:, :, None]
    index = faces.ravel()
    vertex: Array = np.stack([np.bincount(index, weighted[:, :, k].ravel(), len(at)) for k in range(3)], 1)
    vertex = vertex / np.maximum(np.linalg.norm(vertex, axis=1, keepdims=True), 1e-300)
    smooth = vertex[faces]
    creased = (smooth * face[:, None]).sum(2, keepdims=True) < _CREASE
    normals: Array = np.where(creased, face[:, None], smooth)
    return normals


def _is_oriented(faces: Index, count: int) -> bool:
    """True if no two faces run along an edge in the same direction."""
    ends = faces, np.roll(faces, -1, 1)
    along = np.sort((ends[0] * count + ends[1]).ravel())
    return bool((along[1:] != along[:-1]).all())


def _angles(corners: Array) -> Array:
    """Angles (F, 3) at the corners of triangles."""
    ahead, back = np.roll(corners, -1, 1) - corners, np.roll(corners, 1, 1) - corners
    angles: Array = np.arctan2(np.linalg.norm(np.cross(ahead, back), axis=2), (ahead * back).sum(2))
    return angles
