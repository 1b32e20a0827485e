"""Meshes: vertices and faces."""

from .rings import mesh_faces, mesh_vertices

__all__ = ["mesh_vertices", "mesh_faces"]
