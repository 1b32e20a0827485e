"""Each panel holds the values of its head: as a matrix, as lines, and where the nodes live."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, GraphIndexError, OptionError, ShapeError
from graphattn.graph.forms import product
from graphattn.graph.graph import AttentionGraph
from graphattn.graphs.grid.axes import cells
from graphattn.viz import plot
from graphattn.viz.layouts.pick import points_of
from graphattn.viz.style import LINES, WEIGHTS, shades

pytestmark = pytest.mark.slow


def weights_on(graph, heads: int = 3, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(graph.num_edges, generator=generator)  # alpha follows the caller's order
    graph = ga.from_edge_index(graph.edge_index[:, order], graph.num_sources, graph.num_targets)
    query, key = (
        torch.randn(n, heads, 5, generator=generator)
        for n in (graph.num_targets, graph.num_sources)
    )
    return ga.attention(query, key, key, graph, return_weights=True).weights


def random_graph(num_targets: int, num_sources: int):
    return ga.from_mask(
        torch.rand(num_targets, num_sources, generator=torch.Generator().manual_seed(3)) < 0.5
    )


def drawn(figure, gid: str, panel: int = 0):
    (found,) = [a for a in figure.axes[panel].get_children() if a.get_gid() == gid]
    return found


def test_matrices_are_the_weights():
    weights = weights_on(random_graph(7, 11))
    figure = plot(weights, heads=[2, 0])
    dense, mask = weights.dense().numpy(), weights.graph.mask().numpy()
    for panel, head in enumerate((2, 0)):
        axes = figure.axes[panel]
        assert axes.get_title() == f"head {head}"
        shown = axes.images[0].get_array()
        assert np.array_equal(np.ma.getmaskarray(shown), ~mask)
        np.testing.assert_allclose(shown.filled(0), dense[head], rtol=1e-6)
        assert axes.images[0].norm.vmax == 1
    relative = plot(weights, heads=[2, 0], relative=True)
    assert [axes.images[0].norm.vmax for axes in relative.axes[:2]] == pytest.approx(
        [dense[[2, 0]].max()] * 2
    )


def test_a_cell_of_a_large_matrix_is_its_largest_weight():
    weights = weights_on(ga.graphs.sliding_window(523, 7, causal=False), heads=1)
    shown = plot(weights).axes[0].images[0].get_array().filled(0)
    padded = torch.nn.functional.pad(weights.dense(), (0, 2, 0, 2))
    wanted = torch.nn.functional.max_pool2d(padded, 5)[0]
    np.testing.assert_allclose(shown, wanted, rtol=1e-6)
    assert (wanted > 0).sum() > 100


def test_lines_run_from_targets_to_sources_and_are_coloured_by_weight():
    weights = weights_on(random_graph(5, 7))
    figure = plot(weights, view="lines", tokens=(list("abcde"), list("tuvwxyz")))
    for head in range(3):
        lines = drawn(figure, "lines", head)
        ends = np.stack([path.vertices for path in lines.get_paths()])
        target, source = (
            np.rint(-ends[:, i, 1] * n - 0.5).astype(int) for i, n in ((0, 5), (1, 7))
        )
        assert (ends[:, 0, 0] < ends[:, 1, 0]).all()
        values = weights.dense()[head].numpy()
        assert set(zip(target, source, strict=True)) == set(
            zip(*np.nonzero(weights.graph.mask().numpy()), strict=True)
        )
        np.testing.assert_allclose(
            lines.get_colors(), shades(*LINES)(values[target, source]), atol=0.01
        )
        np.testing.assert_allclose(
            lines.get_linewidths(), 0.5 + 2 * values[target, source], rtol=1e-5
        )
    words = [[text.get_text() for text in axes.texts] for axes in figure.axes[:3]]
    assert words == [list("abcde"), [], list("tuvwxyz")]


def test_one_target():
    weights = weights_on(random_graph(7, 7))
    figure = plot(weights, view="lines", target=4, heads=1)
    assert {
        round(-path.vertices[0, 1] * 7 - 0.5) for path in drawn(figure, "lines").get_paths()
    } == {4}
    assert "target 4" in figure.get_suptitle()
    shown = plot(weights, view="matrix", target=4).axes[0].images[0].get_array()
    assert (~np.ma.getmaskarray(shown)).any(1).nonzero()[0].tolist() == [4]


@pytest.mark.parametrize("heads", [None, "mean", 1])
@pytest.mark.parametrize("d", [2, 3])
def test_sources_of_a_target_have_the_colours_of_their_weights(d, heads):
    pos = torch.rand(23, d, generator=torch.Generator().manual_seed(1))
    weights = weights_on(random_graph(23, 23))
    row = weights.dense()[:, 5].numpy()
    place = points_of(pos, None)
    place.face(5)
    place.frame(place.close_up(5, np.arange(23), 0.7))
    on_page = place.flat(place.source_at)
    rows = {None: row, "mean": row.mean(0, keepdims=True), 1: row[[1]]}[heads]
    for relative in (False, True):
        figure = plot(weights, pos, target=5, heads=heads, relative=relative)
        top = rows.max() if relative else 1.0
        for panel, wanted in enumerate(rows):
            dots = drawn(figure, "sources of 5", panel)
            nodes = (
                np.square(np.asarray(dots.get_offsets())[:, None] - on_page[None]).sum(2).argmin(1)
            )
            colours = shades(*WEIGHTS)(wanted[nodes] / top)
            np.testing.assert_allclose(dots.get_facecolor(), colours, atol=0.01)
            assert set(nodes) == set(weights.graph.mask()[5].nonzero().flatten().tolist())
    titles = {None: ["head 0", "head 1", "head 2"], "mean": ["mean over 3 heads"], 1: ["head 1"]}[
        heads
    ]
    assert [axes.get_title() for axes in figure.axes[: len(rows)]] == titles


@pytest.mark.parametrize("place", ["points", "network", "sequence"])
def test_dots_and_lines_grow_with_the_weight(place):
    graph = ga.graphs.full(5)
    pos = torch.tensor([[0, 0, 1.0], [1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]])
    where = {
        "points": {"pos": pos[:, :2]},
        "network": {"layout": "network"},
        "sequence": {"tokens": list("abcde")},
    }[place]
    values = torch.zeros(25)
    # target 0 sees every vertex from the tip
    values[:5] = torch.tensor([0.1, 0.2, 0.05, 0.6, 0.05])
    for sign in (1, -1):
        figure = plot(graph, values=sign * values, target=0, relative=False, **where)
        heavy = np.sort(values[:5].numpy())
        areas = np.unique(np.round(drawn(figure, "sources of 0").get_sizes(), 6))
        assert len(areas) == 4
        assert areas[-1] / areas[0] == pytest.approx(
            (0.9 + 1.5 * heavy[-1]) / (0.9 + 1.5 * heavy[0]), rel=1e-5
        )
        widths = drawn(figure, "edges of 0").get_linewidths()
        np.testing.assert_allclose(np.sort(widths), 0.6 + 2 * heavy, rtol=1e-6)


def test_every_geometry_draws():
    grid = AttentionGraph(product((cells(7, 3), cells(5, 2))), "cells")
    rule = ga.EdgeWeights(grid, torch.ones(grid.num_edges, 1))
    assert len(drawn(plot(rule, target=17), "sources of 17").get_paths()) == 6
    plot(weights_on(ga.graphs.cross(3, 5)), target=1, tokens=(["x", "y", "z"], list("abcde")))
    network = plot(
        weights_on(random_graph(9, 9), 1), target=3, layout="network", tokens=list("abcdefghi")
    )
    assert "d" in [text.get_text() for text in network.axes[0].texts]
    assert not network.axes[0].get_title()
    isolated = ga.from_edge_index(torch.tensor([[0], [1]]), 3, 3)
    assert "target 2 reads 0 sources" in plot(weights_on(isolated), target=2).get_suptitle()


def test_copies_of_an_edge_add_up():
    graph = ga.from_edge_index(torch.tensor([[0, 1, 0], [1, 1, 1]]), 2, 2, duplicates="keep")
    shown = plot(graph, values=torch.tensor([0.25, 0.5, 0.25])).axes[0].images[0].get_array()
    assert shown[1].tolist() == [0.5, 0.5]


def test_an_image_has_whole_patches_for_its_cells():
    weights = weights_on(ga.graphs.full(6))
    for image in (torch.rand(2, 3), torch.rand(8, 12), torch.rand(8, 12, 3)):
        (under,) = plot(weights, target=4, size=(2, 3), image=image).axes[0].images
        assert under.get_array().shape == image.shape
        assert list(under.get_extent()) == [-0.5, 2.5, 1.5, -0.5]
    for image in (torch.rand(3, 3), torch.rand(8, 12, 4), torch.rand(0, 3)):
        with pytest.raises(ShapeError, match="whole patches of pixels"):
            plot(weights, target=4, size=(2, 3), image=image)


def test_what_is_left_out_is_said():
    assert "1 head more" in plot(weights_on(ga.graphs.full(3), heads=13)).get_supxlabel()
    assert (
        "3,000 heaviest"
        in plot(weights_on(ga.graphs.full(60), heads=1), view="lines").get_supxlabel()
    )
    assert (
        "heaviest"
        not in plot(weights_on(ga.graphs.full(50), heads=1), view="lines").get_supxlabel()
    )
    figure = plot(weights_on(ga.graphs.cross(2, 1009)), target=1, heads="mean")
    assert "160 heaviest of 1,009" in figure.get_supxlabel()
    assert "reads 1,009 sources" in figure.get_suptitle()
    assert len(drawn(figure, "sources of 1").get_offsets()) == 160
    empty = ga.EdgeWeights(
        ga.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 5, 3), torch.zeros(0, 2)
    )
    for view in ("matrix", "lines"):
        plot(empty, view=view)


def test_a_pale_picture_says_how_large_its_largest_weight_is():
    graph, even = ga.graphs.cross(1, 50), torch.full((50,), 0.02)
    said = plot(graph, values=even, target=0, relative=False).get_supxlabel().replace("\n", " ")
    assert "The largest value is 0.02; relative=True makes it the darkest." in said
    relative = plot(graph, values=even, target=0)
    assert "relative=True" not in relative.get_supxlabel()
    assert "value, up to the largest drawn" in [axes.get_ylabel() for axes in relative.axes]


@pytest.mark.parametrize("view", ["matrix", "lines", "place"])
def test_values_below_zero_have_colours_of_their_own(view):
    values = torch.tensor([-2.0, 1, 0.5, -1, 0, 0.25])
    figure = plot(
        ga.graphs.causal(3), values=values, view=view, target=0 if view == "place" else None
    )
    assert (figure.axes[-1].get_ylim() if view == "place" else figure.axes[-1].get_xlim()) == (
        -2,
        2,
    )
    assert "value" in figure.axes[-1].get_ylabel() + figure.axes[-1].get_xlabel()
    if view == "matrix":
        image = figure.axes[0].images[0]
        assert image.get_array()[0, 0] == -2
        low, high = image.cmap(image.norm([-2.0, 2.0]))
        assert np.abs(low - high).max() > 0.3


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"view": "rows"}, OptionError, 'view must be "matrix", "lines" or "place", got .rows'),
        ({"view": "lines", "pos": torch.zeros(5, 2)}, OptionError, 'pos: for view "place" alone'),
        ({"graph": torch.zeros(5, 5)}, ShapeError, r"got a Tensor \(5, 5\) .* of one head pass weights\[None\]"),
        ({"graph": torch.zeros(2, 3, 5, 5)}, ShapeError, r"\(2, 3, 5, 5\) .* of a batch one element, weights\[0\]"),
        ({"graph": torch.zeros(3, 5, 5).long()}, GraphError, "its weights or a list of graphs, got Tensor"),
        ({"graph": (torch.zeros(3, 5, 5),) * 2}, OptionError, r"draw one of its tensors, \(H, T, S\)"),
        ({"graph": (torch.zeros(5, 2), None)}, OptionError, "return_weights=True; got a tuple without weights"),
        ({"graph": SimpleNamespace(graph=ga.graphs.causal(5), alpha=torch.zeros(7, 3))}, ShapeError,
         r"weights.alpha must have shape \(15, H\), got \(7, 3\)"),
        ({"heads": [0, 3]}, ShapeError, r"head must be in \[0, 3\), got 3"),
        ({"heads": []}, OptionError, 'heads must be "mean", or 1 to 12 numbers'),
        ({"heads": "max"}, OptionError, 'heads must be "mean", got'),
        ({"target": 5}, GraphIndexError, r"target must be in \[0, 5\)"),
        ({"graph": ga.graphs.causal(5), "relative": False}, OptionError, "relative: only for edges with values"),
        ({"highlight": 3}, OptionError, "highlight: only for a graph without values"),
        ({"graph": ga.graphs.causal(5), "target": 3}, OptionError, "target: only for edges with values, values="),
        ({"graph": ga.graphs.causal(5), "values": torch.zeros(7)}, ShapeError, r"values must have shape \(15, H\)"),
        ({"graph": ga.graphs.causal(5), "values": torch.zeros(15) * 1j}, ShapeError, "values must be real"),
        ({"graph": ga.graphs.causal(5), "values": torch.zeros(3, 5, 5)}, ShapeError, r"draw plot\(tensor\)"),
        ({"graph": ga.graphs.causal(5), "values": weights_on(ga.graphs.full(5))}, ShapeError, "weights of other edges"),
        ({"values": torch.zeros(25)}, GraphError, "graph must be an AttentionGraph"),
    ],
)  # fmt: skip
def test_refusals(options, error, words):
    with pytest.raises(error, match=words):
        plot(**{"graph": weights_on(ga.graphs.full(5))} | options)


def test_a_head_is_drawn_on_its_own_edges_alone():
    """Of weights along graphs of heads: the union has edges that a head has not, with weight 0."""
    graphs = (
        ga.graphs.sliding_window(7, 3, causal=True),
        ga.graphs.global_tokens(7, (0,)) | ga.graphs.self_loops(7),
    )
    x = torch.randn(7, 4, 5, generator=torch.Generator().manual_seed(0))
    weights = ga.attention(x, x, x, ga.PerHead(graphs), return_weights=True).weights
    matrices, lines = plot(weights, heads=[1, 2]), plot(weights, view="lines", heads=[1, 2])
    layouts = plot(weights, target=5, heads=[1, 2])
    for panel, graph in enumerate(graphs):
        shown = ~np.ma.getmaskarray(matrices.axes[panel].images[0].get_array())
        np.testing.assert_array_equal(shown, graph.mask())
        assert len(drawn(lines, "lines", panel).get_paths()) <= graph.num_edges
        dots = drawn(layouts, "sources of 5", panel)
        assert (
            sorted(np.asarray(dots.get_offsets())[:, 0])
            == graph.mask()[5].nonzero().flatten().tolist()
        )
    assert "White where no edge of the head is drawn" in matrices.get_supxlabel()
    for heads, sources in ((1, 3), (2, 2), ("mean", 4)):
        assert (
            len(drawn(plot(weights, target=5, heads=heads), "sources of 5").get_offsets())
            == sources
        )


def test_of_a_batch_an_element_is_drawn_and_keeps_its_heads():
    graphs = ga.PerHead((ga.graphs.causal(5), ga.graphs.self_loops(5)))
    x = torch.randn(3, 5, 2, 7, generator=torch.Generator().manual_seed(0))
    weights = ga.attention(x, x, x, graphs, return_weights=True).weights
    with pytest.raises(
        ShapeError, match=r"of a batch draw one .*weights.alpha\[0\], weights.heads\)"
    ):
        plot(weights)
    one = ga.EdgeWeights(weights.graph, weights.alpha[0], weights.heads)
    assert "reads 1 source" in plot(one, target=4, heads=1).get_suptitle()


def test_a_weight_of_zero_is_an_edge_where_all_heads_have_all():
    graph = ga.graphs.causal(3)
    weights = ga.EdgeWeights(graph, torch.tensor([1.0, 0, 1, 0, 0, 1])[:, None])
    assert "reads 3 sources" in plot(weights, target=2).get_suptitle()
    shown = plot(weights).axes[0].images[0].get_array()
    np.testing.assert_array_equal(~np.ma.getmaskarray(shown), graph.mask())


def ink_of(figure, panel: int) -> float:
    """Mean darkness of a panel, as it is drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = 255 - np.asarray(canvas.buffer_rgba())[..., :3].astype(float).mean(2)
    box = figure.axes[panel].get_window_extent()
    height = pixels.shape[0]
    return float(
        pixels[
            height - int(box.y1) + 1 : height - int(box.y0) - 1, int(box.x0) + 2 : int(box.x1) - 1
        ].max()
    )


