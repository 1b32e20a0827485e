"""A sequence: nodes on a line, edges as arcs over it."""

from typing import Any

import numpy as np

from ..colours import Array, Index, Mask
from ..style import GROUND, INK, TEXT, Style, fitting, quiet, width_of
from .base import CloseUp, Layout

_LABELLED = 40
_MOST_DOTS = 4 * _LABELLED  # nodes drawn one by one
_POINTS = 33  # of an arc
_LETTERS = 14  # of an inch
# half the height of a letter turned by 90 degrees, in parts of the room above the line
_LETTER = 0.024


class Sequence(Layout):
    """Node ``i`` at ``x = i``: arcs above read back, arcs below ahead; a ring is a self-loop.

    Args:
        num_nodes: Nodes of the sequence.
        names: A word per node, or ``None``.
        back: How far targets read back, in nodes: the span of the longest arc above.
        ahead: How far they read ahead: arcs below are needed unless it is 0.
    """

    hides_loops = False
    cells: tuple[int, ...] = ()  # the axes of a grid that lies on this line, row-major
    most_edges = 200  # more arcs are one grey band
    big, small = 6.0, 3.6
    head_at = 0.5  # the top of an arc

    def __init__(self, num_nodes: int, names: list[str] | None, back: int, ahead: int) -> None:
        self.target_at = self.source_at = np.arange(num_nodes, dtype=np.float64)[:, None]
        self.names: list[str] | None = None
        if names is not None and num_nodes <= _LABELLED:
            self.names = [fitting(name) for name in names]
        self.below = ahead > 0
        if back > 0 and ahead > 0:
            self.reads = "Arcs above the line read earlier nodes and below it later ones."
        elif back > 0:
            self.reads = "Arcs above the line read earlier nodes."
        elif ahead > 0:
            self.reads = "Arcs below the line read later nodes."
        else:
            self.reads = ""
        self.longest = max(1, back, ahead)
        self.room = self._room(num_nodes)
        if self.names:
            letters = max(map(len, self.names), default=0)
        else:
            letters = 0
        if self.below and letters:
            self.gap = self.room * (0.1 + _LETTER * letters)
        else:
            self.gap = 0.0

    def paths(self, source: Index, target: Index) -> Array:
        angle = np.linspace(0, np.pi, _POINTS)
        span = (target - source).astype(np.float64)
        loop = span == 0
        half = np.where(loop, -0.3, span / 2)[:, None]
        height = np.where(loop, 0.35 / self.longest, np.abs(span) / self.longest)[:, None]
        below = (span < 0)[:, None]
        x = (
            source[:, None]
            + half * (1 - np.cos(angle))
            + np.where(loop[:, None], 0.3 + 0 * angle, 0)
        )
        y = self.gap + height * np.sin(angle)
        return np.stack((x, np.where(below, -y, y)), 2)

    def headed(self, source: Index, target: Index) -> Mask:
        return source != target

    def close_up(self, target: int, sources: Index, below: float) -> CloseUp | None:
        ends = np.append(sources, target)
        low = int(ends.min())
        high = int(ends.max())
        small = len(self.target_at) > _MOST_DOTS and 0 < high - low < below / 4 * len(
            self.target_at
        )
        if small:
            return (np.array([(low + high) / 2]), 0.65 * (high - low) + 1.0)
        return None

    def ground(self, ax: Any, near: CloseUp | None = None) -> list[str]:
        n = len(self.target_at)
        edge = 0.6 + 0.02 * n
        if near is None:
            low = -edge
            high = n - 1 + edge
        else:
            low = near[0][0] - near[1]
            high = near[0][0] + near[1]
        ax.set_xlim(low, high)
        if near is None:
            room = self.room
        else:
            room = self._room(high - low)
        top = 1.06 * room + self.gap
        if self.below:
            bottom = -top
        else:
            bottom = -0.12 * room
        ax.set_ylim(bottom, top)
        quiet(ax)
        nodes = np.arange(max(0, int(np.ceil(low))), min(n, int(high) + 1))
        if len(nodes) <= _MOST_DOTS:
            for y in {self.gap, -self.gap}:
                ax.scatter(nodes, np.full(len(nodes), y), s=9, color=GROUND, zorder=3, gid="nodes")
        else:
            ax.axhline(0, color=GROUND, linewidth=1.2, zorder=3)
        self._labels(ax, n, room, near is not None)
        size = " x ".join(map(str, self.cells))
        if self.cells:
            return [f"The grid of {size} cells lies on one line, the last axis fastest."]
        return []

    def _room(self, width: float) -> float:
        """The height above the line: short arcs stay low, ellipses, not needles."""
        return float(np.clip(0.22 * width / self.longest, 1, 4))

    def _labels(self, ax: Any, n: int, room: float, whole_numbers: bool) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        from ..mask_image import short

        if self.names is None or not self.gap:
            if self.below:
                offset = -1.06 * room
            else:
                offset = -0.05 * room
            ax.spines.bottom.set_position(("data", offset))
        if n == 0:
            return
        if self.names is None:
            ax.xaxis.set_major_locator(MaxNLocator(3 if whole_numbers else "auto", integer=True))
            ax.xaxis.set_major_formatter(
                FuncFormatter(lambda x, _: f"{x:,.0f}" if whole_numbers else short(x))
            )
            ax.tick_params(labelsize=TEXT - 1, colors=INK)
            ax.set_xlabel("place in the sequence", fontsize=TEXT)
        elif self.gap:
            for i, name in enumerate(self.names):
                ax.text(
                    i, 0, name, rotation=90, ha="center", va="center", fontsize=TEXT - 1, color=INK
                )
        else:
            inches = width_of(ax.figure) * ax.get_position().width
            turned = n * (1 + max(map(len, self.names))) > _LETTERS * inches
            style: Style = {}
            if turned:
                style = {"rotation": 90, "va": "top"}
            ax.set_xticks(range(n), self.names, fontsize=TEXT, color=INK, **style)
            ax.tick_params(length=0)

    def _dots(self, ax: Any, at: Array, gid: str, zorder: float = 8, **style: Any) -> Any:
        at = np.concatenate((at, np.full_like(at, self.gap)), 1)
        if self.gap:
            at = np.concatenate((at, at * [1, -1]))
            style |= {
                k: np.concatenate((v, v)) for k, v in style.items() if isinstance(v, np.ndarray)
            }
        return super()._dots(ax, at, gid, zorder, **style)
