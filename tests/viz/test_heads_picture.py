"""Each head's panel holds that head's weights: as a matrix, as lines, and where the nodes live."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphIndexError, OptionError, ShapeError
from graphattn.viz import plot_heads, plot_weights
from graphattn.viz.style import LINES, WEIGHTS, shades

pytestmark = pytest.mark.slow


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
        assert axes.images[0].norm.vmax == 1
    relative = plot_heads(weights, heads=[2, 0], relative=True)
    assert [axes.images[0].norm.vmax for axes in relative.axes[:2]] == pytest.approx([dense[[2, 0]].max()] * 2)


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
    for head in range(3):
        (lines,) = [a for a in figure.axes[head].get_children() if a.get_gid() == "lines"]
        ends = np.stack([path.vertices for path in lines.get_paths()])
        target, source = (np.rint(-ends[:, i, 1] * n - 0.5).astype(int) for i, n in ((0, 5), (1, 7)))
        assert (ends[:, 0, 0] < ends[:, 1, 0]).all()
        values = weights.dense()[head].numpy()
        assert set(zip(target, source, strict=True)) == set(zip(*np.nonzero(weights.graph.mask().numpy()), strict=True))
        np.testing.assert_allclose(lines.get_colors(), shades(*LINES)(values[target, source]), atol=0.01)
        np.testing.assert_allclose(lines.get_linewidths(), 0.5 + 2 * values[target, source], rtol=1e-5)
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
        wanted = shades(*WEIGHTS)(row[head, nodes])
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
        ({"view": "rows"}, OptionError, 'view must be "matrix", "lines" or "place", got .rows'),
        ({"view": ["a", "b"]}, OptionError, r"view must be text, got \['a', 'b'\]"),
        ({"view": "lines", "pos": torch.zeros(5, 2)}, OptionError, 'pos: for view "place" alone'),
        ({"weights": torch.zeros(5, 5)}, ShapeError, r"got float32 \(5, 5\); of one head it is weights\[None\]"),
        ({"weights": torch.zeros(2, 3, 5, 5)}, ShapeError, r"\(2, 3, 5, 5\); of a batch draw one .*: weights\[0\]"),
        ({"weights": torch.zeros(3, 5, 5).long()}, ShapeError, r"must be floats .* got int64 \(3, 5, 5\)"),
        ({"weights": (torch.zeros(3, 5, 5),) * 2}, OptionError, r"draw one of its tensors, \(H, T, S\)"),
        ({"sentences": "ab"}, OptionError, 'sentences="ab" needs sentence_b_start'),
        ({"sentences": "ac", "sentence_b_start": 2}, OptionError, 'sentences must be "all", "aa", "ab", "ba" or "bb"'),
        ({"sentence_b_start": 5}, OptionError, r"sentence_b_start must be a token in \[1, 4\], got 5"),
        ({"sentence_b_start": True}, OptionError, "sentence_b_start must be a whole number, got True"),
        ({"sentence_b_start": 2, "view": "place"}, OptionError, 'is for views "matrix" and "lines"'),
        ({"sentence_b_start": 2, "weights": torch.ones(1, 5, 3)}, OptionError, "whose sources are their targets"),
        ({"sentence_b_start": 2, "sentences": "ab", "target": 3}, OptionError, "target 3 is not in the sentence"),
        ({"heads": [0, 3]}, ShapeError, r"head must be in \[0, 3\), got 3"),
        ({"heads": []}, OptionError, "heads must be 1 to 12 numbers"),
        ({"target": 5}, GraphIndexError, "target: target 5"),
        ({"weights": "alpha"}, OptionError, "without weights"),
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
    layouts = plot_heads(weights, "place", target=5, heads=[1, 2])
    for panel, graph in enumerate(graphs):
        drawn = ~np.ma.getmaskarray(matrices.axes[panel].images[0].get_array())
        np.testing.assert_array_equal(drawn, graph.mask())
        (found,) = [a for a in lines.axes[panel].get_children() if a.get_gid() == "lines"]
        assert len(found.get_paths()) <= graph.num_edges
        (dots,) = [a for a in layouts.axes[panel].get_children() if a.get_gid() == "sources of 5"]
        assert sorted(np.asarray(dots.get_offsets())[:, 0]) == graph.mask()[5].nonzero().flatten().tolist()
    assert "White where no edge of the head is drawn" in matrices.get_supxlabel()
    for head, read in ((1, 3), (2, 2), (None, 4)):
        assert f"reads {read} sources" in plot_weights(weights, 5, head=head).get_suptitle()


def test_a_weight_of_zero_is_an_edge_where_all_heads_have_all():
    graph = ga.graphs.causal(3)
    weights = ga.EdgeWeights(graph, torch.tensor([1.0, 0, 1, 0, 0, 1])[:, None])
    assert "reads 3 sources" in plot_weights(weights, 2).get_suptitle()
    shown = plot_heads(weights).axes[0].images[0].get_array()
    np.testing.assert_array_equal(~np.ma.getmaskarray(shown), graph.mask())


def ink_of(figure, panel: int) -> float:
    """Mean darkness of a panel, as it is drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = 255 - np.asarray(canvas.buffer_rgba())[..., :3].astype(float).mean(2)
    box = figure.axes[panel].get_window_extent()
    height = pixels.shape[0]
    return float(pixels[height - int(box.y1) : height - int(box.y0), int(box.x0) : int(box.x1)].max())


