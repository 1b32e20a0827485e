"""Named patterns: mesh."""

from .pattern import Named

NAMED: tuple[Named, ...] = (
    Named("one-ring", "mesh", "the ends of a vertex's edges", "mesh_vertices(octahedron_faces)"),
)
