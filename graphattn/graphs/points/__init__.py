"""Points of any dimension."""

from .neighbours import knn, radius

__all__ = ["knn", "radius"]
