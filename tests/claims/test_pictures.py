"""Pictures that the sources draw, judged by the data in them."""

import io
import re

import networkx as nx
import numpy as np
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.viz.layouts.pick import points_of
from graphattn.viz.layouts.points import Points
from graphattn.viz.style import LINES, shades


def drawn(figure, name):
    """What is drawn by that name, in the last panel that has it."""
    return figure.findobj(match=lambda artist: artist.get_gid() == name)[-1]


def same_places(dots, place, wanted):
    found = np.asarray(dots.get_offsets())
    np.testing.assert_allclose(
        sorted(found.tolist()), sorted(place.flat(wanted.double().numpy()).tolist()), atol=1e-6
    )


def test_balls_around_farthest_points_hold_the_points_within_the_radius():  # the bunny of source C
    cloud = torch.rand(400, 3, generator=torch.Generator().manual_seed(0))
    centres = cloud[ga.shapes.farthest_points(cloud, 6)]
    balls = graphs.radius(cloud, 0.3, queries=centres)
    figure = ga.plot(balls, cloud, queries=centres, highlight=[0, 1])
    place = Points(cloud.double().numpy(), centres.double().numpy())
    place.frame()
    cover = torch.zeros(400, dtype=torch.bool)
    for centre in range(6):
        within = torch.cdist(cloud.double(), centres[centre, None].double())[:, 0] <= 0.3
        cover |= within
        assert 3 < int(within.sum()) < 200
        if centre < 2:
            same_places(drawn(figure, f"sources of {centre}"), place, cloud[within])
    assert set(balls.source.tolist()) == set(cover.nonzero().flatten().tolist())


def test_one_sentence_reads_another_head_by_head_as_lines():
    """The head view of bertviz: head 8 of "time flies like an arrow" beside "fruit flies like a
    banana".

    One line for each edge between the sentences, stronger with its weight, none within a sentence;
    a page offline.
    """
    words = ["time", "flies", "like", "an", "arrow", "fruit", "flies", "like", "a", "banana"]
    second = torch.arange(10) >= 5
    # the first five read the last five
    between = graphs.full(10) & ga.from_mask(~second[:, None] & second)
    torch.manual_seed(0)
    layer = ga.nn.GraphAttention(32, 8)
    with torch.no_grad():
        layer.q_proj.weight.mul_(6)
        _, weights = layer(torch.randn(10, 32), between, return_weights=True)
    figure = ga.plot(weights, view="lines", heads=[7], tokens=words)
    lines, alpha = drawn(figure, "lines"), weights.dense()[7].numpy()
    ends = np.stack([path.vertices for path in lines.get_paths()])
    target, source = (np.rint(-ends[:, i, 1] * 10 - 0.5).astype(int) for i in (0, 1))
    kept = np.argwhere(between.mask().numpy())
    assert sorted(zip(target, source, strict=True)) == sorted(map(tuple, kept))
    assert (target < 5).all()
    assert (source >= 5).all()
    np.testing.assert_allclose(lines.get_colors(), shades(*LINES)(alpha[target, source]), atol=0.01)
    opacity = lines.get_colors()[:, 3]  # stronger with the weight
    assert (np.diff(opacity[np.argsort(alpha[target, source])]) >= -1e-6).all()
    assert {text.get_text() for text in figure.axes[0].texts} == set(words)
    file = io.StringIO()
    figure.savefig(file, format="svg")
    loaded = re.findall(
        r"""(?:href|src)=["'](?!#|data:)([^"']*)|url\((?!["']?#)([^)]*)""", file.getvalue()
    )
    assert not loaded


def test_what_a_node_depends_on_is_a_breadth_first_search_on_images_points_and_meshes():
    points = torch.rand(60, 3, generator=torch.Generator().manual_seed(1))
    faces = torch.tensor(
        [[i + 7 * j, i + 1 + 7 * j, i + 7 * (j + 1)] for i in range(6) for j in range(5)]
    )
    for graph, given in (
        (graphs.grid_neighbourhood((5, 7), 3, causal=False), None),
        (graphs.knn(points, 4, self_loops=True), points),
        (graphs.mesh_vertices(faces, self_loops=True), points[:41]),
    ):
        world = ga.convert.to_networkx(graph).reverse()
        near = {
            node: hops
            for node, hops in nx.single_source_shortest_path_length(world, 17).items()
            if hops <= 2
        }
        figure = ga.plot([graph] * 2, given, target=17)
        title = next(
            axes.get_title() for axes in figure.axes if "after layer 1" in axes.get_title()
        )
        assert f"{len(near)} sources" in title
        dots = drawn(figure, "sources of 17")
        if given is not None:
            place = points_of(given, None)
            place.face(17)
            place.frame(place.close_up(17, np.array(sorted(near)), 0.5))
            same_places(dots, place, given[list(near)])
        else:
            centres = np.stack([path.vertices[:4].mean(0) for path in dots.get_paths()])
            column, row = np.rint(centres).astype(int).T
            assert set((row * 7 + column).tolist()) == set(near)
