"""The box of a cell that repeats, in pictures and on pages."""

import json
import re

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.shapes import Shape
from graphattn.viz.box import box_of

CELL = torch.tensor([[3.0, 0.0, 0.0], [0.5, 2.0, 0.0], [0.0, 0.3, 4.0]])


def crystal(**more):
    pos = torch.rand(11, 3, generator=torch.Generator().manual_seed(0)) @ CELL
    return Shape(pos=pos, cell=CELL, pbc=torch.ones(3, dtype=torch.bool), **more)


def test_a_box_has_the_sides_of_its_vectors():
    box = box_of(crystal())
    assert box.shape == (12, 2, 3)
    sides = np.sort(np.linalg.norm(box[:, 1] - box[:, 0], axis=1))
    np.testing.assert_allclose(sides, np.repeat(np.sort(CELL.norm(dim=1)), 4), rtol=1e-6)
    assert len(np.unique(box.reshape(-1, 3).round(5), axis=0)) == 8
    flat = Shape(pos=torch.rand(5, 3), cell=CELL * torch.tensor([[1.0], [1.0], [0.0]]))
    assert box_of(flat).shape == (4, 2, 3)  # a slab without a third vector
    assert box_of(Shape(pos=torch.rand(5, 3))) is None
    assert box_of(None, ga.graphs.radius(torch.rand(5, 2), 0.2, cell=torch.eye(2))).shape == (
        4,
        2,
        2,
    )


def test_a_picture_of_a_shape_holds_the_whole_box():
    figure = ga.plot_shape(crystal(y=torch.arange(11) % 2))
    ax = figure.axes[0]
    (box,) = [each for each in ax.collections if each.get_gid() == "cell"]
    ends = np.concatenate(box.get_segments())
    assert len(box.get_segments()) == 12
    low, high = np.stack((ax.get_xlim(), ax.get_ylim()), 1)
    assert ((ends > low) & (ends < high)).all()
    plain = ga.plot_shape(crystal().pos)
    assert not [each for each in plain.axes[0].collections if each.get_gid() == "cell"]


def test_lines_of_a_periodic_graph_are_as_long_as_its_edges():
    pos = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    graph = ga.graphs.radius(pos, 0.2, cell=torch.eye(2))
    figure = ga.plot(graph, pos=pos)
    (lines,) = [each for ax in figure.axes for each in ax.collections if each.get_gid() == "edges"]
    lengths = [np.linalg.norm(line[0] - line[-1]) for line in lines.get_segments()]
    assert max(lengths) <= 0.2 + 1e-6
    assert "A line that leaves the box" in " ".join(
        text.get_text().replace("\n", " ") for text in figure.texts
    )


@pytest.mark.parametrize("with_graph", [False, True])
def test_a_page_has_the_box(tmp_path, with_graph):
    shape = crystal()
    if with_graph:
        graph = ga.graphs.radius(shape.pos, 2.0, cell=shape.cell)
        path = ga.viz.to_html(graph, tmp_path / "page.html", shape)
    else:
        path = ga.viz.to_html(shape, tmp_path / "page.html")
    text = path.read_text("utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    ends = np.array(data["box"]).reshape(12, 2, 3)
    assert np.linalg.norm(ends, axis=2).max() <= 1 + 1e-4  # in the ball that the page turns
    lengths = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    np.testing.assert_allclose(lengths.max() / lengths.min(), 4.0112 / 2.0616, rtol=1e-3)
