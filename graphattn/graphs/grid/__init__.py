"""Images, videos and other grids, whose nodes are numbered row by row."""

from .balls import grid_ball
from .cells_and_windows import cell_partition, grid_neighbourhood
from .halo import cell_pooling, halo

__all__ = ["cell_partition", "cell_pooling", "halo", "grid_neighbourhood", "grid_ball"]
