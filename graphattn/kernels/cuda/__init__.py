"""Launches on a GPU: rows of edges as work, grids, bytes moved."""
