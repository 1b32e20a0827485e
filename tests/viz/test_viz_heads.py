"""Each head's panel holds that head's weights: as a matrix, as lines, and where the nodes live."""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphIndexError, OptionError, ShapeError
from graphattn.viz import plot_heads, plot_weights
from graphattn.viz.style import WEIGHTS, shades


def weights_on(graph, heads: int = 3, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(graph.num_edges, generator=generator)  # alpha follows the caller's order
    graph = ga.from_edge_index(graph.edge_index[:, order], graph.num_sources, graph.num_targets)
    query, key = (torch.randn(n, heads, 5, generator=generator) for n in (graph.num_targets, graph.num_sources))
    return ga.attention(query, key, key, graph, return_weights=True).weights


def random_graph(num_targets: int, num_sources: int):
    return ga.from_mask(torch.rand(num_targets, num_sources, generator=torch.Generator().manual_seed(3)) < 0.5)


def test_matrices_are_the_weights():
    weights = weights_on(random_graph(7, 11))
    figure = plot_heads(weights, heads=[2, 0])
    dense, mask = weights.dense().numpy(), weights.graph.mask().numpy()
    for panel, head in enumerate((2, 0)):
        axes = figure.axes[panel]
        assert axes.get_title() == f"head {head}"
        shown = axes.images[0].get_array()
        assert np.array_equal(np.ma.getmaskarray(shown), ~mask)
        np.testing.assert_allclose(shown.filled(0), dense[head], rtol=1e-6)
        assert axes.images[0].norm.vmax == pytest.approx(dense[[2, 0]].max())  # one scale


def test_a_cell_of_a_large_matrix_is_its_largest_weight():
    weights = weights_on(ga.graphs.sliding_window(523, 7, causal=False), heads=1)
    shown = plot_heads(weights).axes[0].images[0].get_array().filled(0)
    padded = torch.nn.functional.pad(weights.dense(), (0, 2, 0, 2))
    wanted = torch.nn.functional.max_pool2d(padded, 5)[0]
    np.testing.assert_allclose(shown, wanted, rtol=1e-6)
    assert (wanted > 0).sum() > 100


def test_lines_run_from_targets_to_sources_and_are_coloured_by_weight():
    weights = weights_on(random_graph(5, 7))
    figure = plot_heads(weights, "lines", tokens=(list("abcde"), list("tuvwxyz")))
    largest = float(weights.alpha.max())
    for head in range(3):
        (lines,) = [a for a in figure.axes[head].get_children() if a.get_gid() == "lines"]
        ends = np.stack([path.vertices for path in lines.get_paths()])
        target, source = (np.rint(-ends[:, i, 1] * n - 0.5).astype(int) for i, n in ((0, 5), (1, 7)))
        assert (ends[:, 0, 0] < ends[:, 1, 0]).all()
        values = weights.dense()[head].numpy()
        kept = (values >= 0.01 * largest) & weights.graph.mask().numpy()
        assert set(zip(target, source, strict=True)) == set(zip(*np.nonzero(kept), strict=True))
        np.testing.assert_allclose(lines.get_colors(), shades(*WEIGHTS)(values[target, source] / largest), atol=0.01)
    words = [[text.get_text() for text in axes.texts] for axes in figure.axes[:3]]
    assert words == [list("abcde"), [], list("tuvwxyz")]


def test_one_target():
    weights = weights_on(random_graph(7, 7))
    figure = plot_heads(weights, "lines", target=4, heads=1)
    (lines,) = [a for a in figure.axes[0].get_children() if a.get_gid() == "lines"]
    assert {round(-path.vertices[0, 1] * 7 - 0.5) for path in lines.get_paths()} == {4}
    assert "target 4" in figure.get_suptitle()
    shown = plot_heads(weights, target=4).axes[0].images[0].get_array()
    assert (~np.ma.getmaskarray(shown)).any(1).nonzero()[0].tolist() == [4]


def test_places_share_one_scale():
    pos = torch.rand(23, 3, generator=torch.Generator().manual_seed(1))
    weights = weights_on(random_graph(23, 23))
    figure = plot_heads(weights, "place", target=5, pos=pos)
    row = weights.dense()[:, 5].numpy()
    from matplotlib.collections import PathCollection

    for head in range(3):
        (dots,) = [a for a in figure.axes[head].get_children() if a.get_gid() == "sources of 5"]
        at = np.stack(dots._offsets3d, 1)
        nodes = np.square(at[:, None] - pos.numpy()[None]).sum(2).argmin(1)
        wanted = shades(*WEIGHTS)(row[head, nodes] / row.max())
        np.testing.assert_allclose(PathCollection.get_facecolor(dots), wanted, atol=0.01)
        assert set(nodes) == set(weights.graph.mask()[5].nonzero().flatten().tolist())


def test_copies_of_an_edge_add_up():
    graph = ga.from_edge_index(torch.tensor([[0, 1, 0], [1, 1, 1]]), 2, 2, duplicates="keep")
    shown = plot_heads(ga.EdgeWeights(graph, torch.tensor([[0.25], [0.5], [0.25]]))).axes[0].images[0].get_array()
    assert shown[1].tolist() == [0.5, 0.5]


def test_an_image_has_whole_patches_for_its_cells():
    weights = weights_on(ga.graphs.full(6))
    for image in (torch.rand(2, 3), torch.rand(8, 12), torch.rand(8, 12, 3)):
        figure = plot_weights(weights, 4, size=(2, 3), image=image)
        (under,) = figure.axes[0].images
        assert under.get_array().shape == image.shape
        assert list(under.get_extent()) == [-0.5, 2.5, 1.5, -0.5]
    for image in (torch.rand(3, 3), torch.rand(8, 12, 4), torch.rand(0, 3)):
        with pytest.raises(ShapeError, match="whole patches of pixels"):
            plot_weights(weights, 4, size=(2, 3), image=image)


def test_more_heads_than_fit_and_no_edges():
    many = plot_heads(weights_on(ga.graphs.full(3), heads=13))
    assert "1 head more" in many.get_supxlabel()
    empty = ga.EdgeWeights(ga.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 5, 3), torch.zeros(0, 2))
    for view in ("matrix", "lines"):
        plot_heads(empty, view)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"view": "rows"}, OptionError, "view must be one of matrix, lines, place, got 'rows'"),
        ({"view": "place"}, OptionError, "pass target="),
        ({"pos": torch.zeros(5, 2)}, OptionError, 'pos: for view "place" alone'),
        ({"heads": [0, 3]}, ShapeError, r"head must be in \[0, 3\), got 3"),
        ({"heads": []}, OptionError, "heads must be 1 to 12 numbers"),
        ({"target": 5}, GraphIndexError, "target: target 5"),
        ({"weights": torch.zeros(2)}, OptionError, "without weights"),
    ],
)
def test_refusals(options, error, words):
    with pytest.raises(error, match=words):
        plot_heads(**{"weights": weights_on(ga.graphs.full(5))} | options)


