"""A grid of cells, row-major: a neighbourhood is the cells that it covers."""

from typing import Any

import numpy as np

from ...printed import counted
from ..colours import Array, Index
from ..style import FAINT, INK, TEXT
from .base import CloseUp, Layout

_CORNERS = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])  # of a cell


class Grid(Layout):
    """Node ``i`` is the cell in row ``i // width``, column ``i % width``.

    Args:
        size: (height, width).
        image: (height * p, width * q), or (..., 3) in colour, drawn under the cells, or ``None``.
        tokens: Number of nodes that come before the cells, in rows of their own above the grid.
    """

    draws_all_edges = False
    big = 8.0
    reads = "Tinted cells are the sources of the marked target."

    def __init__(self, size: tuple[int, int], image: Array | None = None, tokens: int = 0) -> None:
        self.size = size
        self.image = image
        self.tokens = tokens
        width = max(1, size[1])
        self.above = 0  # rows above the grid, of which the last is empty
        if tokens:
            self.above = 1 + -(-tokens // width)
        row, column = np.divmod(np.arange(size[0] * size[1]), width)
        token_row, token_column = np.divmod(np.arange(tokens), width)
        rows = np.concatenate((token_row - self.above, row))
        columns = np.concatenate((token_column, column))
        self.source_at = self.target_at = np.stack((columns, rows), 1).astype(np.float64)

    def ground(self, ax: Any, near: CloseUp | None = None) -> list[str]:
        height, width = self.size
        if self.image is not None:
            if self.image.ndim == 2:
                pale = 0.55
            else:
                pale = 0.8
            box = (-0.5, width - 0.5, height - 0.5, -0.5)
            ax.imshow(self.image, cmap="Greys", alpha=pale, zorder=1, extent=box)
        ax.set_xlim(-0.6, width - 0.4)
        ax.set_ylim(height - 0.4, -0.6 - self.above)
        ax.set_aspect("equal")
        if max(height, width) <= 64:
            ax.vlines(
                np.arange(width + 1) - 0.5, -0.5, height - 0.5, color=FAINT, linewidth=0.7, zorder=2
            )
            ax.hlines(
                np.arange(height + 1) - 0.5, -0.5, width - 0.5, color=FAINT, linewidth=0.7, zorder=2
            )
        from matplotlib.collections import PolyCollection

        squares = self.source_at[: self.tokens, None] + _CORNERS
        outlines = PolyCollection(
            list(squares), facecolors="none", edgecolors=FAINT, linewidths=0.7, zorder=2
        )
        ax.add_collection(outlines, autolim=False)
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator("auto", integer=True))
        ax.yaxis.set_major_formatter(FuncFormatter(_row_number))
        ax.tick_params(labelsize=TEXT - 1, length=0)
        ax.set_xlabel("column", fontsize=TEXT)
        ax.set_ylabel("row", fontsize=TEXT)
        for spine in ax.spines.values():
            spine.set_visible(False)
        if self.tokens == 0:
            return ["Node = row * width + column."]
        come = "come"
        if self.tokens == 1:
            come = "comes"
        return [
            f"{counted(self.tokens, 'global token')} {come} first, above the grid; "
            f"node = {self.tokens} + row * width + column."
        ]

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
        squares = self.source_at[sources][:, None] + _CORNERS
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
        inside = np.zeros((self.above + height + 2, width + 2), dtype=bool)
        columns, rows = self.source_at[sources].astype(np.int64).T
        inside[rows + self.above + 1, columns + 1] = True
        row, column = np.nonzero(inside[1:, 1:-1] != inside[:-1, 1:-1])
        row -= self.above
        flat = np.stack(
            (np.stack((column - 0.5, row - 0.5), 1), np.stack((column + 0.5, row - 0.5), 1)), 1
        )
        row, column = np.nonzero(inside[1:-1, 1:] != inside[1:-1, :-1])
        row -= self.above
        steep = np.stack(
            (np.stack((column - 0.5, row - 0.5), 1), np.stack((column - 0.5, row + 0.5), 1)), 1
        )
        return [*flat, *steep]


def _row_number(row: float, place: int | None = None) -> str:
    """The label of a row of the grid; the rows of tokens above it have none."""
    if row < 0:
        return ""
    return f"{row:.0f}"
