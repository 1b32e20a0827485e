"""What a mesh hides is drawn as hidden: judged by the outward normals of a sphere, which hides its far side."""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.graphs.catalogue.inputs import sphere, sphere_faces
from graphattn.viz import plot


def towards_eye(axes, at) -> np.ndarray:
    """Cosine of each outward normal with the direction of the eye."""
    e, a = np.radians((axes.elev, axes.azim))
    out = np.asarray(at) / np.linalg.norm(at, axis=1, keepdims=True)
    return out @ [np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)]


def found(axes, gid: str):
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]


def dots(axes, gid: str) -> np.ndarray:
    return np.concatenate([np.zeros((0, 3)), *(np.stack(each._offsets3d, 1) for each in found(axes, gid))])


def caption(figure) -> str:
    return figure.get_supxlabel().replace("\n", " ")


@pytest.mark.slow
def test_sources_on_the_far_side_are_hollow():
    graph = ga.graphs.full(len(sphere))
    for figure, panel in (
        (plot(graph, sphere, faces=sphere_faces, highlight=7), 1),
        (plot([graph], sphere, target=7, faces=sphere_faces), 0),
        (plot(graph, sphere, values=torch.rand(graph.num_edges), target=7, faces=sphere_faces), 0),
    ):
        axes = figure.axes[panel]
        near, far = dots(axes, "sources of 7"), dots(axes, "hidden sources of 7")
        assert len(near) + len(far) == len(sphere)
        assert len(far) > 0.3 * len(sphere)
        assert towards_eye(axes, near).min() > -0.25  # faces are flat: some just behind the rim are seen
        assert towards_eye(axes, far).max() < 0.3  # in perspective less than half is seen
        assert "Hollow dots and pale dashed edges are behind the surface." in caption(figure)


def test_no_grey_edge_has_an_end_on_the_far_side():
    graph = ga.graphs.mesh_vertices(sphere_faces)
    kept = ga.from_edge_index(graph.edge_index[:, ::3], len(sphere), len(sphere))
    figure = plot(kept, sphere, faces=sphere_faces, highlight=())
    axes = figure.axes[1]
    (lines,) = found(axes, "edges")
    ends = np.stack(lines._segments3d).reshape(-1, 3)
    assert 0 < len(ends) // 2 < kept.num_edges
    assert towards_eye(axes, ends).min() > -0.25
    assert "Grey edges behind the surface are not drawn." in caption(figure)
    bare = plot(kept, sphere, highlight=())  # without a surface nothing is hidden
    assert len(found(bare.axes[1], "edges")[0]._segments3d) == kept.num_edges
    assert "surface" not in caption(bare)


@pytest.mark.parametrize("winding", [1, -1])
def test_a_triangle_hides_what_is_behind_it(winding):
    """A floor below a roof, seen from above: the floor's middle is hidden, its far corner is not."""
    roof = [[-1.0, -1, 0], [1, -1, 0], [0, 1.5, 0]]
    pos = torch.tensor([*roof, [0, 0, -0.5], [9, 9, -0.5], [-9, -9, -0.5], [0, 0, 0.5]])
    figure = plot(ga.graphs.full(7), pos, faces=np.array([[0, 1, 2]])[:, ::winding], highlight=6)
    axes = figure.axes[1]
    assert axes.elev > 30
    np.testing.assert_allclose(dots(axes, "hidden sources of 6"), pos[[3]])
    assert len(found(axes, "hidden edges of 6")[0]._segments3d) == 1


@pytest.mark.slow
def test_a_hidden_target_hides_its_edges():
    graph = ga.graphs.mesh_vertices(sphere_faces)
    figure = plot(graph, sphere, faces=sphere_faces, highlight=[7])
    order = np.argsort(towards_eye(figure.axes[1], sphere))
    figure = plot(graph, sphere, faces=sphere_faces, highlight=[7, int(order[0]), int(order[1])])
    axes = figure.axes[1]
    rear = int(np.argmin(towards_eye(axes, sphere)[order[:2]]))
    target = int(order[rear])
    assert len(found(axes, f"edges of {target}")[0]._segments3d) == 0
    assert len(found(axes, f"hidden edges of {target}")[0]._segments3d) == int(graph.in_degree[target])


def test_a_projection_is_said_to_be_one():
    pos = torch.rand(23, 3, generator=torch.Generator().manual_seed(0))
    graph = ga.graphs.knn(pos, 4)
    weights = ga.EdgeWeights(graph, torch.rand(graph.num_edges, 1))
    assert "A projection" in caption(plot(weights, pos, target=3))
    assert "A projection" not in caption(plot(weights, pos[:, :2], target=3))
