"""Layers and geometry of points, meshes and cells."""
