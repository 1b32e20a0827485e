"""Images, videos and other grids, whose nodes are numbered row by row."""

from ...graph.pattern import sizable
from . import cells_and_windows

cell_partition = sizable(cells_and_windows.cell_partition)
grid_neighbourhood = sizable(cells_and_windows.grid_neighbourhood)

__all__ = ["cell_partition", "grid_neighbourhood"]
