"""Layers: attention on a graph as a module."""

from .graph_attention import GraphAttention as GraphAttention
from .positions import LearnedPosition as LearnedPosition
from .positions import SinusoidalPosition as SinusoidalPosition
from .rotary import Rotary as Rotary
from .rotary import grid_positions as grid_positions
