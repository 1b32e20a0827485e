"""Mesh builders against loops over faces, trimesh and networkx."""

import networkx
import pytest
import torch
from scipy.spatial import Delaunay

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError
from graphattn.nn import mesh_elements

STRIP = [(0, 1, 2), (2, 1, 3), (2, 3, 4), (4, 3, 5)]
BOX = [(0, 1, 2, 3), (4, 7, 6, 5), (0, 4, 5, 1), (1, 5, 6, 2), (2, 6, 7, 3), (3, 7, 4, 0)]
MESHES = {
    "one triangle": ([(0, 1, 2)], None),
    "strip": (STRIP, None),
    "two parts": ([*STRIP, (7, 9, 8)], 11),
    "box of quads": (BOX, None),
    "mixed": ([(0, 1, 2, 3), (2, 3, 4), (4, 3, 0, 5, 6)], None),
    "fan of five at one edge": ([(0, 1, k) for k in range(2, 7)], None),
    "no faces": ([], 3),
    "nothing": ([], None),
}


def tables(faces):
    """The same faces in every form they may come in."""
    yield faces
    if faces and len({len(face) for face in faces}) == 1:
        yield torch.tensor(faces)
        yield torch.tensor(faces, dtype=torch.int32)


def assert_edges(graph, num_nodes, neighbours, loops):
    """The edges are those of ``neighbours[t]``, by target and then by source."""
    pairs = [
        (s, t) for t in range(num_nodes) for s in sorted(neighbours[t] | ({t} if loops else set()))
    ]
    assert graph.num_targets == graph.num_sources == num_nodes
    assert (
        graph.edge_index.tolist()
        == torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.tolist()
    )
    assert not graph.is_rule


def cells_of_a_box():
    """Hexahedra (C, 8) of a box of 3 x 2 x 2 cells, and tetrahedra (T, 4) among random points."""
    node = torch.arange(4 * 3 * 3).view(4, 3, 3)
    low, high = slice(None, -1), slice(1, None)
    around = [(low, low), (high, low), (high, high), (low, high)]
    corners = [node[x, y, z] for z in (low, high) for x, y in around]
    points = torch.rand(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.stack(corners, -1).view(-1, 8), torch.from_numpy(Delaunay(points).simplices).long()


def of_second_order(faces):
    """Triangles (F, 6): corners, and the points between them."""
    sides = [frozenset((face[i], face[(i + 1) % 3])) for face in faces for i in range(3)]
    number = {side: 100 + i for i, side in enumerate(dict.fromkeys(sides))}
    middles = torch.tensor([number[side] for side in sides]).view(-1, 3)
    return torch.cat((torch.tensor(faces), middles), 1)


HEXAHEDRA, TETRAHEDRA = cells_of_a_box()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "cells",
    [TETRAHEDRA, TETRAHEDRA[:, [3, 1, 0, 2]], HEXAHEDRA, of_second_order(STRIP), TETRAHEDRA.int()],
)
@pytest.mark.parametrize(
    "builder", [graphs.mesh_vertices, graphs.mesh_faces, ga.shapes.mesh_report]
)
def test_cells_and_elements_of_second_order_are_no_polygons(cells, builder):
    with pytest.raises(GraphError, match=r"faces must be polygons, .* share three corners"):
        builder(cells)
    builder([tuple(cell) for cell in cells.tolist()])  # as the message says


def test_tetrahedra_are_joined_as_the_message_says():
    triangles = TETRAHEDRA[:, [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]].flatten(0, 1)
    graph = graphs.mesh_vertices(triangles)
    pairs = {(s, t) for cell in TETRAHEDRA.tolist() for s in cell for t in cell if s != t}
    assert set(zip(graph.source.tolist(), graph.target.tolist(), strict=True)) == pairs


@pytest.mark.parametrize(
    "quads",
    [
        BOX,
        [(0, 1, 2, 3), (3, 2, 1, 0)],  # both sides of one
        [*BOX, (0, 1, 2, 8)],  # two around one vertex
        [(0, 1, 2, 2), (2, 1, 3, 3), (2, 3, 4, 5)],  # padded triangles
        [(0, 1, 2, 3)],
    ],
)
def test_quads_stay_quads(quads):
    assert graphs.mesh_vertices(torch.tensor(quads)).equals(graphs.mesh_vertices(quads))


def ring(network, hops):
    """Nodes within ``hops`` of each node, itself left out, by breadth-first search."""
    return {
        node: set(networkx.single_source_shortest_path_length(network, node, cutoff=hops)) - {node}
        for node in network
    }


def vertex_network(faces, num_vertices):
    network = networkx.Graph()
    network.add_nodes_from(range(num_vertices))
    for face in faces:
        network.add_edges_from(zip(face, (*face[1:], face[0]), strict=True))
    return network


def face_network(faces, share):
    def parts(face):
        if share == "vertex":
            return set(face)
        return {frozenset(edge) for edge in zip(face, (*face[1:], face[0]), strict=True)}

    network = networkx.Graph()
    network.add_nodes_from(range(len(faces)))
    network.add_edges_from(
        (i, j) for i in range(len(faces)) for j in range(i) if parts(faces[i]) & parts(faces[j])
    )
    return network


@pytest.mark.sample(4)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("hops", [1, 2, 3, 7])
def test_vertices_are_the_ring_of_a_breadth_first_search(mesh, hops):
    faces, num_vertices = MESHES[mesh]
    size = (
        num_vertices
        if num_vertices is not None
        else 1 + max((v for face in faces for v in face), default=-1)
    )
    wanted = ring(vertex_network(faces, size), hops)
    for given in tables(faces):
        for loops in (False, True):
            graph = graphs.mesh_vertices(given, num_vertices, hops, self_loops=loops)
            assert_edges(graph, size, wanted, loops)


