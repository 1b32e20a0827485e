"""Meshes: vertices, faces and edges; spheres."""

from .rings import mesh_vertices as mesh_vertices
from .rings import mesh_faces as mesh_faces
from .rings import mesh_edges as mesh_edges
from .geodesic import geodesic_ball as geodesic_ball
from .icosphere import icosphere as icosphere
