"""The interface of a geometry: it shows its nodes, its edges, and one neighbourhood."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..choice import MOST_EDGES
from ..colours import Array, Index, Mask
from ..style import EDGE, INK, Style

CloseUp = tuple[Array, float]
"""A place and the radius around it."""
Names = tuple[list[str] | None, list[str] | None]
"""Of targets and of sources."""

_EVEN = 0.2  # share of sources without one
_HEAD = 0.075  # inches, the length of a head
_MOST_HEADS = 40  # at one target
_ROOM = 3.5  # heads that a line to a marked target has room for, at least
_SPREAD = 0.75  # width of a head, in parts of its length


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
    head = _HEAD  # of an edge, inches; 0 for none
    head_at = 0.58  # of the way from source to target

    @abstractmethod
    def ground(self, ax: Any, near: CloseUp | None = None) -> list[str]:
        """Draw all nodes, or those within a radius of a place; returns caption sentences."""

    def close_up(self, target: int, sources: Index, below: float) -> CloseUp | None:
        """A place and radius of a neighbourhood, if it is less than ``below`` of the picture."""
        return None

    @property
    def is_3d(self) -> bool:
        """True if the axes must be 3-D."""
        return self.target_at.shape[1] == 3

    def paths(self, source: Index, target: Index) -> Array:
        """The line of each edge, (n, points, d)."""
        return np.stack((self.source_at[source], self.target_at[target]), 1)

    def edges(self, ax: Any, source: Index, target: Index) -> list[str]:
        """Draw edges that are not highlighted, with heads; returns caption sentences."""
        paths = self.paths(source, target)
        self._lines(ax, paths, EDGE, 0.7, "edges", alpha=0.7)
        headed = self.headed(source, target)
        self._heads(ax, paths[headed], EDGE, "heads")
        if (headed | (source == target)).all():
            return []
        if headed.any():
            return ["A line without a head runs both ways."]
        return ["Every line runs both ways."]

    def headed(self, source: Index, target: Index) -> Mask:
        """bool (n,): which edges get a head: not loops, and no pair that shares one line."""
        if self.two_sets:
            return np.ones(len(source), dtype=bool)
        S = len(self.source_at)
        return ~np.isin(target * S + source, source * S + target)

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
        lines: Mask,
        dots: Mask,
    ) -> None:
        """Draw lines and dots of a target's sources, by two masks, wider with a larger share."""
        one = isinstance(colour, str)
        if one:
            colours = np.broadcast_to(colour, len(sources))
        else:
            colours = colour
        has_heads = share is None and len(sources) <= _MOST_HEADS
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
        if has_heads:
            headed = lines & (self.two_sets | (sources != target))
            headed &= self._inches(ax, sources, target) > _ROOM * self.head
            paths = self.paths(sources[headed], np.full(int(headed.sum()), target))
            self._heads(ax, paths, colours[headed], f"heads of {target}")
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
        style: Style = {
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

    def _inches(self, ax: Any, sources: Index, target: int) -> Array:
        """Distances of sources from a target on the page, before its panels are arranged."""
        ends = np.concatenate((self.source_at[sources], self.target_at[[target]]))
        at = self.flat(ends)
        if at.shape[1] == 1:  # on a line
            at = np.concatenate((at, np.zeros_like(at)), 1)
        at = ax.transData.transform(at)
        return np.linalg.norm(at[:-1] - at[-1], axis=1) / ax.figure.dpi

    def _heads(self, ax: Any, paths: Array, colour: Any, gid: str) -> None:
        """A head of one size on the page on each line, which points the way it runs."""
        if len(paths) == 0 or self.head == 0:
            return
        at = self.flat(paths.reshape(-1, paths.shape[2])).reshape(*paths.shape[:2], 2)
        place = self.head_at * (at.shape[1] - 1)
        before = int(place)
        tail = at[:, before]
        way = at[:, before + 1] - tail
        tip = tail + (place - before) * way
        length = np.linalg.norm(way, axis=1, keepdims=True)
        tip, way = (x[length[:, 0] > 0] for x in (tip, way / np.maximum(length, 1e-300)))
        triangle: Style = {
            "width": 0.01 * self.head,
            "headlength": 100,
            "headaxislength": 100,
            "headwidth": 100 * _SPREAD,
        }
        heads = ax.quiver(
            *tip.T,
            *way.T,
            angles="xy",
            units="inches",
            scale_units="inches",
            scale=1 / self.head,
            pivot="mid",
            color=colour,
            zorder=7,
            **triangle,
        )
        heads.set_gid(gid)