@pytest.mark.parametrize("view", ["matrix", "lines", "place"])
def test_a_head_that_reads_evenly_does_not_look_like_one_that_reads_one_source(view):
    even, single = torch.full((1, 8, 8), 1 / 8), torch.eye(8).roll(1, 0)[None]
    if view == "place":  # outlines are dark in either
        pos = torch.rand(8, 2, generator=torch.Generator().manual_seed(0))
        colours = [
            drawn(plot(w, pos, target=3, relative=False), "sources of 3") for w in (even, single)
        ]
        pale, dark = (255 * (1 - dots.get_facecolor()[-1, :3].mean()) for dots in colours)
    else:
        pale, dark = (ink_of(plot(w, view=view, caption=False), 0) for w in (even, single))
    assert pale < 0.6 * dark  # lines meet at their ends


def test_weights_come_with_their_graph_in_what_they_came_in_or_as_a_tensor():
    weights = weights_on(random_graph(7, 11))
    dense, out = weights.dense(), torch.zeros(7, 3, 5)
    tokens = (list("abcdefg"), list("opqrstuvxyz"))
    for given in (
        weights,
        (out, weights),
        dense,
        dense[None],
        dense.numpy(),
        dense.double().requires_grad_(),
    ):
        shown = plot(given, tokens=tokens).axes[2].images[0].get_array()
        assert np.array_equal(~np.ma.getmaskarray(shown), weights.graph.mask().numpy())
        np.testing.assert_allclose(shown.filled(0), dense[2], rtol=1e-6)
    for values in (weights, (out, weights), weights.alpha, weights.alpha.numpy()):
        shown = plot(weights.graph, values=values).axes[2].images[0].get_array()
        np.testing.assert_allclose(shown.filled(0), dense[2], rtol=1e-6)
    after = torch.rand(2, 5, 7, generator=torch.Generator().manual_seed(4)).double()
    torch.testing.assert_close(
        ga.viz.rollout([dense, after]).dense()[0], after.mean(0) @ dense.double().mean(0)
    )


