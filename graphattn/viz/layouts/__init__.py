"""The geometries that a graph is drawn in. One file per geometry; :func:`layout_of` picks."""

from .base import Layout as Layout
from .pick import layout_of as layout_of
