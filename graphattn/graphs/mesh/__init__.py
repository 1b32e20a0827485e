"""Meshes: vertices, faces and edges; spheres."""