def test_a_place_chooses_its_view_and_a_target():
    pos = torch.rand(23, 2, generator=torch.Generator().manual_seed(1))
    weights = weights_on(ga.graphs.knn(pos, k=4))
    figure = plot(weights, pos)
    (target,) = {
        int(a.get_gid().split()[1])
        for a in figure.axes[0].get_children()
        if "target" in (a.get_gid() or "")
    }
    assert f"target {target} reads" in figure.get_suptitle()
    assert weights.graph.in_degree[target] > 0
    grid = ga.graphs.window_partition((4, 6), (2, 3))
    assert "target" in plot(weights_on(grid), size=(4, 6)).get_suptitle()
    x = torch.randn(24, 1, 5, generator=torch.Generator().manual_seed(0))
    assert (
        "target"
        in plot(ga.attention(x, x, x, grid, return_weights=True), layout="grid").get_suptitle()
    )
    with pytest.raises(OptionError, match="the graph has no targets"):
        plot(ga.EdgeWeights(ga.graphs.cross(0, 3), torch.zeros(0, 2)), view="place")


def test_words_of_a_sequence_in_a_narrow_panel_do_not_touch():
    words = ["the", "cat", "sat", "on", "the", "mat", "and", "the", "dog", "lay", "on", "it"]
    figure = plot(weights_on(ga.graphs.causal(12), heads=4), layout="sequence", tokens=words)
    renderer = (
        figure.canvas.get_renderer()
        if hasattr(figure.canvas, "get_renderer")
        else figure._get_renderer()
    )
    for axes in figure.axes[:4]:
        boxes = [label.get_window_extent(renderer) for label in axes.get_xticklabels()]
        assert len(boxes) == 12
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_strong_is_darker_than_weak():
    lightness = shades(*WEIGHTS)(np.linspace(0, 1, 9))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) < 0).all()
    assert lightness[0] > 0.8
    assert lightness[-1] < 0.2


def test_caption_title_and_scale_may_be_left_out():
    weights = weights_on(ga.graphs.causal(7))
    figure = plot(weights, target=6, caption=False, title=False, legend=False)
    assert not figure.get_supxlabel()
    assert not figure.get_suptitle()
    assert len(figure.axes) == 3
