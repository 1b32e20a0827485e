"""The icosphere and its multi-mesh: published counts, and trimesh's sphere."""

import pytest
import torch
import trimesh

import graphattn as ga
from graphattn.errors import GraphError
from graphattn.graphs import icosphere, mesh_vertices
from graphattn.shapes import curve_order, icosphere_mesh


@pytest.mark.slow
def test_the_multi_mesh_of_six_refinements_has_the_published_counts():
    """GraphCast's, and anemoi's hidden graph: 40,962 nodes and 327,660 edges."""
    graph = icosphere(6)
    assert (graph.num_nodes, graph.num_edges) == (40_962, 327_660)
    finest = icosphere(6, multimesh=False)
    assert (finest.num_nodes, finest.num_edges) == (40_962, 245_760)
    assert graph.name == "icosphere(6)"
    assert finest.name == "icosphere(6, multimesh=False)"


@pytest.mark.parametrize("levels", [0, 1, 3])
def test_the_finest_mesh_is_trimeshs_up_to_a_rotation(levels):
    pos, faces = icosphere_mesh(levels)
    theirs = trimesh.creation.icosphere(levels)
    assert (len(pos), len(faces)) == (len(theirs.vertices), len(theirs.faces))
    ours = trimesh.Trimesh(pos.numpy(), faces.numpy(), process=False)
    assert ours.is_watertight
    assert ours.volume == pytest.approx(theirs.volume)  # positive: faces are seen counterclockwise
    assert sorted(ours.edges_unique_length) == pytest.approx(sorted(theirs.edges_unique_length))
    assert torch.allclose(pos.norm(dim=1), torch.ones(len(pos), dtype=torch.float64))


def test_the_finest_edges_are_those_of_the_faces():
    faces = icosphere_mesh(3).faces
    assert icosphere(3, multimesh=False).equals(mesh_vertices(faces))
    assert icosphere(3, multimesh=False, self_loops=True).equals(
        mesh_vertices(faces, self_loops=True)
    )


def test_a_multi_mesh_has_the_edges_of_every_refinement_between_its_first_vertices():
    graph, inside = icosphere(3), torch.zeros(642, 642, dtype=torch.bool)
    for levels in range(4):
        size = 10 * 4**levels + 2
        assert torch.equal(icosphere_mesh(levels).pos, icosphere_mesh(3).pos[:size])
        coarse = icosphere(levels, multimesh=False).mask()
        assert not (inside[:size, :size] & coarse).any()
        inside[:size, :size] |= coarse
    assert torch.equal(graph.mask(), inside)
    assert torch.equal(graph.mask(), graph.mask().T)


@pytest.mark.slow
def test_a_curve_brings_neighbours_near():
    """32 consecutive targets of the multi-mesh of 40,962 nodes read each of their sources more than
    twice.
    """
    pos = icosphere_mesh(6).pos
    graph = icosphere(6).relabel(torch.argsort(curve_order(pos, "hilbert")))
    pairs = torch.unique(graph.target // 32 * graph.num_nodes + graph.source)
    assert graph.num_edges / len(pairs) > 2


@pytest.mark.parametrize("levels", [-1, 2.5, "6"])
def test_levels_are_a_whole_number(levels):
    with pytest.raises(GraphError, match="levels"):
        icosphere(levels)


@pytest.mark.parametrize("levels", [11, 10**9])
def test_too_many_levels_are_refused_at_once(levels):
    with pytest.raises(GraphError, match="would take"):
        ga.shapes.icosphere_mesh(levels)
