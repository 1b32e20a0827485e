"""The geometries that a graph is drawn in. One file per geometry; :func:`place_of` picks."""

from .base import Place as Place
from .pick import place_of as place_of
