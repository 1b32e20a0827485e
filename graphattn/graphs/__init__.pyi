"""The public names of :mod:`graphattn.graphs`, in the order of the catalogue: those of the five
families, then graphs of graphs.
"""

from collections.abc import Callable

from ..graph import AttentionGraph
from ..graph import Pattern as Pattern
from ..graph import Relations as Relations
from .catalogue import zoo as zoo

from .sequence.basic import full as full
from .sequence.basic import self_loops as self_loops
from .sequence.basic import causal as causal
from .sequence.basic import prefix as prefix
from .sequence.basic import sliding_window as sliding_window
from .sequence.windows import sinks as sinks
from .sequence.windows import logsparse as logsparse
from .sequence.factorised import sparse_strided as sparse_strided
from .sequence.factorised import sparse_fixed as sparse_fixed
from .sequence.blocks import block_local as block_local
from .sequence.blocks import block_causal as block_causal
from .sequence.blocks import block_diffusion as block_diffusion
from .sequence.basic import documents as documents
from .sequence.labels import bidirectional_segments as bidirectional_segments
from .sequence.labels import causal_by_rank as causal_by_rank
from .sequence.basic import global_tokens as global_tokens
from .sequence.prefix_tree import PrefixTree as PrefixTree
from .sequence.prefix_tree import prefix_tree as prefix_tree
from .sequence.random_edges import random_neighbours as random_neighbours
from .sequence.random_edges import erdos_renyi as erdos_renyi
from .sequence.data_dependent import routed as routed
from .sequence.data_dependent import top_k as top_k
from .sequence.data_dependent import lsh_buckets as lsh_buckets
from .sequence.bipartite import cross as cross
from .sequence.labels import cross_documents as cross_documents

from .grid.cells_and_windows import window_partition as window_partition
from .grid.halos import cell_pooling as cell_pooling
from .grid.halos import halo as halo
from .grid.cells_and_windows import grid_neighbourhood as grid_neighbourhood
from .grid.balls import grid_ball as grid_ball
from .grid.offsets import shifted as shifted

from .points.neighbours import knn as knn
from .points.neighbours import radius as radius
from .points.ball_query import ball_query as ball_query
from .points.patches import curve_patches as curve_patches
from .points.patches import octree_windows as octree_windows
from .points.voxels import voxel_windows as voxel_windows
from .points.voxels import stratified_windows as stratified_windows
from .points.clusters import clusters as clusters
from .points.voxels import voxel_downsample as voxel_downsample
from .points.sphere import on_sphere as on_sphere
from .points.hierarchy import Level as Level
from .points.hierarchy import Hierarchy as Hierarchy
from .points.hierarchy import HierarchyRecipe as HierarchyRecipe
from .points.hierarchy import hierarchy as hierarchy
from .points.serialized import serialized_hierarchy as serialized_hierarchy
from .points.cloud_cache import CloudCache as CloudCache

from .mesh.rings import mesh_vertices as mesh_vertices
from .mesh.rings import mesh_faces as mesh_faces
from .mesh.rings import mesh_edges as mesh_edges
from .mesh.cells import mesh_cells as mesh_cells
from .mesh.containing import containing as containing
from .mesh.geodesic import geodesic_ball as geodesic_ball
from .mesh.icosphere import icosphere as icosphere

from .network.trees import tree as tree
from .network.trees import ancestors as ancestors
from .network.trees import siblings as siblings
from .network.circles import circulant as circulant
from .network.circles import butterfly as butterfly
from .network.circles import coarse_to_fine as coarse_to_fine
from .network.random import expander as expander
from .network.random import random_regular as random_regular
from .network.random import small_world as small_world
from .network.derived import hypergraph as hypergraph
from .network.derived import between_types as between_types

from .of_graphs.combine import block_sparse as block_sparse
from .of_graphs.combine import composite as composite
from .of_graphs.line_graphs import line_graph as line_graph
from .of_graphs.controls import degree_matched_random as degree_matched_random

__all__: list[str]
BUILDERS: dict[str, Callable[..., AttentionGraph]]