@pytest.mark.sample(4)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("share", ["edge", "vertex"])
def test_faces_are_the_ring_of_a_breadth_first_search(mesh, hops, share):
    faces = MESHES[mesh][0]
    wanted = ring(face_network(faces, share), hops)
    for given in tables(faces):
        for loops in (False, True):
            graph = graphs.mesh_faces(given, hops, share=share, self_loops=loops)
            assert_edges(graph, len(faces), wanted, loops)


def test_trimeshs_icosphere():
    trimesh = pytest.importorskip("trimesh")
    sphere = trimesh.creation.icosphere(2)
    faces = torch.as_tensor(sphere.faces)
    vertices, by_edge = graphs.mesh_vertices(faces), graphs.mesh_faces(faces)
    assert (vertices.num_nodes, by_edge.num_nodes) == (162, 320)
    assert vertices.num_edges == 2 * 480 == 2 * len(sphere.edges_unique)
    assert by_edge.num_edges == 2 * 480 == 2 * len(sphere.face_adjacency)
    for graph, pairs in ((vertices, sphere.edges_unique), (by_edge, sphere.face_adjacency)):
        mask = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.bool)
        mask[pairs[:, 0], pairs[:, 1]] = mask[pairs[:, 1], pairs[:, 0]] = True
        assert torch.equal(graph.mask(), mask)
    for vertex, near in enumerate(sphere.vertex_neighbors):
        assert vertices.source[vertices.target == vertex].tolist() == sorted(near)
    assert ga.shapes.mesh_report(faces) == (320, 162, 480, 0, 0, 0, 0, 0)


def test_many_ways_between_two_vertices_are_one_edge():
    """256 paths of two edges: a count in one byte would be zero."""
    faces = [(0, v, v + 1) for v in range(2, 257)] + [(1, v, v + 1) for v in range(2, 257)]
    graph = graphs.mesh_vertices(torch.tensor(faces), hops=2)
    assert bool(graph.contains(0, 1))


def test_degenerate_and_duplicate_faces():
    faces = [
        (0, 1, 2),
        (2, 0, 1),
        (2, 1, 0),
        (1, 2, 3),
        (3, 3, 3),
        (4, 4, 5),
        (5, 6, 5),
        (5, 6, 7, 6),
        (3, 2, 8, 8),
    ]
    graph = graphs.mesh_vertices(faces)
    wanted = ring(vertex_network([(0, 1, 2), (1, 2, 3), (3, 2, 8)], 9), 1)
    assert_edges(graph, 9, wanted, False)
    assert not graph.has_repeated_edges
    report = ga.shapes.mesh_report(faces)
    assert report.num_faces == 9
    assert report.degenerate_faces == 4  # (3, 3, 3), (4, 4, 5), (5, 6, 5), (5, 6, 7, 6)
    assert report.duplicate_faces == 2
    assert report.num_edges == 7
    assert report.unused_vertices == 4
    by_edge = graphs.mesh_faces(faces)
    assert by_edge.num_nodes == 9
    assert by_edge.in_degree[4:8].tolist() == [0] * 4
    assert by_edge.source[by_edge.target == 0].tolist() == [1, 2, 3]


def test_edges_of_more_than_two_faces():
    faces, _ = MESHES["fan of five at one edge"]
    assert graphs.mesh_faces(faces).equals(graphs.full(5).without_self_loops())
    report = ga.shapes.mesh_report(faces)
    assert (report.non_manifold_edges, report.boundary_edges, report.num_edges) == (1, 10, 11)
    assert graphs.mesh_vertices(faces).num_edges == 22
    assert [ga.shapes.mesh_report(faces[:n]).non_manifold_edges for n in (1, 2, 3, 4)] == [
        0,
        0,
        1,
        1,
    ]


def test_a_padded_triangle_is_a_triangle():
    padded = torch.tensor([[0, 1, 2, 2], [2, 1, 3, 4]])
    assert graphs.mesh_vertices(padded).equals(graphs.mesh_vertices([(0, 1, 2), (2, 1, 3, 4)]))
    assert ga.shapes.mesh_report(padded).degenerate_faces == 0


@pytest.mark.parametrize("number", [1, 5, 9])
def test_faces_as_pyg_holds_them_are_refused_with_what_to_pass(number):
    strip = torch.stack(
        [torch.arange(number), torch.arange(number) + 1, torch.arange(number) + 2], 1
    )
    assert graphs.mesh_vertices(strip).num_edges > 0
    if number > 3:
        with pytest.raises(GraphError, match=r"pass faces.t\(\)"):
            graphs.mesh_vertices(strip[torch.randperm(number)].t().contiguous() % 4)
    with pytest.raises(GraphError, match=r"pass faces.t\(\)"):
        graphs.mesh_vertices(torch.tensor([[0, 0, 2], [1, 2, 1], [2, 2, 1]]))


def test_elements_of_a_mesh_without_finite_positions_are_refused():
    with pytest.raises(GraphError, match="pos must be finite, got NaN or infinity"):
        mesh_elements(
            torch.tensor([[0.0, 0, 0], [1, 0, 0], [torch.nan] * 3]), torch.tensor([[0, 1, 2]])
        )


def test_a_face_without_area_has_a_largest_ratio():
    line, faces = (
        torch.tensor([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [1, 1, 0]]),
        torch.tensor([[0, 1, 2], [0, 2, 3]]),
    )
    made = mesh_elements(line, faces, "edges")[0]
    assert made.isfinite().all()
    assert made[:, 3:].max() == 1e4
