"""Colours of nodes under a drawn graph."""

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, ShapeError

POS = torch.rand(11, 2, generator=torch.Generator().manual_seed(0))
GRAPH = ga.graphs.knn(POS, 3)


def rgb_in(figure):
    return figure.axes[1].images[0].get_array()[..., :3].reshape(-1, 3)


@pytest.mark.slow
def test_labels_are_named_and_drawn():
    figure = ga.plot(GRAPH, POS, color=torch.arange(11) % 2 * 3)
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["0", "3"]
    seen = {tuple(rgb) for rgb in rgb_in(figure).tolist()}
    assert len(seen) > len({tuple(rgb) for rgb in rgb_in(ga.plot(GRAPH, POS)).tolist()})


def test_amounts_have_a_scale_of_their_range():
    figure = ga.plot(GRAPH, POS, color=POS[:, 0])
    low, high = figure.axes[2].get_ylim()
    assert (low, high) == pytest.approx((float(POS[:, 0].min()), float(POS[:, 0].max())))


def test_colours_need_places_and_one_for_each():
    with pytest.raises(GraphError, match='color is for layout "points"'):
        ga.plot(ga.graphs.causal(5), color=torch.arange(5))
    with pytest.raises(
        ShapeError, match=r"color must hold a number for each node or face, \(11,\)"
    ):
        ga.plot(GRAPH, POS, color=torch.arange(7))
