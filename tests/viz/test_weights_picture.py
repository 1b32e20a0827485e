"""The weights in a picture are the weights of the edges into its target."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphIndexError, OptionError, ShapeError
from graphattn.graph.forms import band, product
from graphattn.graph.graph import AttentionGraph
from graphattn.graph.listed import checked
from graphattn.graphs.grid.axes import cells
from graphattn.viz import plot_weights
from graphattn.viz.style import WEIGHTS, shades
from graphattn.viz.weights_picture import weights_into


def weights_of(graph: AttentionGraph, heads: int = 3) -> SimpleNamespace:
    raw = torch.rand(graph.num_edges, heads, generator=torch.Generator().manual_seed(0)) + 0.01
    total = torch.zeros(graph.num_targets, heads).index_add_(0, graph.target, raw)
    return SimpleNamespace(graph=graph, alpha=raw / total[graph.target])


def shuffled(seed: int = 0) -> AttentionGraph:
    generator = torch.Generator().manual_seed(seed)
    index = torch.nonzero(torch.rand(23, 23, generator=generator) < 0.3)
    index = index[torch.randperm(len(index), generator=generator)].t()
    return AttentionGraph(checked(index, 23, 23), "shuffled")


def dots(figure, target: int):
    (found,) = [a for a in figure.axes[0].get_children() if a.get_gid() == f"sources of {target}"]
    return found


@pytest.mark.parametrize("head", [None, 0, 2])
def test_weights_follow_the_edge_order(head):
    weights = weights_of(shuffled())
    dense = torch.zeros(23, 23, 3)
    dense[weights.graph.target, weights.graph.source] = weights.alpha
    wanted = dense[11].mean(1) if head is None else dense[11, :, head]
    sources, alpha, _ = weights_into(weights, 11, head)
    np.testing.assert_array_equal(sources, weights.graph.mask()[11].nonzero().flatten())
    np.testing.assert_allclose(alpha, wanted[sources].double(), rtol=1e-6)
    assert alpha.sum() == pytest.approx(1.0)


def test_copies_of_an_edge_add_up():
    graph = AttentionGraph(checked([[1, 0, 1], [2, 2, 2]], 3, 3, "keep"), "repeated")
    sources, alpha, _ = weights_into(SimpleNamespace(graph=graph, alpha=torch.tensor([[0.25], [0.5], [0.25]])), 2, 0)
    assert sources.tolist() == [0, 1]
    assert alpha.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("d", [2, 3])
def test_colours_are_the_weights(d):
    from matplotlib.collections import PathCollection  # the 3-D one sorts its colours by depth

    weights, pos = weights_of(shuffled()), torch.rand(23, d, generator=torch.Generator().manual_seed(1))
    figure = plot_weights(weights, 5, pos, head=1)
    drawn = dots(figure, 5)
    at = np.stack(drawn._offsets3d, 1) if d == 3 else np.asarray(drawn.get_offsets())
    sources, alpha, _ = weights_into(weights, 5, 1)
    order = [int(np.square(at - pos[s].numpy()).sum(1).argmin()) for s in sources]
    np.testing.assert_allclose(PathCollection.get_facecolor(drawn)[order], shades(*WEIGHTS)(alpha), atol=1e-6)
    assert "head 1" in figure.axes[1].get_ylabel()
    largest = dots(plot_weights(weights, 5, pos, head=1, relative=True), 5)
    wanted = shades(*WEIGHTS)(alpha / alpha.max())
    np.testing.assert_allclose(PathCollection.get_facecolor(largest)[order], wanted, atol=1e-6)


@pytest.mark.parametrize("place", ["points", "mesh", "network", "sequence"])
def test_dots_and_lines_grow_with_the_weight(place):
    graph = ga.graphs.full(5)
    pos = torch.tensor([[0, 0, 1.0], [1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]])
    where = {
        "points": {"pos": pos[:, :2]},
        "mesh": {"pos": pos, "faces": torch.tensor([[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1]])},
        "network": {"layout": "network"},
        "sequence": {"tokens": list("abcde")},
    }[place]
    alpha = torch.zeros(25, 1)
    alpha[:5, 0] = torch.tensor([0.1, 0.2, 0.05, 0.6, 0.05])  # target 0 sees every vertex from the tip
    figure = plot_weights(ga.EdgeWeights(graph, alpha), 0, **where)
    heavy = np.sort(alpha[:5, 0].numpy())
    areas = np.unique(np.round(dots(figure, 0).get_sizes(), 6))
    assert len(areas) == 4
    assert areas[-1] / areas[0] == pytest.approx((0.9 + 1.5 * heavy[-1]) / (0.9 + 1.5 * heavy[0]), rel=1e-5)
    (lines,) = [a for a in figure.axes[0].get_children() if a.get_gid() == "edges of 0"]
    np.testing.assert_allclose(np.sort(lines.get_linewidths()), 0.6 + 2 * heavy, rtol=1e-6)


def test_a_pale_picture_says_how_large_its_largest_weight_is():
    even = weights_of(AttentionGraph(band(1, 50), "cross"), 1)
    even.alpha[:] = 0.02
    said = plot_weights(even, 0).get_supxlabel().replace("\n", " ")
    assert "The largest weight is 0.02; relative=True makes it the darkest." in said
    assert "relative=True" not in plot_weights(even, 0, relative=True).get_supxlabel()
    even.alpha[:2] = torch.tensor([[-0.3], [2.0]])  # as normalize="none" may give
    figure = plot_weights(even, 0)
    assert "Weights below 0 are drawn as 0." in figure.get_supxlabel()
    assert figure.axes[1].get_ylim() == (0, 2)


@pytest.mark.slow
def test_every_geometry_draws():
    sequence = AttentionGraph(band(11, 11, lo=-2, hi=3), "window")
    grid = AttentionGraph(product((cells(7, 3), cells(5, 2))), "cells")
    cross = AttentionGraph(band(3, 5), "cross")
    plot_weights(weights_of(sequence), 6, tokens=list("abcdefghijk"))
    assert len(dots(plot_weights(weights_of(grid), 17), 17).get_paths()) == 6
    over = plot_weights(weights_of(grid), 17, image=torch.rand(7, 5))
    assert over.axes[0].images[0].get_array().shape == (7, 5)
    plot_weights(weights_of(cross), 1, tokens=(["x", "y", "z"], list("abcde")))
    plot_weights(weights_of(shuffled()), 3, layout="network")


def test_only_the_heaviest_of_many_are_drawn_and_it_says_so():
    graph = AttentionGraph(band(2, 1009), "cross")
    figure = plot_weights(weights_of(graph), 1)
    assert "160 heaviest of 1,009" in figure.get_supxlabel()
    assert "reads 1,009 sources" in figure.get_suptitle()
    assert len(dots(figure, 1).get_offsets()) == 160


@pytest.mark.parametrize("given", ["weights", "attention", "layer"])
def test_it_takes_the_weights_or_what_they_came_in(given):
    graph, x = ga.graphs.causal(7), torch.randn(1, 7, 2, 3, generator=torch.Generator().manual_seed(0))
    out = ga.attention(x, x, x, graph, return_weights=True)
    figure = plot_weights({"weights": out.weights, "attention": out, "layer": (out.output, out.weights)}[given], 5)
    wanted = out.weights.alpha[0, graph.target == 5].mean(1)
    shown = dots(figure, 5).get_facecolor()
    np.testing.assert_allclose(shown, shades(*WEIGHTS)(np.sort(wanted.numpy())), atol=1e-6)
    assert figure.axes[1].get_ylim() == (0, 1)


@pytest.mark.parametrize("given", [(torch.zeros(5, 2), None, None), None, "weights"])
def test_no_weights_at_all(given):
    with pytest.raises(OptionError, match=f"return_weights=True; got a {type(given).__name__} without weights"):
        plot_weights(given, 2)


def test_an_isolated_target_draws():
    graph = AttentionGraph(checked([[0], [1]], 3, 3), "isolated")
    assert "target 2 reads 0 sources" in plot_weights(weights_of(graph), 2).get_suptitle()


@pytest.mark.parametrize(
    ("alpha", "head", "words"),
    [
        (torch.zeros(7, 3), None, r"\(E, H\) with E = 15 edges, got \(7, 3\)"),
        (
            torch.zeros(2, 15, 3),
            None,
            r"has a batch.*one element: graphattn.EdgeWeights\(weights.graph, weights.alpha\[0\]\)",
        ),
        (torch.zeros(15, 3), 3, r"head must be in \[0, 3\)"),
    ],
)
def test_weights_that_do_not_fit(alpha, head, words):
    graph = AttentionGraph(band(5, 5, lo=0), "causal")
    with pytest.raises(ShapeError, match=words):
        plot_weights(SimpleNamespace(graph=graph, alpha=alpha), 2, head=head)


def test_no_such_target():
    graph = AttentionGraph(band(5, 5), "full")
    with pytest.raises(GraphIndexError, match="target 5"):
        plot_weights(weights_of(graph), 5)


def test_strong_is_darker_than_weak():
    lightness = shades(*WEIGHTS)(np.linspace(0, 1, 9))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) < 0).all()
    assert lightness[0] > 0.8
    assert lightness[-1] < 0.2


def test_without_a_caption():
    weights = weights_of(AttentionGraph(band(7, 7), "causal"))
    assert plot_weights(weights, 6).get_supxlabel()
    assert not plot_weights(weights, 6, caption=False).get_supxlabel()


def test_one_head_has_no_mean():
    graph = AttentionGraph(band(7, 7), "full")
    assert plot_weights(weights_of(graph, 1), 6).axes[1].get_ylabel() == "attention weight"
    assert plot_weights(weights_of(graph, 2), 6).axes[1].get_ylabel() == "attention weight, mean over 2 heads"


def test_of_a_batch_along_graphs_of_heads_an_element_keeps_its_heads():
    graphs = ga.PerHead((ga.graphs.causal(5), ga.graphs.self_loops(5)))
    x = torch.randn(3, 5, 2, 7, generator=torch.Generator().manual_seed(0))
    weights = ga.attention(x, x, x, graphs, return_weights=True).weights
    with pytest.raises(ShapeError, match=r"EdgeWeights\(weights.graph, weights.alpha\[0\], weights.heads\)"):
        plot_weights(weights, 4)
    one = ga.EdgeWeights(weights.graph, weights.alpha[0], weights.heads)
    assert "reads 1 source" in plot_weights(one, 4, head=1).get_suptitle()
