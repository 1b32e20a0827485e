"""Layers: attention on a graph as a module."""

from .graph_attention import GraphAttention as GraphAttention
