"""Cells of finite elements: their edges beside networkx, and what comes from meshio."""

import networkx as nx
import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, GraphIndexError
from graphattn.graphs import mesh_cells, mesh_vertices
from graphattn.graphs.mesh.cells import KINDS, _num_corners

SHAPES = {
    "triangle": nx.cycle_graph(3),
    "quad": nx.cycle_graph(4),
    "tetra": nx.complete_graph(4),
    "hexahedron": nx.hypercube_graph(3),
    "wedge": nx.circular_ladder_graph(3),
    "pyramid": nx.wheel_graph(5),
    "line3": nx.path_graph(3),
    "triangle6": nx.cycle_graph(6),
    "quad9": nx.grid_graph([3, 3]),
    "hexahedron27": nx.grid_graph([3, 3, 3]),
}
# centres of faces, which lie on these sides of a cube of corners -1 and 1
CUBE = torch.tensor([[x, y, z] for z in (-1, 1) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))])
SIDES = [(-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)]


def one(kind):
    rows = torch.zeros(1, 5) if kind == "polygon" else torch.zeros(1, 0)
    return mesh_cells([(kind, torch.arange(_num_corners(kind, rows))[None])])


@pytest.mark.parametrize("kind", SHAPES)
def test_a_cell_has_the_edges_of_its_shape(kind):
    assert nx.is_isomorphic(ga.convert.to_networkx(one(kind)).to_undirected(), SHAPES[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_every_edge_goes_both_ways_and_no_vertex_is_left_out(kind):
    mask = one(kind).mask()
    assert torch.equal(mask, mask.T)
    assert kind == "vertex" or bool(mask.any(1).all())


@pytest.mark.parametrize(("kind", "sides"), [("hexahedron24", 4), ("hexahedron27", 6)])
def test_centres_are_joined_to_the_middles_around_them(kind, sides):
    graph = one(kind)
    linear = mesh_cells([("hexahedron", torch.arange(8)[None])])
    pairs = [tuple(pair) for pair in torch.stack((linear.source, linear.target), 1).tolist()]
    corners_of = {vertex: graph.source[graph.target == vertex] for vertex in range(8, 20)}
    place = CUBE.float()
    for middle in range(8, 20):
        ends = [int(end) for end in corners_of[middle] if end < 8]
        assert tuple(ends) in pairs
        place = torch.cat((place, place[ends].mean(0, keepdim=True)))
    for centre, side in enumerate(SIDES[:sides], 20):
        middles = graph.source[graph.target == centre]
        around = middles[(middles >= 8) & (middles < 20)]
        assert len(around) == 4
        assert place[around].mean(0).tolist() == list(side)


def test_mixed_cells_share_edges_and_a_removed_cell_takes_its_own():
    cells = [("quad", torch.tensor([[0, 1, 2, 3]])), ("triangle", np.array([[1, 4, 2]]))]
    graph = mesh_cells(cells)
    faces = mesh_vertices([(0, 1, 2, 3), (1, 4, 2)])
    assert graph.equals(faces)
    assert not mesh_cells(cells[:1], 5).equals(graph)
    assert mesh_cells(cells, 7).num_nodes == 7
    assert mesh_cells(cells, hops=2).equals(graph.k_hop(2).without_self_loops())
    assert mesh_cells(cells, self_loops=True).equals(graph.with_self_loops())


def test_cells_of_meshio_as_it_has_them():
    meshio = pytest.importorskip("meshio")
    table = {"tetra": np.array([[0, 1, 2, 3]]), "pyramid": np.array([[1, 2, 3, 4, 5]])}
    mesh = meshio.Mesh(np.zeros((6, 3)), list(table.items()))
    assert mesh_cells(mesh.cells).equals(mesh_cells(mesh.cells_dict))
    assert mesh_cells(mesh.cells).equals(mesh_cells(list(table.items())))


@pytest.mark.parametrize(
    ("cells", "error", "message"),
    [
        ([("tet", torch.zeros(1, 4).long())], GraphError, "of the kinds .*'tet'"),
        ([("tetra", torch.zeros(1, 3).long())], GraphError, r"must have shape \(C, 4\)"),
        (
            [("tetra", torch.tensor([[0, 1, 2, 9]]))],
            GraphIndexError,
            r"cells\[0\] \(tetra\) must be in \[0, 5\), vertices",
        ),
        (torch.zeros(3, 4).long(), GraphError, "pairs of a kind and a table"),
    ],
)
def test_bad_cells(cells, error, message):
    with pytest.raises(error, match=message):
        mesh_cells(cells, 5)


def test_tetrahedra_given_as_faces_are_sent_here():
    cells = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]])
    with pytest.raises(GraphError, match="mesh_cells"):
        mesh_vertices(cells)
