"""Images, videos and other grids, whose nodes are numbered row by row."""

from .cells_and_windows import cell_partition, grid_neighbourhood

__all__ = ["cell_partition", "grid_neighbourhood"]
