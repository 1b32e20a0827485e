"""The catalogue of builders: each checks its arguments and returns one graph."""

from collections.abc import Callable

from ..graph import AttentionGraph
from .bipartite import cross as cross
from .grid import cell_partition as cell_partition
from .grid import grid_neighbourhood as grid_neighbourhood
from .mesh import MeshReport as MeshReport
from .mesh import mesh_faces as mesh_faces
from .mesh import mesh_report as mesh_report
from .mesh import mesh_vertices as mesh_vertices
from .points import knn as knn
from .points import radius as radius
from .sequence import causal as causal
from .sequence import documents as documents
from .sequence import full as full
from .sequence import global_tokens as global_tokens
from .sequence import prefix as prefix
from .sequence import self_loops as self_loops
from .sequence import sliding_window as sliding_window

_BUILDERS: tuple[Callable[..., AttentionGraph], ...] = (
    full,
    self_loops,
    causal,
    prefix,
    sliding_window,
    documents,
    global_tokens,
    cross,
    cell_partition,
    grid_neighbourhood,
    knn,
    radius,
    mesh_vertices,
    mesh_faces,
)

#: Every builder by name, in the order of the catalogue. (``swin``, ``natten`` and ``window`` are names on the command
#: line alone: :mod:`graphattn.cli.names`.)
BUILDERS: dict[str, Callable[..., AttentionGraph]] = {builder.__name__: builder for builder in _BUILDERS}

__all__ = ["BUILDERS", "MeshReport", "mesh_report", *BUILDERS]


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name in __all__ or name.startswith("__"))
