"""Points of any dimension."""

from .neighbours import knn as knn
from .neighbours import radius as radius
from .ball_query import ball_query as ball_query
from .patches import curve_patches as curve_patches
from .patches import octree_windows as octree_windows
from .voxels import voxel_windows as voxel_windows
from .voxels import stratified_windows as stratified_windows
from .clusters import clusters as clusters
