"""Biases: modules that give a graph's edges a number for each head,
``layer(x, graph, score_bias=bias(graph))``.
"""

from .places import ContextualTable as ContextualTable
from .places import FourierFeatures as FourierFeatures
from .places import OffsetBias as OffsetBias
from .sequence import ALiBi as ALiBi
from .sequence import T5Bias as T5Bias
from .shortest_path import ShortestPathBias as ShortestPathBias
from .table import EdgeTable as EdgeTable
from .window import SwinBias as SwinBias
from .window import SwinV2Bias as SwinV2Bias