@pytest.mark.parametrize("view", ["matrix", "lines", "place"])
def test_a_head_that_reads_evenly_does_not_look_like_one_that_reads_one_source(view):
    even, single = torch.full((1, 8, 8), 1 / 8), torch.eye(8).roll(1, 0)[None]
    options = {"pos": torch.rand(8, 2, generator=torch.Generator().manual_seed(0))} if view == "place" else {}
    if view == "place":  # outlines are dark in either
        colours = [
            next(a for a in plot_heads(w, target=3, **options).axes[0].get_children() if a.get_gid() == "sources of 3")
            for w in (even, single)
        ]
        pale, dark = (255 * (1 - dots.get_facecolor()[-1, :3].mean()) for dots in colours)
    else:
        pale, dark = (ink_of(plot_heads(w, view, caption=False), 0) for w in (even, single))
    assert pale < 0.6 * dark  # lines meet at their ends


def test_a_tensor_is_the_weights_that_it_holds():
    weights = weights_on(random_graph(7, 11))
    dense = weights.dense()
    for given in (dense, dense[None], dense.numpy(), dense.double().requires_grad_()):
        shown = plot_heads(given, tokens=(list("abcdefg"), list("opqrstuvxyz"))).axes[2].images[0].get_array()
        assert np.array_equal(~np.ma.getmaskarray(shown), weights.graph.mask().numpy())
        np.testing.assert_allclose(shown.filled(0), dense[2], rtol=1e-6)
    row = plot_weights(dense[None], 3, head=1)
    assert row.get_suptitle() == plot_weights(weights, 3, head=1).get_suptitle()
    after = torch.rand(2, 5, 7, generator=torch.Generator().manual_seed(4)).double()
    torch.testing.assert_close(ga.viz.rollout([dense, after]).dense()[0], after.mean(0) @ dense.double().mean(0))


def test_a_place_chooses_its_view_and_a_target():
    pos = torch.rand(23, 2, generator=torch.Generator().manual_seed(1))
    weights = weights_on(ga.graphs.knn(pos, k=4))
    figure = plot_heads(weights, pos=pos)
    (target,) = {int(a.get_gid().split()[1]) for a in figure.axes[0].get_children() if "target" in (a.get_gid() or "")}
    assert f"target {target}:" in figure.get_suptitle()
    assert weights.graph.in_degree[target] > 0
    grid = ga.graphs.window_partition((4, 6), (2, 3))
    assert "target" in plot_heads(weights_on(grid), size=(4, 6)).get_suptitle()
    x = torch.randn(24, 1, 5, generator=torch.Generator().manual_seed(0))
    rule = ga.attention(x, x, x, grid, return_weights=True)
    assert "target" in plot_heads(rule, layout="grid").get_suptitle()
    with pytest.raises(OptionError, match="the graph has no targets"):
        plot_heads(ga.EdgeWeights(ga.graphs.cross(0, 3), torch.zeros(0, 2)), "place")