def test_a_head_is_drawn_on_its_own_edges_alone():
    """Of weights along graphs of heads: the union has edges that a head has not, with weight 0."""
    graphs = (ga.graphs.sliding_window(7, 3), ga.graphs.global_tokens(7, (0,)) | ga.graphs.self_loops(7))
    x = torch.randn(7, 4, 5, generator=torch.Generator().manual_seed(0))
    weights = ga.attention(x, x, x, ga.PerHead(graphs), return_weights=True).weights
    matrices, lines = plot_heads(weights, heads=[1, 2]), plot_heads(weights, "lines", heads=[1, 2])
    places = plot_heads(weights, "place", target=5, heads=[1, 2])
    for panel, graph in enumerate(graphs):
        drawn = ~np.ma.getmaskarray(matrices.axes[panel].images[0].get_array())
        np.testing.assert_array_equal(drawn, graph.mask())
        (found,) = [a for a in lines.axes[panel].get_children() if a.get_gid() == "lines"]
        assert len(found.get_paths()) <= graph.num_edges
        (dots,) = [a for a in places.axes[panel].get_children() if a.get_gid() == "sources of 5"]
        assert sorted(np.asarray(dots.get_offsets())[:, 0]) == graph.mask()[5].nonzero().flatten().tolist()
    assert "White where the head has no edge." in matrices.get_supxlabel()
    for head, read in ((1, 3), (2, 2), (None, 4)):
        assert f"reads {read} sources" in plot_weights(weights, 5, head=head).get_suptitle()


def test_a_weight_of_zero_is_an_edge_where_all_heads_have_all():
    graph = ga.graphs.causal(3)
    weights = ga.EdgeWeights(graph, torch.tensor([1.0, 0, 1, 0, 0, 1])[:, None])
    assert "reads 3 sources" in plot_weights(weights, 2).get_suptitle()
    shown = plot_heads(weights).axes[0].images[0].get_array()
    np.testing.assert_array_equal(~np.ma.getmaskarray(shown), graph.mask())
