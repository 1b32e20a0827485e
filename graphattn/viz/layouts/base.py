"""The interface of a geometry: it shows its nodes, its edges, and one neighbourhood."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..choice import MOST_EDGES
from ..style import EDGE, INK

Array = NDArray[np.float64]
Index = NDArray[np.int64]


_EVEN = 0.2  # share of sources without one


class Layout(ABC):
    """Positions of the nodes of a graph, in 1-, 2- or 3-D.

    To add a geometry, store ``source_at`` (S, d) and ``target_at`` (T, d) and write ``ground``;
    straight lines between nodes follow, and may be overridden.
    """

    source_at: Array
    target_at: Array
    most_edges = MOST_EDGES  # drawn all at once, still distinguishable
    draws_all_edges = True  # a picture of every edge can be read
    hides_loops = True  # a self-loop has no length
    two_sets = False  # sources and targets are other nodes, even where there are as many
    reads = ""  # how a drawn edge or neighbourhood is to be read, for the caption
    big, small = 7.0, 4.5  # markers of a target and of its sources, points

    @abstractmethod
    def ground(self, ax: Any, near: tuple[Array, float] | None = None) -> list[str]:
        """Draw all nodes, or those within a radius of a place; returns caption sentences."""

    def close_up(self, target: int, sources: Index, below: float) -> tuple[Array, float] | None:
        """A place and radius of a neighbourhood, if it is less than ``below`` of the picture."""
        return None

    @property
    def is_3d(self) -> bool:
        """True if the axes must be 3-D."""
        return self.target_at.shape[1] == 3

    def paths(self, source: Index, target: Index) -> Array:
        """The line of each edge, (n, points, d)."""
        return np.stack((self.source_at[source], self.target_at[target]), 1)

    def edges(self, ax: Any, source: Index, target: Index) -> None:
        """Draw edges that are not highlighted."""
        self._lines(ax, self.paths(source, target), EDGE, 0.7, "edges", alpha=0.7)

    def neighbourhood(
        self,
        ax: Any,
        target: int,
        sources: Index,
        colour: Any,
        marker: str,
        share: Array | None = None,
    ) -> None:
        """Draw what one target reads.

        ``colour`` is one colour, or RGBA per source (n, 4); ``share`` (n,) in [0, 1] makes heavy
        sources large.
        """
        every = np.ones(len(sources), dtype=bool)
        self.spokes(ax, target, sources, colour, share, every, every)
        fill = "white"
        if isinstance(colour, str):
            fill = colour
        self.mark_target(ax, target, fill, marker)

    def spokes(
        self,
        ax: Any,
        target: int,
        sources: Index,
        colour: Any,
        share: Array | None,
        lines: NDArray[np.bool_],
        dots: NDArray[np.bool_],
    ) -> None:
        """Draw lines and dots of a target's sources, by two masks, wider with a larger share."""
        one = isinstance(colour, str)
        if one:
            colours = np.broadcast_to(colour, len(sources))
        else:
            colours = colour
        if share is None:
            share = np.full(len(sources), _EVEN)
        width = 0.6 + 2.0 * share
        area = (0.9 + 1.5 * share) * self.small**2
        paths = self.paths(sources[lines], np.full(int(lines.sum()), target))
        alpha = None
        if one:
            alpha = 0.75
        self._lines(
            ax,
            paths,
            colours[lines],
            width[lines],
            f"edges of {target}",
            alpha=alpha,
        )
        at = self.source_at[sources[dots]]
        drawn = self._dots(ax, at, f"sources of {target}", color=colours[dots], s=area[dots])
        edge = INK
        if one:
            edge = "white"
        drawn.set(edgecolor=edge, linewidth=0.4)

    def field(self, ax: Any, target: int, sources: Index, colours: Any) -> None:
        """Draw the sources that reach a target through layers; ``colours`` is RGBA (n, 4)."""
        order = np.argsort(-colours[:, :3].sum(1), kind="stable")  # the darkest, nearest, on top
        dots = self._dots(
            ax,
            self.source_at[sources[order]],
            f"sources of {target}",
            color=colours[order],
            s=self.spot,
        )
        dots.set(edgecolor=INK, linewidth=0.25)
        self.mark_target(ax, target, "white", "*")

    @property
    def spot(self) -> float:
        """Area of a node of a field, square points."""
        return float(np.clip(6000 / max(1, len(self.source_at)), 5.0, 40.0))

    def face(self, target: int) -> None:
        """Turn a 3-D picture, from now on, to the side of a target; others show all anyway."""
        return

    def mark_target(self, ax: Any, target: int, colour: Any, marker: str) -> None:
        """Draw the target itself, on top."""
        factor = 1.0
        if marker == "*":
            factor = 2.5
        area = self.big**2 * factor
        style: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "s": area,
            "edgecolor": INK,
            "linewidth": 1.1,
        }
        self._dots(ax, self.target_at[[target]], f"target {target}", zorder=9, **style)

    def remarks(self) -> list[str]:
        """Sentences for the caption on how something was drawn, once all of it is."""
        return []

    def label(self, ax: Any, target: int, sources: Index) -> None:
        """Name a target and its first sources if nothing else does; needs a settled layout."""
        return

    def flat(self, at: Array) -> Array:
        """Places (n, d) on the page, (n, 2) or what a layout makes of fewer axes."""
        return at

    def _dots(self, ax: Any, at: Array, gid: str, zorder: float = 8, **style: Any) -> Any:
        return ax.scatter(*self.flat(at).T, zorder=zorder, gid=gid, **style)

    def _lines(
        self, ax: Any, paths: Array, colour: Any, width: Any, gid: str, **style: Any
    ) -> None:
        from matplotlib.collections import LineCollection

        flat = self.flat(paths.reshape(-1, paths.shape[2])).reshape(*paths.shape[:2], 2)
        style |= {"colors": colour, "linewidths": width, "zorder": 7, "gid": gid}
        ax.add_collection(LineCollection(list(flat), **style), autolim=False)
