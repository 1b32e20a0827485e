"""Meshes: vertices, faces and edges."""

from .geodesic import geodesic_ball
from .rings import mesh_edges, mesh_faces, mesh_vertices

__all__ = ["mesh_vertices", "mesh_faces", "mesh_edges", "geodesic_ball"]
