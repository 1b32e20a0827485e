"""The gallery shows every named pattern, with the geometry that its code speaks of, on a page that
stands alone.
"""

import base64
import io
import re

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

import graphattn as ga
from graphattn.graphs.catalogue import Named, Zoo
from graphattn.viz.gallery import gallery_page
from graphattn.viz.layouts.grid import Grid
from graphattn.viz.layouts.network import NetworkLayout
from graphattn.viz.layouts.points import Points
from graphattn.viz.layouts.sequence import Sequence
from graphattn.viz.layouts.two_rows import TwoRows
from graphattn.viz.thumbnail import graph_of, place_in, thumbnail

PLACES = {
    "causal(7)": Sequence,
    "window_partition((4, 6), (2, 3))": Grid,
    # no rule, but the code says its size
    "window_partition((4, 6), (2, 3)).k_hop(2).materialise()": Grid,
    "window_partition((2, 3, 4), (1, 3, 2))": Points,
    "cross(3, 5)": TwoRows,
    "knn(sphere, 5)": Points,
    "knn(sphere, 5, queries=sphere[::4])": Points,
    "knn(sphere[farthest_points(sphere, 12)], 3, queries=sphere)": Points,
    "(near := knn(square, 3)) | near.reverse()": Points,
    "mesh_vertices(octahedron_faces)": NetworkLayout,
}


def entry(code: str, family: str = "sequence", **words: str) -> Named:
    return Named(**{"name": "a name", "family": family, "line": "a line", "code": code} | words)


@pytest.mark.parametrize("code", PLACES)
def test_the_geometry_is_the_one_in_the_code(code):
    named = entry(code, family="mesh" if "mesh" in code else "grid" if "cell" in code else "points")
    graph = graph_of(named)
    place = place_in(named, graph)
    assert type(place) is PLACES[code]
    assert (len(place.target_at), len(place.source_at)) == (graph.num_targets, graph.num_sources)


def test_the_points_are_those_of_the_code():
    from graphattn.graphs.catalogue.inputs import sphere

    place = place_in(
        named := entry("knn(sphere, 5, queries=sphere[::4])", "points"), graph_of(named)
    )
    np.testing.assert_array_equal(place.source_at, sphere)
    np.testing.assert_array_equal(place.target_at, sphere[::4])


def test_a_mesh_is_drawn_over_its_vertices():
    from graphattn.graphs.catalogue.inputs import sphere, sphere_faces

    place = place_in(named := entry("mesh_vertices(sphere_faces)", "mesh"), graph_of(named))
    np.testing.assert_array_equal(place.source_at, sphere)
    np.testing.assert_array_equal(place.faces, sphere_faces)
    place = place_in(named := entry("mesh_faces(sphere_faces)", "mesh"), graph_of(named))
    np.testing.assert_allclose(place.source_at[7], sphere[sphere_faces[7]].mean(0))


@pytest.mark.parametrize("code", ["causal(7)", "window_partition((4, 6), (2, 3))", "cross(3, 5)"])
def test_a_thumbnail_is_a_figure_of_its_size_without_text(code):
    figure = thumbnail(entry(code), 3.1, 2.3)
    assert figure.get_size_inches().tolist() == [3.1, 2.3]
    assert not [text for text in figure.findobj(Text) if text.get_text()]
    (axes,) = figure.axes
    assert axes.get_position().bounds == pytest.approx((0.01, 0.01, 0.98, 0.98), abs=0.2)
    assert axes.collections or axes.lines or axes.patches


@pytest.mark.slow
def test_every_entry_of_the_zoo_has_a_place():
    for named in ga.graphs.zoo().values():
        graph = graph_of(named)
        place = place_in(named, graph)
        assert (len(place.target_at), len(place.source_at)) == (
            graph.num_targets,
            graph.num_sources,
        ), named.name


def test_the_page_holds_the_masks_and_needs_nothing_else():
    named = [
        entry("cross(3, 5)", name="<b>bold</b>", paper="A & B 1999"),
        entry("causal(7)", line="x < y"),
        entry("window_partition((4, 6), (2, 3))", "grid"),
    ]
    page = gallery_page(named)
    assert "<b>&lt;b&gt;bold&lt;/b&gt;</b>" in page
    assert "A &amp; B 1999" in page
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["sequence (2)", "grid (1)"]
    assert re.findall(r"<code>(.*?)</code>", page.replace("<wbr>", "")) == [
        each.code for each in named
    ]
    assert not re.search(r"<script|https?:|@import|url\(", page)
    pictures = [
        base64.b64decode(data) for data in re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    ]
    assert len(pictures) == 6
    for each, mask, drawing in zip(named, pictures[::2], pictures[1::2], strict=True):
        dark = np.asarray(Image.open(io.BytesIO(mask)).convert("L")) < 255
        assert np.array_equal(dark, each.graph().mask().numpy())
        assert np.ptp(np.asarray(Image.open(io.BytesIO(drawing)).convert("L"))) > 50
    assert len(page) < 40_000
    sizes = [(96, 58), (96, 96), (96, 96)]  # a mask that is no square is no square on the page
    found = re.findall(r'alt="mask" class="mask" style="width:(\d+)px;height:(\d+)px"', page)
    assert [(int(width), int(height)) for width, height in found] == sizes


def test_the_command_writes_the_zoo(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from graphattn.cli.app import app

    few = Zoo(ga.graphs.zoo().patterns[:2])
    monkeypatch.setattr(ga.graphs, "zoo", lambda: few)
    out = tmp_path / "gallery.html"
    done = CliRunner().invoke(app, ["gallery", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert done.output == f"2 patterns: {out}\n"
    assert out.read_text(encoding="utf-8").count("<figure>") == 2


def test_the_command_refuses_other_files(tmp_path):
    from typer.testing import CliRunner

    from graphattn.cli.app import app

    done = CliRunner().invoke(app, ["gallery", "--out", str(tmp_path / "gallery.txt")])
    assert done.exit_code == 2
    assert "--out must end in .html" in done.output
