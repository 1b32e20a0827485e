"""Images, videos and other grids, whose nodes are numbered row by row."""

from .cells_and_windows import window_partition as window_partition
from .halos import cell_pooling as cell_pooling
from .halos import halo as halo
from .cells_and_windows import grid_neighbourhood as grid_neighbourhood
from .balls import grid_ball as grid_ball
from .offsets import offset as offset
