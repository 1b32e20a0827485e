"""The catalogue of builders, a package for each family; each builder checks its arguments and
returns one graph.
"""

from collections.abc import Callable as _Callable
from types import ModuleType as _Module

from ..graph import AttentionGraph as _Graph
from ..graph import Pattern as Pattern
from ..graph import Relations as Relations
from ..graph.expression import builders as _builders
from . import grid, mesh, network, points, sequence
from .catalogue import zoo as zoo
from .combine import block_sparse as block_sparse
from .combine import composite as composite
from .grid import *
from .mesh import *
from .mesh.icosphere import icosphere_mesh as icosphere_mesh
from .mesh.rings import mesh_edge_ends as mesh_edge_ends
from .mesh.rings import mesh_report as mesh_report
from .network import *
from .network.controls import degree_matched_random as degree_matched_random
from .network.derived import line_graph as line_graph
from .points import *
from .points.cloud_cache import CloudCache as CloudCache
from .points.curves import curve_order as curve_order
from .points.farthest import farthest_points as farthest_points
from .points.hierarchy import Hierarchy as Hierarchy
from .points.hierarchy import HierarchyRecipe as HierarchyRecipe
from .points.hierarchy import hierarchy as hierarchy
from .points.interpolation import inverse_distance_bias as inverse_distance_bias
from .points.serialized import serialized_hierarchy as serialized_hierarchy
from .points.voxels import grid_sample as grid_sample
from .points.voxels import voxel_ids as voxel_ids
from .sequence import *

#: Every builder of a family by name, in the order of the catalogue.
BUILDERS: dict[str, _Callable[..., _Graph]] = {
    name: getattr(family, name)
    for family in (sequence, grid, points, mesh, network)
    for name in vars(family)
    if name in _builders()
}

__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and not isinstance(value, _Module)
]


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name in __all__ or name.startswith("__"))
