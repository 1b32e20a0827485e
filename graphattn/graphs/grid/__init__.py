"""Images, videos and other grids, whose nodes are numbered row by row."""

from ...graph.pattern import sizable
from . import balls, cells_and_windows
from . import halo as halos

cell_partition = sizable(cells_and_windows.cell_partition)
grid_neighbourhood = sizable(cells_and_windows.grid_neighbourhood)
cell_pooling, halo, grid_ball = sizable(halos.cell_pooling), sizable(halos.halo), sizable(balls.grid_ball)

__all__ = ["cell_partition", "cell_pooling", "halo", "grid_neighbourhood", "grid_ball"]
