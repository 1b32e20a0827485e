"""A mesh in space: what is behind its surface is pale, or not drawn."""

from typing import Any

import numpy as np

from ..colours import Array, Index, Mask
from ..style import Style
from .points import Points

_MOST_PAIRS = 4_000_000  # of points and faces looked at in one go
_HOLLOW = "#7b8794"
BEHIND = "Hollow dots and pale dashed edges are behind the surface."


class Surface(Points):
    """Vertices of a mesh in 3-D, and the edges whose ends are both in front."""

    _covered = _left_out = False  # something drawn was behind, or was not drawn as it is

    def visible(self, at: Array) -> Mask:
        """bool (n,): which points no drawn face hides from the eye.

        In the projection planes stay planes: a face hides a point within its triangle that is
        farther away.
        """
        shown = np.ones(len(at), dtype=bool)
        if len(self.drawn_faces) == 0 or len(at) == 0 or self.view is None:
            return shown
        points = self.view(at)
        corners = self.view(self.source_at)
        a, b, c = (corners[self.drawn_faces[:, i]] for i in range(3))
        area = _cross(b - a, c - a)
        low, high = (bound(np.stack((a, b, c)), axis=0)[:, :2] for bound in (np.min, np.max))
        slack = 1e-6 * float(np.ptp(corners[:, 2]) or 1.0)
        step = max(1, _MOST_PAIRS // len(a))
        for first in range(0, len(at), step):
            p = points[first : first + step, None]
            inside = ((low <= p[..., :2]) & (p[..., :2] <= high)).all(2) & (np.abs(area) > 1e-15)
            i, face = np.nonzero(inside)
            q = points[first + i]
            u = _cross(q - a[face], c[face] - a[face]) / area[face]
            v = _cross(b[face] - a[face], q - a[face]) / area[face]
            depth = a[face, 2] + u * (b - a)[face, 2] + v * (c - a)[face, 2]
            hides = (u >= -1e-9) & (v >= -1e-9) & (u + v <= 1 + 1e-9) & (depth > q[:, 2] + slack)
            shown[first + i[hides]] = False
        return shown

    def remarks(self) -> list[str]:
        left_out = ["Grey edges behind the surface are not drawn."] * self._left_out
        return left_out + [BEHIND] * self._covered

    def edges(self, ax: Any, source: Index, target: Index) -> list[str]:
        front = self.visible(self.source_at[source]) & self.visible(self.target_at[target])
        self._left_out |= not front.all()
        return super().edges(ax, source[front], target[front])

    def neighbourhood(
        self,
        ax: Any,
        target: int,
        sources: Index,
        colour: Any,
        marker: str,
        share: Array | None = None,
    ) -> None:
        front = self.visible(self.source_at[sources])
        solid = front & self.visible(self.target_at[[target]])
        if not solid.all():
            paths = self.paths(sources[~solid], np.full(int((~solid).sum()), target))
            pale = {"linestyles": (0, (3, 2)), "alpha": 0.5}
            self._lines(ax, paths, colour, 0.8, f"hidden edges of {target}", **pale)
        self._hollow(ax, target, sources[~front], colour)
        self.spokes(ax, target, sources, colour, share, solid, front)
        self.mark_target(ax, target, colour, marker)

    def field(self, ax: Any, target: int, sources: Index, colours: Any) -> None:
        front = self.visible(self.source_at[sources])
        self._hollow(ax, target, sources[~front], _HOLLOW)
        super().field(ax, target, sources[front], colours[front])

    def mark_target(self, ax: Any, target: int, colour: Any, marker: str) -> None:
        if self.visible(self.target_at[[target]])[0]:
            super().mark_target(ax, target, colour, marker)
            return
        self._covered = True
        style: Style = {"marker": marker, "s": self.big**2, "linewidth": 1.1}
        if colour == "white":
            edge = _HOLLOW
        else:
            edge = colour
        self._dots(
            ax,
            self.target_at[[target]],
            f"target {target}",
            facecolor="none",
            edgecolor=edge,
            **style,
        )

    def _hollow(self, ax: Any, target: int, sources: Index, edge: str) -> None:
        if len(sources):
            self._covered = True
            style: Style = {"facecolor": "none", "edgecolor": edge, "linewidth": 0.7}
            self._dots(
                ax,
                self.source_at[sources],
                f"hidden sources of {target}",
                7,
                s=0.7 * self.small**2,
                **style,
            )


def _cross(a: Array, b: Array) -> Array:
    """Cross product of the first two axes."""
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
