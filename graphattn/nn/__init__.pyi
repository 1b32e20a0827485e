"""The public names of :mod:`graphattn.nn`."""

from ..plans.edge_tensors import EdgeTensors as EdgeTensors
from .biases.decomposed import DecomposedBias as DecomposedBias
from .biases.places import ContextualTable as ContextualTable
from .biases.places import FourierFeatures as FourierFeatures
from .biases.places import OffsetBias as OffsetBias
from .biases.sequence import ALiBi as ALiBi
from .biases.sequence import T5Bias as T5Bias
from .biases.shortest_path import ShortestPathBias as ShortestPathBias
from .biases.table import EdgeTypeBias as EdgeTypeBias
from .biases.window import SwinBias as SwinBias
from .biases.window import SwinV2Bias as SwinV2Bias
from .blocks import TransformerBlock as TransformerBlock
from .cache import KeyValueCache as KeyValueCache
from .feed_forward import DropPath as DropPath
from .feed_forward import FeedForward as FeedForward
from .feed_forward import MixtureOfExperts as MixtureOfExperts
from .feed_forward import load_balancing_loss as load_balancing_loss
from .geometry import edge_geometry as edge_geometry
from .geometry import local_frames as local_frames
from .geometry import local_pca as local_pca
from .geometry import relative_positions as relative_positions
from .graph_attention import GraphAttention as GraphAttention
from .graph_encodings import laplacian_eigenvector_pe as laplacian_eigenvector_pe
from .graph_encodings import random_walk_pe as random_walk_pe
from .graph_encodings import relative_walk_pe as relative_walk_pe
from .linear_attention import FeatureScore as FeatureScore
from .linear_attention import PositiveFeatures as PositiveFeatures
from .points.cell_conv import CellConv as CellConv
from .points.descriptors import local_descriptors as local_descriptors
from .points.descriptors import shape_descriptors as shape_descriptors
from .points.equivariant import EquivariantAttention as EquivariantAttention
from .points.interpolation import inverse_distance_bias as inverse_distance_bias
from .points.mesh_geometry import heat_distance as heat_distance
from .points.mesh_geometry import mesh_edge_geometry as mesh_edge_geometry
from .points.mesh_geometry import mesh_normals as mesh_normals
from .points.mesh_tokens import mesh_elements as mesh_elements
from .points.pooling import inverse_distance_interpolate as inverse_distance_interpolate
from .points.pooling import pool as pool
from .positions import LearnedPosition as LearnedPosition
from .positions import SinusoidalPosition as SinusoidalPosition
from .rotary import LinearScaling as LinearScaling
from .rotary import Llama3Scaling as Llama3Scaling
from .rotary import Rotary as Rotary
from .rotary import grid_positions as grid_positions

__all__: list[str]
