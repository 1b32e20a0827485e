"""Layers: attention on a graph as a module."""

from ..lazy import attach_stub as _attach_stub

__getattr__, __dir__, __all__ = _attach_stub(__name__, __file__)
