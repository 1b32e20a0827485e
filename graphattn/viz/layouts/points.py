"""Points in 2-D or 3-D, with or without a mesh through them."""

from dataclasses import replace
from typing import Any

import numpy as np

from ..colours import Colouring, plainly
from ..object_image import paint
from ..style import EDGE, number, quiet
from .base import Array, Index, Layout

_MOST_CROSSES = 20_000
_NO_FACES = np.empty((0, 3), dtype=np.int64)


class Points(Layout):
    """Nodes where ``pos`` says.

    Args:
        source_at: (S, 2) or (S, 3).
        target_at: (T, 2) or (T, 3) where targets are other points; the sources by default.
        faces: int (F, 3), a mesh drawn under the nodes, or ``None``.
    """

    camera = (38.0, -62.0)  # elevation and azimuth of the eye, degrees
    zoom = 1.3  # of a 3-D picture
    colours: Colouring | None = None  # of the nodes or faces; grey by default

    def __init__(self, source_at: Array, target_at: Array | None = None, faces: Index | None = None) -> None:
        self.source_at = source_at
        self.target_at = source_at if target_at is None else target_at
        self.two_sets = target_at is not None
        self.hides_loops = not self.two_sets
        self.faces = faces
        self.drawn_faces: Index = _NO_FACES  # by the last ``ground``
        crowd = max(len(self.source_at), len(self.target_at))
        self.big, self.small = (8.0, 5.0) if crowd <= 100 else (7.0, 3.4)

    def ground(self, ax: Any, near: tuple[Array, float] | None = None) -> list[str]:
        quiet(ax)
        self._frame(ax, near)
        sentences = ["A projection: what is near on the page may be far apart in space."] * self.is_3d
        kept = np.arange(len(self.source_at)) if near is None else np.flatnonzero(_within(self.source_at, near))
        self._object(ax, kept)
        seen = [] if self.faces is not None or len(kept) == 0 else ["grey dots are sources"]
        if self.two_sets and len(
            crosses := self.target_at if near is None else self.target_at[_within(self.target_at, near)]
        ):
            seen.append("grey crosses are targets")
            if len(crosses) > _MOST_CROSSES:
                sentences.append(f"{number(_MOST_CROSSES)} of {number(len(crosses))} targets are shown.")
                crosses = crosses[np.linspace(0, len(crosses) - 1, _MOST_CROSSES).astype(np.int64)]
            side = float(np.clip(3000 / len(self.target_at), 6, 18))
            self._dots(ax, crosses, "targets", zorder=2, marker="x", linewidth=0.7, s=side, color=EDGE)
        if self.two_sets and seen:
            sentences.insert(0, f"{', '.join(seen).capitalize()}.")
        return sentences

    def _object(self, ax: Any, kept: Index) -> None:
        """The nodes, or the faces all of whose corners are, as an image under everything else."""
        colours = self.colours or plainly(len(self.source_at))
        self.drawn_faces = _NO_FACES
        if self.faces is None:
            ground = replace(colours, rgb=colours.rgb[kept])
            paint(ax, self.source_at[kept], ground, None, "sources", pale=self.colours is None)
            return
        inside = np.zeros(len(self.source_at), dtype=bool)
        inside[kept] = True
        shown = inside[self.faces].all(1)
        self.drawn_faces = self.faces[shown]
        if len(colours.rgb) == len(self.faces) != len(self.source_at):
            colours = replace(colours, rgb=colours.rgb[shown])
        paint(ax, self.source_at, colours, self.drawn_faces, "surface")

    def close_up(self, target: int, sources: Index, below: float) -> tuple[Array, float] | None:
        at = np.concatenate((self.source_at[sources], self.target_at[[target]]))
        low, high = at.min(0), at.max(0)
        reach = float((high - low).max())
        whole = float(np.ptp(np.concatenate((self.source_at, self.target_at)), axis=0).max())
        below /= 1 if self.faces is None else 2  # a surface of which less is cut off is better seen whole
        return ((low + high) / 2, 0.9 * reach) if 0 < reach < below * whole else None

    def face(self, target: int) -> None:
        out = self.target_at[target] - (self.source_at.min(0) + self.source_at.max(0)) / 2
        if self.is_3d and out.any():
            elev, azim = _angles(out)
            self.camera = float(np.clip(elev, -30, 60)), azim - 15  # not quite from the front

    def _camera(self, near: tuple[Array, float] | None) -> tuple[float, float]:
        """Elevation and azimuth, degrees, of the eye."""
        seen = self.source_at[_within(self.source_at, near)] if near is not None else self.source_at[:0]
        if len(seen) < 3:
            return self.camera
        elev, azim = _view(seen, self.source_at.mean(0))
        return min(elev, 60.0), azim

    def _frame(self, ax: Any, near: tuple[Array, float] | None) -> None:
        at = np.concatenate((self.source_at, self.target_at))
        if near is not None:
            at = np.stack((near[0] - near[1], near[0] + near[1]))
        low, high = at.min(0), at.max(0)
        pad = 0.03 * float((high - low).max() or 1.0)
        ax.set_xlim(low[0] - pad, high[0] + pad)
        ax.set_ylim(low[1] - pad, high[1] + pad)
        if not self.is_3d:
            ax.set_aspect("equal")
            return
        ax.set_zlim(low[2] - pad, high[2] + pad)
        ax.set_box_aspect(high - low + 2 * pad, zoom=self.zoom if near is None else 1.45)
        ax.computed_zorder = False  # a neighbourhood is drawn over the surface, never behind it
        elev, azim = self._camera(near)
        ax.view_init(elev=elev, azim=azim)
        ax.set_axis_off()
        if near is not None:
            at = self.source_at[_within(self.source_at, near)]
        if len(at):
            room = _room(ax, at)
            ax.set_box_aspect(high - low + 2 * pad, zoom=self.zoom * room if near is None else 1.45 * min(1.0, room))


def _room(ax: Any, at: Array) -> float:
    """Factor by which points may grow until the first of them is at the border of 3-D axes."""
    from mpl_toolkits.mplot3d.proj3d import proj_transform

    x, y, _ = proj_transform(*at.T, ax.get_proj())
    view = ax.viewLim
    out = max(
        np.abs(x - (view.x0 + view.x1) / 2).max() / view.width, np.abs(y - (view.y0 + view.y1) / 2).max() / view.height
    )
    return float(np.clip(0.48 / max(out, 1e-9), 0.5, 2.0))


def _view(at: Array, centre: Array) -> tuple[float, float]:
    """Elevation and azimuth, degrees, that look straight at the plane nearest to some 3-D points, from outside."""
    normal = np.linalg.svd(at - at.mean(0), full_matrices=False)[2][-1]
    if normal @ (at.mean(0) - centre) < 0 or (abs(normal[2]) > 0.7 and normal[2] < 0):
        normal = -normal
    return _angles(normal)


def _angles(out: Array) -> tuple[float, float]:
    """Elevation and azimuth of a direction, degrees."""
    return float(np.degrees(np.arctan2(out[2], np.hypot(*out[:2])))), float(np.degrees(np.arctan2(out[1], out[0])))


def _within(at: Array, near: tuple[Array, float]) -> Any:
    return (np.abs(at - near[0]) <= near[1]).all(1)
