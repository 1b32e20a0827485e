"""A grid of cells, row-major: a neighbourhood is the cells that it covers."""

from typing import Any

import numpy as np

from ..style import FAINT, INK, TEXT
from .base import Array, Index, Layout


class Grid(Layout):
    """Node ``i`` is the cell in row ``i // width``, column ``i % width``.

    Args:
        size: (height, width).
        image: (height * p, width * q), or (..., 3) in colour, drawn under the cells, or ``None``.
    """

    draws_all_edges = False
    big = 8.0
    reads = "Tinted cells are the sources of the marked target."

    def __init__(self, size: tuple[int, int], image: Array | None = None) -> None:
        self.size = size
        self.image = image
        row, column = np.divmod(np.arange(size[0] * size[1]), size[1])
        self.source_at = self.target_at = np.stack((column, row), 1).astype(np.float64)

    def ground(self, ax: Any, near: tuple[Array, float] | None = None) -> list[str]:
        height, width = self.size
        if self.image is not None:
            if self.image.ndim == 2:
                pale = 0.55
            else:
                pale = 0.8
            box = (-0.5, width - 0.5, height - 0.5, -0.5)
            ax.imshow(self.image, cmap="Greys", alpha=pale, zorder=1, extent=box)
        ax.set_xlim(-0.6, width - 0.4)
        ax.set_ylim(height - 0.4, -0.6)
        ax.set_aspect("equal")
        if max(height, width) <= 64:
            ax.vlines(
                np.arange(width + 1) - 0.5, -0.5, height - 0.5, color=FAINT, linewidth=0.7, zorder=2
            )
            ax.hlines(
                np.arange(height + 1) - 0.5, -0.5, width - 0.5, color=FAINT, linewidth=0.7, zorder=2
            )
        from matplotlib.ticker import MaxNLocator

        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator("auto", integer=True))
        ax.tick_params(labelsize=TEXT - 1, length=0)
        ax.set_xlabel("column", fontsize=TEXT)
        ax.set_ylabel("row", fontsize=TEXT)
        for spine in ax.spines.values():
            spine.set_visible(False)
        return ["Node = row * width + column."]

    def neighbourhood(
        self,
        ax: Any,
        target: int,
        sources: Index,
        colour: Any,
        marker: str,
        share: Array | None = None,
    ) -> None:
        from matplotlib.collections import LineCollection, PolyCollection

        is_one = isinstance(colour, str)
        corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
        squares = self.source_at[sources][:, None] + corners
        if not is_one and self.image is not None:  # weak weights let the image through
            dark = 1 - np.asarray(colour)[:, :3].mean(1)
            colour = np.concatenate((np.asarray(colour)[:, :3], (0.35 + 0.6 * dark)[:, None]), 1)
        fill = PolyCollection(
            list(squares), facecolors=colour, linewidths=0, gid=f"sources of {target}", zorder=3
        )
        border_colour = INK
        mark_colour = "white"
        if is_one:
            fill.set_alpha(0.3)
            border_colour = colour
            mark_colour = colour
        ax.add_collection(fill, autolim=False)
        border = LineCollection(
            self._border(sources), colors=border_colour, linewidths=2.0, zorder=4
        )
        ax.add_collection(border, autolim=False)
        self.mark_target(ax, target, mark_colour, marker)

    def field(self, ax: Any, target: int, sources: Index, colours: Any) -> None:
        self.neighbourhood(ax, target, sources, colours, "*")

    def _border(self, sources: Index) -> list[Array]:
        """Sides between a source and a cell that is none."""
        height, width = self.size
        inside = np.zeros((height + 2, width + 2), dtype=bool)
        inside[sources // width + 1, sources % width + 1] = True
        row, column = np.nonzero(inside[1:, 1:-1] != inside[:-1, 1:-1])
        flat = np.stack(
            (np.stack((column - 0.5, row - 0.5), 1), np.stack((column + 0.5, row - 0.5), 1)), 1
        )
        row, column = np.nonzero(inside[1:-1, 1:] != inside[1:-1, :-1])
        steep = np.stack(
            (np.stack((column - 0.5, row - 0.5), 1), np.stack((column - 0.5, row + 0.5), 1)), 1
        )
        return [*flat, *steep]
