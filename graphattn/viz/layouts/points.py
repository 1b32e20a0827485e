"""Points in 2-D or 3-D, with or without a mesh through them."""

from dataclasses import replace
from typing import Any

import numpy as np

from ..camera import Camera, angles_of, facing
from ..choice import MOST_SOURCES
from ..colours import Array, Colouring, Index, plainly
from ..creases import SMOOTH
from ..object_image import paint
from ..style import EDGE, number, quiet
from .base import CloseUp, Layout

_MOST_CROSSES = 20_000
_BESIDE, _ABOVE = 38.0, 55.0  # degrees: elevation of the eye, of what is flat as a landscape
# radii of a close-up, up to which a surface is drawn: it is cut off outside the picture
_BEYOND = 2.0
_REACH = 0.06  # of the size of a mesh: how far from a node a long face has the colour of its weight
_MARGIN = 0.03  # of the picture
_SIDE = 0.9  # points: the width of a side of the cell
# of so many points a few strays may make a picture so much larger: left out
_MANY, _STRAY, _FAR = (
    1_000,
    0.002,
    1.6,
)
_NO_FACES = np.empty((0, 3), dtype=np.int64)


class Points(Layout):
    """Nodes where ``pos`` says.

    Args:
        source_at: (S, 2) or (S, 3).
        target_at: (T, 2) or (T, 3) where targets are other points; the sources by default.
        faces: int (F, 3), a mesh drawn under the nodes, or ``None``.
    """

    # elevation and azimuth, degrees; by default as it is best seen
    camera: tuple[float, float] | None = None
    smooth = SMOOTH  # degrees; of the surface
    colours: Colouring | None = None  # of the nodes or faces; grey by default
    view: Camera | None = None  # of the last ``frame`` in space
    box: Array | None = None  # (sides, 2, d) of a cell that repeats: both ends of each side
    lattice: Array | None = None  # (d, d), its vectors; zeros where no edge leads to an image

    def __init__(
        self, source_at: Array, target_at: Array | None = None, faces: Index | None = None
    ) -> None:
        self.source_at = source_at
        if target_at is None:
            self.target_at = source_at
        else:
            self.target_at = target_at
        self.two_sets = target_at is not None
        self.hides_loops = not self.two_sets
        self.faces = faces
        self.drawn_faces: Index = _NO_FACES  # by the last ``ground``
        crowd = max(len(self.source_at), len(self.target_at))
        if crowd <= 100:
            self.big = 8.0
            self.small = 5.0
        else:
            self.big = 7.0
            self.small = 3.4

    def flat(self, at: Array) -> Array:
        if self.view is None:
            return at
        return self.view(at)[:, :2]

    def paths(self, source: Index, target: Index) -> Array:
        """The line of each edge, (n, 2, d); in a cell that repeats from the nearest image."""
        ends = super().paths(source, target)
        if self.lattice is not None:
            away = ends[:, 1] - ends[:, 0]
            steps = np.rint(away @ np.linalg.pinv(self.lattice))
            ends[:, 0] += steps @ self.lattice
        return ends

    def paints(self, sources: int) -> bool:
        """True if values of sources are colours of places, since so many lines would overlap."""
        return self.faces is not None or sources > MOST_SOURCES

    def painted(self, sources: Index, rgb: Array) -> Colouring:
        """The colours (n, 3) of some sources, on the grey of the others."""
        colours = plainly(len(self.source_at))
        colours.rgb[sources] = rgb
        return replace(
            colours, reach=_REACH * float(np.ptp(self.source_at, axis=0).max(initial=0.0))
        )

    def ground(self, ax: Any, near: CloseUp | None = None) -> list[str]:
        quiet(ax)
        low, high = self.frame(near)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        sentences = [
            "A projection: what is near on the page may be far apart in space."
        ] * self.is_3d
        if near is None:
            nodes = np.arange(len(self.source_at))
        else:
            nodes = np.flatnonzero(_within(self.source_at, near))
        if len(nodes) < len(self.source_at):
            out = number(len(self.source_at) - len(nodes))
            every = number(len(self.source_at))
            sentences.append(f"A close-up: {out} of {every} points lie outside and are left out.")
        if near is None:
            self._box(ax)
        self._object(ax, nodes, near)
        if self.lattice is not None and self.lattice.any():
            sentences.append("A line that leaves the box leads to an image on its other side.")
        at = self.flat(self.source_at[nodes])
        outside = int(((at < low) | (high < at)).any(1).sum())
        if outside:
            sentences.append(
                f"{number(outside)} of {number(len(nodes))} points are outside the picture."
            )
        if self.faces is not None or len(nodes) == 0:
            phrases = []
        else:
            phrases = ["grey dots are sources"]
        if self.two_sets and len(
            crosses := self.target_at
            if near is None
            else self.target_at[_within(self.target_at, near)]
        ):
            phrases.append("grey crosses are targets")
            if len(crosses) > _MOST_CROSSES:
                sentences.append(
                    f"{number(_MOST_CROSSES)} of {number(len(crosses))} targets are shown."
                )
                crosses = crosses[np.linspace(0, len(crosses) - 1, _MOST_CROSSES).astype(np.int64)]
            side = float(np.clip(3000 / len(self.target_at), 6, 18))
            self._dots(
                ax, crosses, "targets", zorder=2, marker="x", linewidth=0.7, s=side, color=EDGE
            )
        if self.two_sets and phrases:
            sentences.insert(0, f"{', '.join(phrases).capitalize()}.")
        return sentences

    def _object(self, ax: Any, nodes: Index, near: CloseUp | None) -> None:
        """The nodes, or the faces all of whose corners are, as an image under everything else."""
        colours = self.colours or plainly(len(self.source_at))
        self.drawn_faces = _NO_FACES
        if self.faces is None:
            ground = replace(colours, rgb=colours.rgb[nodes])
            paint(
                ax,
                self.source_at[nodes],
                self.view,
                ground,
                None,
                "sources",
                pale=self.colours is None,
            )
            return
        inside = np.zeros(len(self.source_at), dtype=bool)
        inside[nodes if near is None else _within(self.source_at, (near[0], _BEYOND * near[1]))] = (
            True
        )
        shown = inside[self.faces].all(1)
        self.drawn_faces = self.faces[shown]
        if len(colours.rgb) == len(self.faces) != len(self.source_at):
            colours = replace(colours, rgb=colours.rgb[shown])
        paint(
            ax, self.source_at, self.view, colours, self.drawn_faces, "surface", smooth=self.smooth
        )

    def _box(self, ax: Any) -> None:
        """The sides of the cell that repeats, under the points."""
        if self.box is None:
            return
        from matplotlib.collections import LineCollection

        ends = self.flat(self.box.reshape(-1, self.box.shape[2]))
        lines = list(ends.reshape(-1, 2, 2))
        drawn = LineCollection(lines, colors=EDGE, linewidths=_SIDE, zorder=0.8, gid="cell")
        ax.add_collection(drawn)

    def close_up(self, target: int, sources: Index, below: float) -> CloseUp | None:
        at = np.concatenate((self.source_at[sources], self.target_at[[target]]))
        low = at.min(0)
        high = at.max(0)
        reach = float((high - low).max())
        extent = float(np.ptp(np.concatenate((self.source_at, self.target_at)), axis=0).max())
        # a surface of which less is cut off is better seen whole
        share = 2
        if self.faces is None:
            share = 1
        below /= share
        if 0 < reach < below * extent:
            return ((low + high) / 2, 0.9 * reach)
        return None

    def face(self, target: int) -> None:
        out = self.target_at[target] - (self.source_at.min(0) + self.source_at.max(0)) / 2
        if self.is_3d and out.any():
            elevation, azimuth = angles_of(out)
            # not quite from the front
            self.camera = (
                float(np.clip(elevation, -30, 60)),
                azimuth - 15,
            )

    def frame(self, near: CloseUp | None = None) -> tuple[Array, Array]:
        """The lower left and upper right visible corners; in space the camera is set first."""
        if self.two_sets:
            at = np.concatenate((self.source_at, self.target_at))
        else:
            at = self._drawn
        if self.box is not None:
            at = np.concatenate((at, self.box.reshape(-1, self.box.shape[2])))
        if self.is_3d:
            self.view = Camera.around(at, *self._camera(near))
        if near is not None:
            within = self.source_at[_within(self.source_at, near)]
            if len(within) > 1:
                at = within
            else:
                at = np.stack((near[0] - near[1], near[0] + near[1]))
        at = self.flat(at)
        if len(at):
            low = at.min(0)
            high = at.max(0)
        else:
            low = np.zeros(2)
            high = np.zeros(2)
        if self.faces is None and len(at) >= _MANY:
            few = np.quantile(at, [_STRAY, 1 - _STRAY], axis=0)
            if ((high - low) > _FAR * (few[1] - few[0])).any():
                low, high = few + 0.02 * np.outer((-1, 1), few[1] - few[0])
        pad = _MARGIN * (float((high - low).max()) or 1.0)
        return low - pad, high + pad

    def _camera(self, near: CloseUp | None) -> tuple[float, float]:
        """Elevation and azimuth, degrees, of the eye."""
        if near is not None:
            inside = self.source_at[_within(self.source_at, near)]
        else:
            inside = self.source_at[:0]
        if len(inside) >= 3:
            elevation, azimuth = facing(inside, self.source_at.mean(0))
            return min(elevation, 60.0), azimuth
        return self.best_camera

    @property
    def _drawn(self) -> Array:
        """The nodes; of a mesh those that are corners of its faces: a stray vertex is not seen."""
        if self.faces is None or not len(self.faces):
            return self.source_at
        return self.source_at[np.unique(self.faces)]

    @property
    def best_camera(self) -> tuple[float, float]:
        """Elevation and azimuth, in degrees, that show all; higher above flat shapes."""
        if self.camera is not None:
            return self.camera
        if self.box is not None:
            sides = np.ptp(self.box.reshape(-1, 3), axis=0)
        elif len(self.source_at):
            sides = np.ptp(self._drawn, axis=0)
        else:
            sides = np.ones(3)
        return (_ABOVE if sides[2] < 0.3 * min(sides[:2]) else _BESIDE), -62.0


def _within(at: Array, near: CloseUp) -> Any:
    return (np.abs(at - near[0]) <= near[1]).all(1)
