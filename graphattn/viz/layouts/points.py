"""Points in 2-D or 3-D, with or without a mesh through them."""

from typing import Any

import numpy as np

from ..style import EDGE, GROUND, SURFACE, number, quiet
from .base import Array, Index, Layout

_MOST_POINTS = 20_000
_MOST_FACES = 40_000
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

    def __init__(self, source_at: Array, target_at: Array | None = None, faces: Index | None = None) -> None:
        self.source_at = source_at
        self.target_at = source_at if target_at is None else target_at
        self.two_sets = target_at is not None
        self.hides_loops = not self.two_sets
        self.faces = faces
        self.drawn_faces: Index = _NO_FACES  # by the last ``ground``
        crowd = max(len(self.source_at), len(self.target_at))
        self.dot = float(np.clip(2000 / max(1, crowd), 1.5, 22))  # area of a node, square points
        self.big, self.small = (8.0, 5.0) if crowd <= 100 else (7.0, 3.4)

    def ground(self, ax: Any, near: tuple[Array, float] | None = None) -> list[str]:
        quiet(ax)
        sentences = self._surface(ax, near)
        grow = 1.0 if near is None else 4.0
        both = [("sources", self.source_at, GROUND)] if self.faces is None else []
        both += [("targets", self.target_at, EDGE)] if self.two_sets else []
        seen = []
        for side, at, colour in both:
            at = at if near is None else at[_within(at, near)]
            if len(at) == 0:
                continue
            seen.append(f"grey {'crosses' if side == 'targets' else 'dots'} are {side}")
            if len(at) > _MOST_POINTS:
                sentences.append(f"{number(_MOST_POINTS)} of {number(len(at))} {side} are shown.")
                at = at[np.linspace(0, len(at) - 1, _MOST_POINTS).astype(np.int64)]
            style: dict[str, Any] = {"marker": "o", "linewidth": 0, "s": grow * self.dot}
            if side == "targets":
                style = {"marker": "x", "linewidth": 0.7, "s": float(np.clip(3000 / len(self.target_at), 6, 18))}
            style["color"] = self._heights(at) if self.is_3d and side == "sources" else colour
            self._dots(ax, at, side, zorder=2, **style)
        if self.two_sets and seen:
            sentences.append(f"{', '.join(seen).capitalize()}.")
        if self.is_3d:
            sentences.append("A projection: what is near on the page may be far apart in space.")
        self._frame(ax, near)
        return sentences

    def _heights(self, at: Array) -> Any:
        """Greys that tell high from low, where no surface does."""
        from matplotlib import colormaps

        low, high = self.source_at[:, 2].min(), self.source_at[:, 2].max()
        return colormaps["Greys"](0.2 + 0.3 * (at[:, 2] - low) / max(high - low, 1e-12))

    def close_up(self, target: int, sources: Index, below: float) -> tuple[Array, float] | None:
        at = np.concatenate((self.source_at[sources], self.target_at[[target]]))
        low, high = at.min(0), at.max(0)
        reach = float((high - low).max())
        whole = float(np.ptp(np.concatenate((self.source_at, self.target_at)), axis=0).max())
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

    def _surface(self, ax: Any, near: tuple[Array, float] | None) -> list[str]:
        self.drawn_faces = _NO_FACES
        if self.faces is None:
            return []
        faces = self.faces if near is None else self.faces[_within(self.source_at, near)[self.faces].all(1)]
        if len(faces) > _MOST_FACES:
            return [f"The surface is not shown ({number(len(faces))} faces)."]
        if len(faces) == 0:
            return []
        self.drawn_faces = faces
        if self.is_3d:
            from matplotlib.colors import LightSource

            x, y, z = self.source_at.T
            style: dict[str, Any] = {"color": SURFACE, "edgecolor": "#aeb7c2", "clip_on": False}
            width = 0.18 if near is None else 0.5
            elev, azim = self._camera(near)
            style["lightsource"] = LightSource(90 - azim - 35, min(elev + 20, 80))  # from beside the eye
            ax.plot_trisurf(
                x,
                y,
                z,
                triangles=_turned_to(self.source_at, faces, elev, azim),
                shade=True,
                zorder=1,
                linewidth=width,
                **style,
            )
        else:
            ax.triplot(*self.source_at.T, triangles=faces, color=GROUND, linewidth=0.5, zorder=1)
        return []

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


def _view(at: Array, centre: Array) -> tuple[float, float]:
    """Elevation and azimuth, degrees, that look straight at the plane nearest to some 3-D points, from outside."""
    normal = np.linalg.svd(at - at.mean(0), full_matrices=False)[2][-1]
    if normal @ (at.mean(0) - centre) < 0 or (abs(normal[2]) > 0.7 and normal[2] < 0):
        normal = -normal
    return _angles(normal)


def _turned_to(at: Array, faces: Index, elev: float, azim: float) -> Index:
    """The faces with their front towards the eye: light falls on both sides of a surface."""
    e, a = np.radians((elev, azim))
    eye = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    corners = at[faces]
    front = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]) @ eye
    return np.where((front < 0)[:, None], faces[:, ::-1], faces)


def _angles(out: Array) -> tuple[float, float]:
    """Elevation and azimuth of a direction, degrees."""
    return float(np.degrees(np.arctan2(out[2], np.hypot(*out[:2])))), float(np.degrees(np.arctan2(out[1], out[0])))


def _within(at: Array, near: tuple[Array, float]) -> Any:
    return (np.abs(at - near[0]) <= near[1]).all(1)
