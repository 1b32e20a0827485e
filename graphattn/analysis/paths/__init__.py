"""Paths through the layers: what depends on what, by how many edges, and how much."""
