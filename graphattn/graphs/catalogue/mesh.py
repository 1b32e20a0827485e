"""Named patterns: mesh."""

from functools import partial

from .pattern import Named

_named = partial(Named, "mesh")
NAMED: tuple[Named, ...] = (
    _named("one-ring", "the ends of a vertex's edges", "mesh_vertices(sphere_faces)"),
    _named(
        "one-ring and self",
        "the same with self-loops",
        "mesh_vertices(sphere_faces, self_loops=True)",
    ),
    _named("k-ring", "the vertices up to k mesh edges away", "mesh_vertices(sphere_faces, hops=2)"),
    _named(
        "face adjacency",
        "the faces across a face's edges",
        "mesh_faces(octahedron_faces)",
        "Hu 2022",
    ),
    _named(
        "face adjacency, k-ring",
        "the faces up to k steps across edges away",
        "mesh_faces(sphere_faces, 3)",
        "Hu 2022",
    ),
    _named(
        "face adjacency by vertices",
        "the faces that share a corner",
        'mesh_faces(sphere_faces, share="vertex", self_loops=True)',
    ),
    _named(
        "MeshCNN",
        "an edge reads the four other edges of its two faces",
        "mesh_edges(octahedron_faces)",
        "Hanocka 2019",
    ),
    _named(
        "cells of finite elements",
        "the ends of the edges of a vertex's cells, of any kinds",
        'mesh_cells([("quad", torch.tensor([[0, 1, 4, 3], [1, 2, 5, 4]])), '
        '("triangle", torch.tensor([[3, 4, 6], [4, 5, 6]]))])',
        "Pfaff 2021",
        also="finite element mesh, FEM",
    ),
    _named(
        "containing cell",
        "a point reads the corners of the triangle around it",
        "containing(sphere, sphere_faces, queries=sphere[sphere_faces[:16]].mean(1))",
        "Lam 2023",
        also="mesh to grid, interpolation",
    ),
    _named(
        "geodesic ball",
        "the vertices within a distance along the surface",
        "geodesic_ball(sphere, sphere_faces, 0.7)",
    ),
    _named("icosphere", "the neighbours on a refined icosahedron", "icosphere(2, multimesh=False)"),
    _named(
        "multi-mesh",
        "the neighbours on an icosahedron and on each of its refinements",
        "icosphere(2)",
        "Lam 2023",
    ),
    _named(
        "mesh and virtual node",
        "mesh edges, and a hub that reads all and is read by all",
        "mesh_vertices(sphere_faces).with_global_tokens(1)",
        also="global token, hub",
    ),
    _named(
        "mesh and expander",
        "mesh edges, and a few at random that bring all vertices near",
        "mesh_vertices(sphere_faces) | expander(48, 2)",
        "Shirzad 2023",
    ),
)
