"""Points of any dimension."""

from .ball_query import ball_query
from .clusters import clusters
from .neighbours import knn, radius
from .patches import curve_patches, octree_windows
from .voxels import stratified_windows, voxel_windows

__all__ = [
    "knn", "radius", "ball_query", "curve_patches", "octree_windows", "voxel_windows", "stratified_windows", "clusters",
]  # fmt: skip
