"""Named patterns: points."""

from .pattern import Named

NAMED: tuple[Named, ...] = (Named("kNN", "points", "the k nearest points", "knn(sphere, 6)"),)
