"""What a notebook shows of a graph and of weights is the mask and the weights, in a picture that
any reader decodes.
"""

import base64
import io
import re

import numpy as np
import pytest
import torch
from graph_table import GRAPHS
from PIL import Image

import graphattn as ga


def picture(shown) -> np.ndarray:
    """Luminance of the pixels of the one inline picture."""
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', shown._repr_html_())
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    image.verify()
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("L"))


@pytest.mark.parametrize("name", GRAPHS)
def test_the_picture_is_the_mask(name):
    graph = GRAPHS[name]
    graph = graph() if callable(graph) else graph
    if graph.num_targets * graph.num_sources == 0:
        assert "<img" not in graph._repr_html_()
    elif max(graph.num_targets, graph.num_sources) <= 128:
        dark = picture(graph) < 255
        assert np.array_equal(dark, graph.mask().numpy())


def test_a_cell_of_a_large_mask_is_darker_the_fuller_it_is():
    graph = ga.graphs.causal(1_000_000)
    seen = picture(graph)
    assert seen.shape == (128, 128)
    assert (seen[~np.tri(128, dtype=bool)] == 255).all()
    assert seen[100, 3] < seen[100, 100] < 255
    assert len(graph._repr_html_()) < 4_000


def test_the_line_is_there_and_escaped():
    graph = ga.from_mask(torch.eye(3).bool(), name="<script>alert(1)</script>")
    shown = graph._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "3 nodes, 3 edges" in shown


def test_a_costly_rule_has_no_picture():
    rule = ga.from_rule(lambda t, s: t == s, 20_011)
    assert "<img" not in rule._repr_html_()


def test_weights_are_darker_the_larger_they_are():
    graph = ga.graphs.causal(5)
    alpha = torch.rand(2, graph.num_edges, 3, generator=torch.Generator().manual_seed(0))
    seen = picture(ga.EdgeWeights(graph, alpha))
    mean = ga.EdgeWeights(graph, alpha.mean((0, 2))[:, None]).dense()[0].numpy()
    assert np.array_equal(seen < 255, graph.mask().numpy())
    order = np.argsort(mean[graph.mask()])
    assert (np.diff(seen[graph.mask()][order].astype(int)) <= 0).all()
    even = picture(ga.EdgeWeights(graph, torch.full((graph.num_edges, 1), 0.1)))
    one = picture(ga.EdgeWeights(graph, torch.full((graph.num_edges, 1), 1.0)))
    # a head that reads evenly does not look like one that reads one source
    assert even.min() > one.min() + 50
    assert "<img" not in ga.EdgeWeights(ga.graphs.full(0), torch.zeros(0, 2))._repr_html_()
    without = ga.graphs.full(5) - ga.graphs.full(5)
    assert "<img" not in ga.EdgeWeights(without, torch.zeros(0, 2))._repr_html_()
