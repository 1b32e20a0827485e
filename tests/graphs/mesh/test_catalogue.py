"""Named patterns of meshes: each from loops over faces, networkx, and distances of all pairs."""

import networkx
import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.graphs.catalogue.inputs import octahedron_faces, sphere, sphere_faces
from graphattn.graphs.catalogue.mesh import NAMED


def sides(face):
    return {frozenset(pair) for pair in zip(face, (*face[1:], face[0]), strict=True)}


def within(size, joined, hops=1, loops=False):
    """bool (N, N): within ``hops`` of each other in the network of joined pairs."""
    network = networkx.Graph()
    network.add_nodes_from(range(size))
    network.add_edges_from((i, j) for i in range(size) for j in range(i) if joined(i, j))
    mask = torch.zeros(size, size, dtype=torch.bool)
    for s, lengths in networkx.all_pairs_shortest_path_length(network, hops):
        mask[list(lengths), s] = True
    return (
        mask | torch.eye(size, dtype=torch.bool)
        if loops
        else mask & ~torch.eye(size, dtype=torch.bool)
    )


def ring(hops=1, loops=False):
    edges = set().union(*map(sides, sphere_faces.tolist()))
    return within(48, lambda i, j: {i, j} in edges, hops, loops)


def across(faces, hops=1, share=sides, loops=False):
    parts = [share(face) for face in faces.tolist()]
    return within(len(parts), lambda i, j: bool(parts[i] & parts[j]), hops, loops)


def edges_of_faces():
    faces = [sides(face) for face in octahedron_faces.tolist()]
    edges = sorted(set().union(*faces), key=sorted)
    return within(len(edges), lambda i, j: any({edges[i], edges[j]} <= face for face in faces))


def ball():
    far = torch.full((48, 48), torch.inf, dtype=torch.float64).fill_diagonal_(0)
    near = ring()
    far[near] = torch.cdist(sphere, sphere)[near]
    for middle in range(48):  # Floyd and Warshall
        far = torch.minimum(far, far[:, middle, None] + far[None, middle])
    return far <= 0.7


def on_the_sphere(refinements):
    """Pairs of the first 10 * 4 ** i + 2 points whose distance is that of an edge: every other pair
    is further.
    """
    pos = ga.shapes.icosphere_mesh(2).pos
    mask = torch.zeros(162, 162, dtype=torch.bool)
    for i in refinements:
        distance = torch.cdist(pos[: 10 * 4**i + 2], pos[: 10 * 4**i + 2])
        mask[: len(distance), : len(distance)] |= (distance > 0.1) & (distance < 1.4 / 2**i)
    return mask


def with_hub(mask):
    grown = torch.ones(mask.shape[0] + 1, mask.shape[1] + 1, dtype=torch.bool)
    grown[1:, 1:] = mask
    return grown


def finite_elements():
    edges = [(0, 1), (1, 4), (4, 3), (3, 0), (1, 2), (2, 5), (5, 4), (4, 6), (6, 3), (5, 6)]
    return within(7, lambda i, j: (i, j) in edges or (j, i) in edges)


def around():
    return torch.zeros(16, 48, dtype=torch.bool).scatter(1, sphere_faces[:16], True)


RULES = {
    "one-ring": ring,
    "one-ring and self": lambda: ring(loops=True),
    "k-ring": lambda: ring(2),
    "face adjacency": lambda: across(octahedron_faces),
    "face adjacency, k-ring": lambda: across(sphere_faces, 3),
    "face adjacency by vertices": lambda: across(sphere_faces, share=set, loops=True),
    "MeshCNN": edges_of_faces,
    "geodesic ball": ball,
    "cells of finite elements": finite_elements,
    "containing cell": around,
    "icosphere": lambda: on_the_sphere([2]),
    "multi-mesh": lambda: on_the_sphere([0, 1, 2]),
    "mesh and virtual node": lambda: with_hub(ring()),
    "mesh and expander": lambda: ring() | graphs.expander(48, 2).mask(),
}


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.name)
def test_named_patterns_equal_their_rules(named):
    assert torch.equal(named.graph().mask(), RULES[named.name]())


def test_the_one_ring_is_pygs_face_to_edge():
    from torch_geometric.data import Data
    from torch_geometric.transforms import FaceToEdge

    theirs = FaceToEdge()(Data(face=sphere_faces.T, num_nodes=48)).edge_index
    ours = graphs.mesh_vertices(sphere_faces).edge_index
    assert set(map(tuple, theirs.t().tolist())) == set(map(tuple, ours.t().tolist()))
