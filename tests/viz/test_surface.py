"""What a mesh hides is drawn as hidden: judged by the outward normals of a sphere, which hides its
far side.
"""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.graphs.catalogue.inputs import sphere, sphere_faces
from graphattn.viz import plot
from graphattn.viz.layouts.pick import points_of


def seen_from(target=None, pos=sphere, faces=sphere_faces):
    """The geometry as a picture of it has it, with its camera."""
    place = points_of(torch.as_tensor(pos), faces)
    if target is not None:
        place.face(target)
    place.frame()
    return place


def towards_eye(place, at) -> np.ndarray:
    """Cosine of each outward normal with the direction of the eye."""
    out = np.asarray(at) / np.linalg.norm(at, axis=1, keepdims=True)
    return out @ place.view.turn[2]


def nodes(place, flat) -> np.ndarray:
    """The nodes (n, 3) that are drawn at these places of the page."""
    away = np.square(place.flat(place.source_at)[None] - flat[:, None]).sum(2)
    assert away.min(1).max(initial=0.0) < 1e-18
    return place.source_at[away.argmin(1)]


def found(axes, gid: str):
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]


def dots(axes, gid: str) -> np.ndarray:
    return np.concatenate(
        [np.zeros((0, 2)), *(np.asarray(each.get_offsets()) for each in found(axes, gid))]
    )


def ends_of(lines) -> np.ndarray:
    return (
        np.stack([path.vertices for path in lines.get_paths()])
        if lines.get_paths()
        else np.zeros((0, 2, 2))
    )


def caption(figure) -> str:
    return figure.get_supxlabel().replace("\n", " ")


@pytest.mark.slow
def test_sources_on_the_far_side_are_hollow():
    graph, place = ga.graphs.full(len(sphere)), seen_from(7)
    for figure, panel in (
        (plot(graph, sphere, faces=sphere_faces, highlight=7), 1),
        (plot([graph], sphere, target=7, faces=sphere_faces), 0),
    ):
        axes = figure.axes[panel]
        near, far = (
            nodes(place, dots(axes, gid)) for gid in ("sources of 7", "hidden sources of 7")
        )
        assert len(near) + len(far) == len(sphere)
        assert len(far) > 0.3 * len(sphere)
        # faces are flat: some just behind the rim are seen
        assert towards_eye(place, near).min() > -0.25
        assert towards_eye(place, far).max() < 0.4  # in perspective less than half is seen
        assert "Hollow dots and pale dashed edges are behind the surface." in caption(figure)


def test_no_grey_edge_has_an_end_on_the_far_side():
    graph = ga.graphs.mesh_vertices(sphere_faces)
    kept = ga.from_edge_index(graph.edge_index[:, ::3], len(sphere), len(sphere))
    figure = plot(kept, sphere, faces=sphere_faces, highlight=())
    (lines,) = found(figure.axes[1], "edges")
    place = seen_from()
    ends = nodes(place, ends_of(lines).reshape(-1, 2))
    assert 0 < len(ends) // 2 < kept.num_edges
    assert towards_eye(place, ends).min() > -0.25
    assert "Grey edges behind the surface are not drawn." in caption(figure)
    bare = plot(kept, sphere, highlight=())  # without a surface nothing is hidden
    assert len(ends_of(found(bare.axes[1], "edges")[0])) == kept.num_edges
    assert "surface" not in caption(bare)


@pytest.mark.parametrize("winding", [1, -1])
def test_a_triangle_hides_what_is_behind_it(winding):
    """A floor below a roof, seen from above: the floor's middle is hidden, its far corner is
    not.
    """
    roof = [[-1.0, -1, 0], [1, -1, 0], [0, 1.5, 0]]
    pos = torch.tensor([*roof, [0, 0, -0.5], [9, 9, -0.5], [-9, -9, -0.5], [0, 0, 0.5]])
    figure = plot(ga.graphs.full(7), pos, faces=np.array([[0, 1, 2]])[:, ::winding], highlight=6)
    axes, place = figure.axes[1], seen_from(6, pos, np.array([[0, 1, 2]]))
    assert place.view.elevation > 30
    np.testing.assert_allclose(nodes(place, dots(axes, "hidden sources of 6")), pos[[3]])
    assert len(ends_of(found(axes, "hidden edges of 6")[0])) == 1


@pytest.mark.slow
def test_a_hidden_target_hides_its_edges():
    graph = ga.graphs.mesh_vertices(sphere_faces)
    order = np.argsort(towards_eye(seen_from(), sphere))
    figure = plot(graph, sphere, faces=sphere_faces, highlight=[7, int(order[0]), int(order[1])])
    axes = figure.axes[1]
    target = int(order[0])
    assert len(ends_of(found(axes, f"edges of {target}")[0])) == 0
    assert len(ends_of(found(axes, f"hidden edges of {target}")[0])) == int(graph.in_degree[target])


def test_a_projection_is_said_to_be_one():
    pos = torch.rand(23, 3, generator=torch.Generator().manual_seed(0))
    graph = ga.graphs.knn(pos, 4)
    weights = ga.EdgeWeights(graph, torch.rand(graph.num_edges, 1))
    assert "A projection" in caption(plot(weights, pos, target=3))
    assert "A projection" not in caption(plot(weights, pos[:, :2], target=3))