def lines_of(axes):
    (lines,) = [a for a in axes.get_children() if a.get_gid() == "lines"]
    return np.stack([path.vertices[:, 1] for path in lines.get_paths()])


@pytest.mark.parametrize("start", [3, np.int64(3), torch.tensor(3)])
def test_two_sentences_are_drawn_apart(start):
    weights, words = weights_on(ga.graphs.full(7)), list("abcdefg")
    apart = plot_heads(weights, "lines", tokens=words, sentence_b_start=start)
    heights = [text.xy[1] for text in apart.axes[0].texts]
    steps = -np.diff(heights)
    assert steps.argmax() == 2  # between c and d
    np.testing.assert_allclose(np.delete(steps, 2), steps[0])
    assert -1 < min(heights) < max(heights) < 0
    assert set(np.round(lines_of(apart.axes[0]), 9).flatten()) == set(np.round(heights, 9))
    matrix = plot_heads(weights, tokens=words, sentence_b_start=3).axes[0]
    parts = [line.get_xydata()[0] for line in matrix.lines if line.get_gid() == "between sentences"]
    assert [list(at) for at in parts] == [[0, 2.5], [2.5, 0]]


@pytest.mark.parametrize(
    ("sentences", "rows", "columns"),
    [("aa", "abc", "abc"), ("ab", "abc", "defg"), ("ba", "defg", "abc"), ("bb", "defg", "defg")],
)
def test_one_sentence_may_be_shown_as_it_reads_another(sentences, rows, columns):
    weights, words = weights_on(ga.graphs.full(7)), list("abcdefg")
    options = {"tokens": words, "sentence_b_start": 3, "sentences": sentences, "heads": 1}
    axes = plot_heads(weights, **options).axes[0]
    t, s = ([words.index(word) for word in side] for side in (rows, columns))
    np.testing.assert_allclose(axes.images[0].get_array().filled(0), weights.dense()[1][t][:, s], rtol=1e-6)
    assert [label.get_text() for label in axes.get_yticklabels()] == list(rows)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(columns)
    assert list(axes.get_yticks()) == t
    assert list(axes.images[0].get_extent()) == [s[0] - 0.5, s[-1] + 0.5, t[-1] + 0.5, t[0] - 0.5]
    panel = plot_heads(weights, "lines", **options).axes[0]
    assert [text.get_text() for text in panel.texts] == [*rows, *columns]
    assert len(lines_of(panel)) == len(rows) * len(columns)
    one = plot_heads(weights, "lines", **options | {"target": t[1]}).axes[0]
    assert set(lines_of(one)[:, 0]) == {panel.texts[1].xy[1]}


def test_words_of_a_sequence_in_a_narrow_panel_do_not_touch():
    words = ["the", "cat", "sat", "on", "the", "mat", "and", "the", "dog", "lay", "on", "it"]
    figure = plot_heads(weights_on(ga.graphs.causal(12), heads=4), layout="sequence", tokens=words)
    renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else figure._get_renderer()
    for axes in figure.axes[:4]:
        boxes = [label.get_window_extent(renderer) for label in axes.get_xticklabels()]
        assert len(boxes) == 12
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_of_very_many_lines_the_caption_says_that_some_are_left_out():
    assert "3,000 heaviest" in plot_heads(weights_on(ga.graphs.full(60), heads=1), "lines").get_supxlabel()
    assert "heaviest" not in plot_heads(weights_on(ga.graphs.full(50), heads=1), "lines").get_supxlabel()
