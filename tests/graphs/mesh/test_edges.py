"""Edges that read edges, and geodesic balls, against loops over faces, trimesh and networkx."""

from functools import partial

import networkx
import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError
from graphattn.graph.limits import refuse_over

MESHES = {
    "strip": [(0, 1, 2), (2, 1, 3), (2, 3, 4), (4, 3, 5)],
    "box of quads": [
        (0, 1, 2, 3),
        (4, 7, 6, 5),
        (0, 4, 5, 1),
        (1, 5, 6, 2),
        (2, 6, 7, 3),
        (3, 7, 4, 0),
    ],
    "fan of three at one edge": [(0, 1, k) for k in range(2, 5)],
    "mixed, a gap in numbers": [(0, 1, 2, 3), (2, 3, 9), (9, 3, 0, 5, 6)],
    "degenerate": [(0, 1, 2), (3, 3, 4), (0, 2, 0)],
    "no faces": [],
}


def sides(face):
    return {tuple(sorted(side)) for side in zip(face, (*face[1:], face[0]), strict=True)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("mesh", MESHES)
def test_edges_read_the_other_edges_of_their_faces(mesh):
    faces = [face for face in MESHES[mesh] if len(set(face)) == len(face)]
    ends = sorted(set().union(*map(sides, faces)))
    network = networkx.Graph()
    network.add_nodes_from(range(len(ends)))
    network.add_edges_from(
        (i, j)
        for i, a in enumerate(ends)
        for j, b in enumerate(ends)
        for face in faces
        if {a, b} <= sides(face) and i < j
    )
    assert ga.shapes.mesh_edge_ends(MESHES[mesh]).tolist() == [list(pair) for pair in ends]
    for hops in (1, 2, 3):
        near = networkx.power(network, hops) if len(network) else network
        mask = (
            torch.tensor(networkx.to_numpy_array(near, nodelist=range(len(ends)))).bool()
            if ends
            else torch.zeros(0, 0)
        )
        graph = graphs.mesh_edges(MESHES[mesh], hops)
        assert torch.equal(graph.mask(), mask.bool())
        assert not graph.is_rule
        loops = graphs.mesh_edges(MESHES[mesh], hops, self_loops=True)
        assert torch.equal(loops.mask(), mask.bool() | torch.eye(len(ends), dtype=torch.bool))


def test_meshcnns_four_edges_on_trimeshs_icosphere():
    trimesh = pytest.importorskip("trimesh")
    sphere = trimesh.creation.icosphere(1)
    faces = torch.as_tensor(sphere.faces)
    graph, ends = graphs.mesh_edges(faces), ga.shapes.mesh_edge_ends(faces)
    assert graph.in_degree.tolist() == [4] * len(sphere.edges_unique)
    assert sorted(map(tuple, ends.tolist())) == sorted(
        map(tuple, np.sort(sphere.edges_unique, 1).tolist())
    )
    number = {tuple(pair): i for i, pair in enumerate(ends.tolist())}
    theirs = [
        [number[tuple(sorted(sphere.edges_unique[e]))] for e in face]
        for face in sphere.faces_unique_edges
    ]
    wanted = {(a, b) for face in theirs for a in face for b in face if a != b}
    assert set(map(tuple, graph.edge_index.t().tolist())) == wanted


def geodesic(pos, faces, r):
    """Distances by networkx, over edges of non-degenerate faces."""
    network = networkx.Graph()
    network.add_nodes_from(range(len(pos)))
    for a, b in set().union(*map(sides, faces)):
        network.add_edge(a, b, weight=float(np.linalg.norm(pos[a] - pos[b])))
    mask = torch.zeros(len(pos), len(pos), dtype=torch.bool)
    for s, lengths in networkx.all_pairs_dijkstra_path_length(network, cutoff=r):
        mask[list(lengths), s] = True
    return mask


@pytest.mark.sample(3)
@pytest.mark.parametrize("r", [0.0, 0.35, 0.8, 2.0, 40.0])
def test_geodesic_balls_are_networkxs_dijkstra(r):
    trimesh = pytest.importorskip("trimesh")
    sphere = trimesh.creation.icosphere(2)  # 162 vertices: several searches
    two = trimesh.util.concatenate(sphere, sphere.copy().apply_translation([0, 0, 2.1]))
    pos, faces = np.asarray(two.vertices), np.asarray(two.faces)
    wanted = geodesic(pos, faces.tolist(), r)
    graph = graphs.geodesic_ball(pos, torch.as_tensor(faces), r)
    assert torch.equal(graph.mask(), wanted)
    assert not graph.is_rule
    bare = graphs.geodesic_ball(torch.as_tensor(pos), torch.as_tensor(faces), r, self_loops=False)
    assert torch.equal(bare.mask(), wanted & ~torch.eye(len(pos), dtype=torch.bool))
    order = torch.argsort(graph.target * len(pos) + graph.source)
    assert torch.equal(order, torch.arange(graph.num_edges))
    if r == 0.35:  # the two spheres come as near as 0.1, but no surface leads across
        assert bool((graphs.radius(torch.as_tensor(pos), r) - graph).num_edges)


def test_vertices_at_one_place_and_vertices_of_no_face():
    pos = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [9.0, 9.0]])
    graph = graphs.geodesic_ball(pos, [(0, 1, 2)], 0.0)
    assert graph.edge_index.t().tolist() == [[0, 0], [1, 0], [0, 1], [1, 1], [2, 2], [3, 3]]
    assert graphs.geodesic_ball(torch.zeros(0, 3), [], 1.0).num_nodes == 0
    assert graphs.geodesic_ball(pos, [], 100.0).equals(graphs.self_loops(4))


def test_balls_that_hold_too_much_are_refused_as_they_grow(monkeypatch):
    monkeypatch.setattr(
        "graphattn.graphs.mesh.geodesic.refuse_over", partial(refuse_over, limit=16 * 17)
    )
    corners = torch.tensor([[0.0, 0], [1, 0], [0, 1], [1, 1], [2, 0.5]])
    faces = torch.tensor([[0, 1, 2], [2, 1, 3], [3, 1, 4]])
    assert graphs.geodesic_ball(corners, faces, 1.2).num_edges == 17
    with pytest.raises(GraphError, match=r"edges of geodesic_ball would take .* use a smaller r"):
        graphs.geodesic_ball(corners, faces, 1.5)
